package patch

import (
	"bytes"
	"context"
	"io"
	"strings"
)

// Parse checks the form of a patch of size bytes and notes its parts.
//
// Errors: [ErrEmpty], [ErrMalformed], [ErrTooLarge], and those of from.
func Parse(ctx context.Context, from io.ReaderAt, size int64, limits Limits) (*Patch, error) {
	limits.setDefaults()
	p := &parser{source: &source{from: from, size: size}, limits: limits, strip: 1}
	patch := &Patch{source: p.source, limits: limits}
	for at := int64(0); at < size; {
		f := file{}
		next, err := p.part(ctx, at, &f)
		if err != nil {
			return nil, err
		}
		if next == 0 {
			break
		}
		if len(patch.files) == limits.FileCountMax {
			return nil, &LimitError{Limit: "files", Max: int64(limits.FileCountMax)}
		}
		patch.files = append(patch.files, f)
		at = next
	}
	if len(patch.files) == 0 {
		return nil, ErrEmpty
	}
	return patch, nil
}

// parser reads a patch in one pass.
type parser struct {
	*source
	limits   Limits
	inflated int64

	// strip is the number of leading folders that names lose: 1, unless the first plain header has
	// names without folders.
	strip      int
	stripKnown bool
	// headerDefault is the name in the "diff --git" line.
	headerDefault string
}

// malformed is a [SyntaxError] at an offset.
func (s *source) malformed(at int64, reason string) error {
	return &SyntaxError{Line: s.lineNumber(at), Reason: reason}
}

// part reads the next part from an offset on, and returns the offset behind it, 0 when there is
// none.
func (p *parser) part(ctx context.Context, at int64, f *file) (int64, error) {
	at, err := p.header(ctx, at, f)
	if at == 0 || err != nil {
		return 0, err
	}
	end, err := p.hunks(ctx, at, f)
	if err != nil || end > at {
		return end, err
	}
	l, err := p.line(ctx, at)
	if err != nil {
		return 0, err
	}
	switch {
	case string(l.text) == "GIT binary patch\n":
		return p.binary(ctx, at+l.size, f)
	case bytes.HasSuffix(l.text, []byte(" differ\n")) && (l.has("Binary files ") || l.has("Files ")):
		f.isBinary = true
		return at + l.size, nil
	case !f.changesMetadata():
		return 0, p.malformed(at, "a header, and nothing that it changes")
	}
	return at, nil
}

// header finds the next header and returns the offset behind it, 0 when there is none. Text between
// parts is skipped.
func (p *parser) header(ctx context.Context, at int64, f *file) (int64, error) {
	const shortest = 6
	for at < p.size {
		l, err := p.line(ctx, at)
		if err != nil {
			return 0, err
		}
		next := at + l.size
		switch {
		case l.size < shortest:
		case l.has("@@ -"):
			if _, ok := parseHunkHead(&l); ok {
				return 0, p.malformed(at, "a hunk without a header")
			}
		case p.size-next < shortest:
			return 0, nil
		case l.has("diff --git "):
			end, err := p.gitHeader(ctx, at, f)
			if err != nil || end > next {
				return end, err
			}
		case l.has("--- "):
			end, err := p.plainHeader(ctx, at, f)
			if err != nil || end > 0 {
				return end, err
			}
		}
		at = next
	}
	return 0, nil
}

// plainHeader reads the two lines that diff -u writes, and returns the offset behind them, 0 if it
// is no header.
func (p *parser) plainHeader(ctx context.Context, at int64, f *file) (int64, error) {
	const hunkHeadMin = len("@@ -0,0 +1 @@\n")
	b, err := p.ahead(ctx, at)
	if err != nil {
		return 0, err
	}
	_, second, _ := bytes.Cut(b, []byte{'\n'})
	if !bytes.HasPrefix(second, []byte("+++ ")) {
		return 0, nil
	}
	_, third, ok := bytes.Cut(second, []byte{'\n'})
	secondSize := int64(len(second) - len(third))
	if !ok || p.size-at < secondSize+int64(hunkHeadMin) || !bytes.HasPrefix(third, []byte("@@ -")) {
		return 0, nil
	}
	if !p.plainNames(b[len("--- "):], second[len("+++ "):], f) {
		return 0, p.malformed(at, "no file name")
	}
	return at + int64(len(b)-len(third)), nil
}

// plainNames takes names from a plain header, and false if there is none.
func (p *parser) plainNames(first, second []byte, f *file) bool {
	p.guessStrip(second)
	var name string
	switch {
	case isNull(first):
		f.isNew, f.isDelete = yes, no
		name = plainName(second, "", p.strip)
		f.newName = name
	case isNull(second):
		f.isNew, f.isDelete = no, yes
		name = plainName(first, "", p.strip)
		f.oldName = name
	default:
		name = plainName(second, plainName(first, "", p.strip), p.strip)
		switch {
		case isEpoch(first):
			f.isNew, f.isDelete = yes, no
			f.newName = name
		case isEpoch(second):
			f.isNew, f.isDelete = no, yes
			f.oldName = name
		default:
			f.oldName, f.newName = name, name
		}
	}
	return name != ""
}

// guessStrip notices names that have no folder to strip.
func (p *parser) guessStrip(second []byte) {
	if p.stripKnown {
		return
	}
	if !isNull(second) {
		if name := plainName(second, "", 0); name != "" && !strings.Contains(name, "/") {
			p.strip, p.stripKnown = 0, true
		}
	}
}
