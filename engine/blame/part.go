package blame

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/pack/object"
)

// A part of a blame goes on beyond its limit until it leaves few runs of lines, of few commits: a
// client carries them to the next part.
const (
	PendingMax        = 512
	pendingCommitsMax = 32
)

// ErrLeft says that what is left of a blame is none of this file.
var ErrLeft = errors.New("blame: the lines that are left are none of this file")

// Pending is a run of lines that are in a commit's file, and perhaps in its parents' as well.
// Indexes count from 0.
type Pending struct {
	Index, Count int
	Commit       object.ID
	Path         string // in that commit
	Source       int    // index of the first line in that commit's file
}

// pauses reports whether the rest is left for another call.
func (b *blamer) pauses() bool {
	commits := b.queue.Len()
	return b.limit > 0 && b.compared >= b.limit && 0 < commits && commits <= pendingCommitsMax && b.left <= PendingMax
}

// pending returns what is left, in the order in which the commits were met.
func (b *blamer) pending() (left []Pending) {
	for _, n := range b.commits {
		if !n.queued {
			continue
		}
		for _, o := range n.origins {
			for _, e := range o.entries {
				left = append(left, Pending{Index: e.line, Count: e.count, Commit: n.id, Path: o.path, Source: e.source})
			}
		}
	}
	return left
}

// goOn takes up what an earlier part has left. Errors: [ErrLeft].
func (b *blamer) goOn(ctx context.Context, left []Pending) error {
	// Runs that overlap would make an answer of any length.
	lines := b.final.Count()
	for _, p := range left {
		if lines -= p.Count; p.Count < 1 || lines < 0 {
			return fmt.Errorf("%w: they are more lines than it has", ErrLeft)
		}
	}
	for runs := range ByFile(left) {
		if err := b.take(ctx, runs); err != nil {
			return err
		}
	}
	return nil
}

// ByFile yields the runs of the file of each commit, which stand together.
func ByFile(left []Pending) iter.Seq[[]Pending] {
	return func(yield func([]Pending) bool) {
		for len(left) > 0 {
			count := 1
			for count < len(left) && left[count].Commit == left[0].Commit && left[count].Path == left[0].Path {
				count++
			}
			if !yield(left[:count]) {
				return
			}
			left = left[count:]
		}
	}
}

// take blames a commit for runs of its file.
func (b *blamer) take(ctx context.Context, left []Pending) error {
	commit, path := left[0].Commit, left[0].Path
	n, err := b.node(ctx, commit)
	if err != nil {
		return err
	}
	o, _, err := b.file(ctx, n, path)
	if err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("%w: %s has no file %q", ErrLeft, commit, path)
	}
	text, err := b.text(ctx, o, b.final)
	if err != nil {
		return err
	}
	entries := make([]entry, len(left))
	for i, p := range left {
		if !within(p.Index, p.Count, b.final.Count()) || !within(p.Source, p.Count, text.Count()) {
			return fmt.Errorf("%w: lines %d and %d of %s:%s, %d of them", ErrLeft, p.Index, p.Source, commit, path, p.Count)
		}
		entries[i] = entry{line: p.Index, source: p.Source, count: p.Count}
	}
	b.blame(o, entries)
	return nil
}

// within reports whether count lines from first on are lines of a file.
func within(first, count, lines int) bool {
	return first >= 0 && first <= lines && count <= lines-first
}
