package engine

import (
	"context"
	"encoding/binary"

	"packhorse/engine/blame"
	"packhorse/pack/object"
)

const cursorBlame = 'B'

// blameCursor is where a blame continues: the commit whose file is blamed, what was asked for, and
// the lines that are left, those of a commit together.
type blameCursor struct {
	cursors
	query  cursorQuery
	path   string
	commit object.ID
	left   []blame.Pending
}

// blameCursor returns the cursor of a request, at the beginning of the blame.
func (r *Repository) blameCursor(request *BlameRequest) blameCursor {
	query := queryOf("%q %q %t", request.Path, request.Ranges, request.Moves)
	return blameCursor{cursors: r.cursors(), query: query, path: request.Path}
}

// text encodes the cursor. Of each commit it has the ID, the length of the path, or 0 where that is
// the path of the request, the path, the number of runs and the runs. Of a run it has the
// differences of both indexes from those of the run before, and the number of lines.
func (c *blameCursor) text() string {
	data := append(c.commit[:], c.query[:]...)
	for runs := range blame.ByFile(c.left) {
		path := runs[0].Path
		if path == c.path {
			path = ""
		}
		data = append(data, runs[0].Commit[:]...)
		data = append(binary.AppendVarint(data, int64(len(path))), path...)
		data = binary.AppendVarint(data, int64(len(runs)))
		index, source := 0, 0
		for _, p := range runs {
			data = binary.AppendVarint(data, int64(p.Index-index))
			data = binary.AppendVarint(data, int64(p.Source-source))
			data = binary.AppendVarint(data, int64(p.Count))
			index, source = p.Index, p.Source
		}
	}
	return c.encode(cursorBlame, data)
}

// read takes what is left from a cursor, and moves a position to the commit whose file is blamed.
// Errors: [ErrInvalidCursor].
func (c *blameCursor) read(ctx context.Context, cursor string, at *position) (err error) {
	if err := c.parse(cursor); err != nil {
		return err
	}
	at.revision.Commit = c.commit
	if at.tree, err = cursorTree(ctx, at.view, cursor, c.commit); err != nil {
		return err
	}
	for runs := range blame.ByFile(c.left) {
		if _, err := cursorTree(ctx, at.view, cursor, runs[0].Commit); err != nil { // whoever asks may see it
			return err
		}
	}
	return nil
}

func (c *blameCursor) parse(cursor string) error {
	data, err := c.decode(cursorBlame, cursor, 0)
	if err != nil {
		return err
	}
	r := blameCursorReader{rest: data}
	var query cursorQuery
	copy(c.commit[:], r.take(len(c.commit)))
	copy(query[:], r.take(len(query)))
	if !r.failed && query != c.query {
		return fail(ErrInvalidCursor, "cursor %.100q belongs to another blame", cursor)
	}
	for !r.failed && (len(r.rest) > 0 || c.left == nil) {
		c.left = append(c.left, r.file(c.path)...)
	}
	if r.failed || len(c.left) > blame.PendingMax {
		return fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	}
	return nil
}

// blameCursorReader reads the parts of a cursor. A part that is not there makes it fail, and is nil
// or 0.
type blameCursorReader struct {
	rest   []byte
	failed bool
}

func (r *blameCursorReader) take(size int) []byte {
	if r.failed = r.failed || size < 0 || size > len(r.rest); r.failed {
		return nil
	}
	part := r.rest[:size]
	r.rest = r.rest[size:]
	return part
}

func (r *blameCursorReader) number() int {
	value, size := binary.Varint(r.rest)
	const most = blame.SizeMax // no file has more lines, and no path is longer
	if r.failed = r.failed || size <= 0 || value < -most || value > most; r.failed {
		return 0
	}
	r.rest = r.rest[size:]
	return int(value)
}

// file reads the runs of one commit's file.
func (r *blameCursorReader) file(path string) []blame.Pending {
	var commit object.ID
	copy(commit[:], r.take(len(commit)))
	if size := r.number(); size != 0 {
		path = string(r.take(size))
	}
	count := r.number()
	if r.failed = r.failed || count < 1 || count > blame.PendingMax; r.failed {
		return nil
	}
	left := make([]blame.Pending, count)
	index, source := 0, 0
	for i := range left {
		index += r.number()
		source += r.number()
		left[i] = blame.Pending{Index: index, Source: source, Count: r.number(), Commit: commit, Path: path}
	}
	return left
}
