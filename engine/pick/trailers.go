package pick

import (
	"slices"
	"strings"
)

// endsInTrailers reports whether a message ends in a block of trailers, by the rules of
// git-interpret-trailers(1): a paragraph that is not the first one, all of whose lines are
// trailers, or a quarter of them when one is made by git. The message is empty or ends in a line
// feed.
func endsInTrailers(message string) bool {
	lines := slices.Collect(strings.Lines(message))
	lines = withoutEnd(lines)
	title := slices.IndexFunc(lines, func(line string) bool { return line[0] != comment && isBlank(line) })
	if title < 0 {
		title = len(lines)
	}
	b := block{}
	for i := len(lines) - 1; i >= title; i-- {
		if ended, trailers := b.add(lines[i]); ended {
			return trailers
		}
	}
	return false
}

const comment = '#'

// withoutEnd removes what git does not take for a part of the message, at its end: comments, blank
// lines and the old list of conflicts.
func withoutEnd(lines []string) []string {
	end, conflicts := -1, false
	for i, line := range lines {
		switch {
		case line[0] == comment, line == "\n":
		case line == "Conflicts:\n":
			conflicts = true
		case conflicts && line[0] == '\t':
			continue
		default:
			end, conflicts = -1, false
			continue
		}
		if end < 0 {
			end = i
		}
	}
	if end >= 0 {
		lines = lines[:end]
	}
	return lines
}

// block counts the lines of a paragraph, the last one first.
type block struct {
	begun                     bool
	trailers, others, pending int // pending lines belong to the line before them
	ofGit                     bool
}

// add takes the line before those so far. At a blank one the block ends, and it says whether it is
// one of trailers.
func (b *block) add(line string) (ended, trailers bool) {
	switch {
	case line[0] == comment:
		b.others += b.pending
		b.pending = 0
	case isBlank(line):
		if !b.begun {
			return false, false
		}
		b.others += b.pending
		return true, b.ofGit && b.trailers*3 >= b.others || b.trailers > 0 && b.others == 0
	case strings.HasPrefix(line, originPrefix), strings.HasPrefix(line, "Signed-off-by: "):
		b.begun, b.ofGit, b.pending = true, true, 0
		b.trailers++
	case isTrailer(line):
		b.begun, b.pending = true, 0
		b.trailers++
	case strings.ContainsRune(space, rune(line[0])):
		b.begun = true
		b.pending++
	default:
		b.begun = true
		b.others += 1 + b.pending
		b.pending = 0
	}
	return false, false
}

// isTrailer reports whether a line has a token, maybe white space, and a colon.
func isTrailer(line string) bool {
	colon := strings.IndexByte(line, ':')
	if colon < 1 {
		return false
	}
	token := strings.TrimRight(line[:colon], " \t")
	return token != "" && !strings.ContainsFunc(token, func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}
