// Package blame determines the commit that each line of a file comes from, as git blame does.
//
// Start at [File]. All lines start at the requested commit (origin.go). A commit passes the lines
// that a parent shares (changes.go) on to that parent (pass.go), from the newest commit to the
// oldest, until every line is at a commit whose parents do not have it. A file that a parent does
// not have is searched among the files that the commit removed, by the rename detection of package
// diff. With moves (moves.go), lines that the commit only moved are found in the parent's file as
// well. A blame may be had in parts (part.go), the lines with the newest commits first. ranges.go
// parses the forms of git blame -L, pattern.go their regular expressions.
//
// Results are those of git 2.39 in a bare repository. The package knows neither names nor refs; a
// call belongs to one goroutine.
package blame

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/engine/diff/lines"
	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// SizeMax bounds the size in bytes of the files that are blamed, in any commit.
const SizeMax = 64 << 20

// Facts that a caller decides on.
var (
	// ErrRange says that a range of lines is malformed, or outside the file.
	ErrRange = errors.New("blame: invalid range")
	// ErrTooLarge says that a file is larger than [SizeMax].
	ErrTooLarge = errors.New("blame: the file is too large")
)

// Options select the lines to blame, and how.
type Options struct {
	// Ranges are the lines to blame, each in a form of git blame -L; none means all of them.
	Ranges []string
	// Moves also finds lines that were moved within the file, as git blame -M does.
	Moves bool
	// Known has the changes that earlier blames found, and gets those of this one; nil: none.
	Known *Changes
	// Limit ends a call when so many versions of the file have been compared, whose changes were not
	// known, and no more than [PendingMax] runs of lines are left; 0 never does.
	Limit int
	// Left is what an earlier part of the blame has left, which this one goes on with instead of
	// Ranges; nil begins a blame.
	Left []Pending
}

// Run is a run of lines with the same origin. Indexes count from 0.
type Run struct {
	Index, Count int
	Commit       object.ID
	Path         string // in that commit
	Source       int    // index of the first line in that commit's file
	// Previous is the parent that has a file for the commit to compare with; zero if none has.
	Previous object.ID
}

// File blames the file at a path of a commit. The runs are in the order of the lines; those that a
// limit leaves for the next part of the blame are in left. Memory grows with the lines of the file
// and the commits visited, plus the contents of a few versions.
//
// Errors: [ErrRange], [ErrTooLarge], [ErrLeft], odb.ErrNotFound when commit or file does not exist,
// and those of reading.
func File(
	ctx context.Context, view *odb.View, commit object.ID, path string, o Options,
) (runs []Run, left []Pending, err error) {
	b := &blamer{
		view: view, moves: o.Moves, known: o.Known, limit: o.Limit,
		nodes: make(map[object.ID]*node), readers: make(map[string]*revwalk.PathReader),
	}
	defer b.close()
	first, err := b.begin(ctx, commit, path)
	if err != nil {
		return nil, nil, err
	}
	if o.Left != nil {
		err = b.goOn(ctx, o.Left)
	} else {
		err = b.selectLines(ctx, first, o.Ranges)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := b.run(ctx); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(b.runs, func(x, y Run) int { return cmp.Compare(x.Index, y.Index) })
	return joined(b.runs), b.pending(), nil
}

// selectLines blames the file's own commit for the lines to blame.
func (b *blamer) selectLines(ctx context.Context, first *origin, ranges []string) error {
	spans, err := parseRanges(ctx, b.final, ranges)
	if err != nil {
		return err
	}
	var entries []entry
	for _, s := range spans {
		entries = append(entries, entry{line: s.start, source: s.start, count: s.end - s.start})
	}
	b.blame(first, entries)
	return nil
}

// joined makes one run of those that continue each other.
func joined(runs []Run) []Run {
	all := runs[:0]
	for _, r := range runs {
		if n := len(all); n > 0 {
			last := &all[n-1]
			if last.Commit == r.Commit && last.Path == r.Path && last.Index+last.Count == r.Index &&
				last.Source+last.Count == r.Source {
				last.Count += r.Count
				continue
			}
		}
		all = append(all, r)
	}
	return all
}

// blamer is one call of File.
type blamer struct {
	view    *odb.View
	final   lines.Text // the file that is blamed
	moves   bool
	known   *Changes // nil: none
	nodes   map[object.ID]*node
	commits []*node // the same by number
	readers map[string]*revwalk.PathReader
	queue   revwalk.Queue // of the commits that are blamed for something, the newest first
	runs    []Run

	limit    int // of compared; 0: none
	compared int // versions of the file, not counting known changes
	left     int // entries of the commits in the queue
}

func (b *blamer) close() {
	for _, r := range b.readers {
		r.Close()
	}
}

// begin finds the file.
func (b *blamer) begin(ctx context.Context, commit object.ID, path string) (*origin, error) {
	n, err := b.node(ctx, commit)
	if err != nil {
		return nil, err
	}
	o, id, err := b.file(ctx, n, path)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, &odb.NotFoundError{Object: id}
	}
	b.final, err = b.text(ctx, o, lines.Text{})
	return o, err
}

// run passes the blame on until no entry is left to pass on, or the limit is reached.
func (b *blamer) run(ctx context.Context) error {
	for !b.pauses() {
		n := b.pop()
		if n == nil {
			return nil
		}
		for _, o := range n.origins {
			b.left -= len(o.entries)
		}
		for i := 0; i < len(n.origins); i++ {
			o := n.origins[i]
			if len(o.entries) == 0 {
				continue
			}
			if err := b.pass(ctx, o); err != nil {
				return fmt.Errorf("blame %s:%s: %w", n.id, o.path, err)
			}
			for _, e := range o.entries {
				b.runs = append(b.runs,
					Run{Index: e.line, Count: e.count, Commit: n.id, Path: o.path, Source: e.source, Previous: o.previous})
			}
			o.entries = nil
			o.forget()
		}
	}
	return nil
}
