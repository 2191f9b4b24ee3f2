package engine

import (
	"context"
	"encoding/binary"
	"time"

	"packhorse/engine/grep"
	"packhorse/engine/pathspec"
	"packhorse/pack/object"
	"packhorse/refs"
)

// GrepRequest selects a page of the lines of a revision that match a pattern.
type GrepRequest struct {
	Namespace refs.Namespace
	// Ref is a branch, tag, full ref or object id; "" is the default branch.
	Ref string
	// Pattern is RE2.
	Pattern    string
	IgnoreCase bool
	Files      pathspec.Spec
	// Before, After, MatchesMax, FilesMax and LinesMax are those of [grep.Options].
	Before, After, MatchesMax, FilesMax, LinesMax int
	// Cursor continues a search, in the commit that it began with.
	Cursor string
}

// Grep is a page of a search. Next is the cursor of the next page, or "".
type Grep struct {
	Revision Revision
	Files    []grep.File
	Next     string
}

const cursorGrep = 'g'

// grepPatience is the time after which a page ends with the matches found so far, so that its
// answer begins in time.
const grepPatience = 10 * time.Second

// Grep searches the files of a revision. If the search takes long, a page may have fewer matches
// than requested, or none, and yet a next page.
//
// Errors: [ErrNotFound] for the ref; [grep.ErrPattern]; [pathspec.ErrInvalid]; [ErrInvalid] for a
// cursor of another search.
func (r *Repository) Grep(ctx context.Context, request GrepRequest) (Grep, error) {
	options := grep.Options{
		Before: request.Before, After: request.After,
		MatchesMax: request.MatchesMax, FilesMax: request.FilesMax, LinesMax: request.LinesMax,
		Patience: grepPatience, Known: r.host.trigrams,
	}
	var err error
	if options.Pattern, err = grep.Compile(request.Pattern, request.IgnoreCase); err != nil {
		return Grep{}, err
	}
	if options.Filter, err = request.Files.Compile(); err != nil {
		return Grep{}, err
	}
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return Grep{}, err
	}
	defer at.view.Close()
	position := grepCursor{cursors: r.cursors(), query: request.query(), commit: at.revision.Commit}
	if request.Cursor != "" {
		if err := position.read(request.Cursor); err != nil {
			return Grep{}, err
		}
		if at.tree, err = cursorTree(ctx, at.view, request.Cursor, position.commit); err != nil {
			return Grep{}, err
		}
		at.revision.Commit, options.From = position.commit, position.at
	}
	page, err := grep.Search(ctx, at.view, at.tree, options)
	if err != nil {
		return Grep{}, err
	}
	done := Grep{Revision: at.revision, Files: page.Files}
	if page.More {
		position.at = page.Next
		done.Next = position.text()
	}
	return done, nil
}

// query identifies what decides on the lines of a search and on their order.
func (g *GrepRequest) query() cursorQuery {
	return queryOf("%q %t %q %q %q %q %d %d %d", g.Pattern, g.IgnoreCase,
		g.Files.Paths, g.Files.Include, g.Files.Exclude, g.Files.Extensions, g.Before, g.After, g.MatchesMax)
}

// grepCursor is the position where a search continues: commit, query, line, path.
type grepCursor struct {
	cursors
	commit object.ID
	query  cursorQuery
	at     grep.Position
}

func (c *grepCursor) text() string {
	data := append(c.commit[:], c.query[:]...)
	data = binary.BigEndian.AppendUint64(data, uint64(c.at.Line))
	return c.encode(cursorGrep, append(data, c.at.Path...))
}

func (c *grepCursor) read(cursor string) error {
	const queryAt, lineAt, pathAt = object.IDSize, object.IDSize + 8, object.IDSize + 16
	data, err := c.decode(cursorGrep, cursor, 0)
	if err != nil {
		return err
	}
	if len(data) <= pathAt {
		return fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	}
	if cursorQuery(data[queryAt:lineAt]) != c.query {
		return fail(ErrInvalidCursor, "cursor %.100q belongs to another search", cursor)
	}
	c.commit = object.ID(data[:queryAt])
	c.at = grep.Position{Path: string(data[pathAt:]), Line: int64(binary.BigEndian.Uint64(data[lineAt:pathAt]))}
	return nil
}
