package blame

import (
	"context"

	"packhorse/engine/diff/lines"
)

// moveScore is the score that lines need to be searched as moved: one more than their letters and
// digits.
const moveScore = 20

// passMoves passes to the parents the lines that they have somewhere else in the file. Lines with
// too low a score stay.
func (b *blamer) passMoves(ctx context.Context, o *origin, parents []*origin) error {
	var kept []entry // not searched any more
	todo := b.telling(o.entries, &kept)
	for _, parent := range parents {
		if len(todo) == 0 {
			break
		}
		before, err := b.text(ctx, parent, b.final)
		if err != nil {
			return err
		}
		var passed, own []entry
		for len(todo) > 0 {
			var rest []entry
			for _, e := range todo {
				at, found, err := b.moved(ctx, before, e)
				if err != nil {
					return err
				}
				if !found {
					own = append(own, e)
					continue
				}
				passed = append(passed, at)
				if head := at.line - e.line; head > 0 {
					rest = append(rest, entry{e.line, e.source, head})
				}
				if tail := e.from(at.line - e.line + at.count); tail.count > 0 {
					rest = append(rest, tail)
				}
			}
			todo = b.telling(rest, &kept)
		}
		b.blame(parent, passed)
		todo = own
	}
	o.entries = append(kept, todo...)
	for _, parent := range parents {
		parent.forget()
	}
	return nil
}

// telling returns the entries with a sufficient score, and adds the others to rest.
func (b *blamer) telling(entries []entry, rest *[]entry) (enough []entry) {
	for _, e := range entries {
		if b.score(e) > moveScore {
			enough = append(enough, e)
		} else {
			*rest = append(*rest, e)
		}
	}
	return enough
}

// moved finds the run of an entry's lines in a parent's file with the highest score, of equal ones
// the last. The result has its lines there.
func (b *blamer) moved(ctx context.Context, before lines.Text, e entry) (best entry, found bool, err error) {
	changes, err := lines.Diff(ctx, before, lines.Split(b.final.Range(e.line, e.count)), lineDiff)
	if err != nil {
		return best, false, err
	}
	score := 0
	at, old := 0, 0
	try := func(end int) {
		if at < end {
			run := entry{e.line + at, old, end - at}
			if s := b.score(run); s >= score {
				best, score = run, s
			}
		}
	}
	for _, c := range changes {
		try(c.NewStart)
		at, old = newEnd(c), c.OldStart+c.OldCount
	}
	try(e.count)
	return best, score > moveScore, nil
}

// score is one more than the letters and digits of an entry.
func (b *blamer) score(e entry) int {
	score := 1
	for _, c := range b.final.Range(e.line, e.count) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			score++
		}
	}
	return score
}
