package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// Blame answers GET /repos/blame.
func (d *Door) Blame(x exchange.Exchange, grant *auth.Grant) error {
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	moves, err := flagOf(x, "detect_moves", false)
	if err != nil {
		return err
	}
	query := x.Query()
	request := engine.BlameRequest{
		Namespace: space,
		Ref:       query.Get("ref"),
		Path:      query.Get("path"),
		Ranges:    query["range"],
		Moves:     moves,
		Cursor:    query.Get("cursor"),
		Slot:      x.Slot,
	}
	if request.Limit, err = pageOf(x, blameLimitDefault, blameLimitMax); err != nil {
		return err
	}
	if request.Path == "" {
		return badRequest("path is required")
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	blame, err := repo.Blame(x.Context(), request)
	if err != nil {
		return err
	}
	x.Stream(http.StatusOK, "application/json", func(ctx context.Context, w io.Writer) error {
		defer blame.Close()
		return writeBlame(ctx, w, blame, request.Limit > 0)
	})
	return nil
}

// Versions of a file that a part of a blame compares: docs/api.md, "Search and blame".
const (
	blameLimitDefault = 100
	blameLimitMax     = 1000
)

// writeBlame writes the lines as they are walked.
func writeBlame(ctx context.Context, w io.Writer, blame *engine.Blame, paged bool) error {
	out := newJSONStream(w)
	out.raw(`{"ref":`)
	out.text(blame.Revision.Name)
	out.raw(`,"path":`)
	out.text(blame.Path)
	out.raw(`,"commit_sha":"` + blame.Revision.Commit.String() + `","lines":[`)
	told := make(map[object.ID]string)
	index := 0
	for line, err := range blame.Lines(ctx) {
		if err != nil {
			return err
		}
		if err := out.separate(index); err != nil {
			return err
		}
		out.raw(`{"line_number":` + strconv.Itoa(line.Number))
		out.raw(`,"original_line_number":` + strconv.Itoa(line.OriginalNumber))
		out.raw(`,"original_path":`)
		out.text(line.OriginalPath)
		if line.Previous != object.ZeroID {
			out.raw(`,"previous_commit_sha":"` + line.Previous.String() + `"`)
		}
		commit, ok := told[line.Commit.ID]
		if !ok {
			commit = blamedCommit(line.Commit)
			told[line.Commit.ID] = commit
		}
		out.raw(commit)
		index++
	}
	out.raw("]")
	if paged {
		out.page(blame.Next())
	}
	out.raw("}\n")
	return out.end()
}

// blamedCommit is the part of each line that describes its commit, and the end of the line.
func blamedCommit(c *engine.Commit) string {
	var out jsonStream
	out.raw(`,"commit_sha":"` + c.ID.String() + `"`)
	for _, field := range [...]struct{ name, value string }{
		{"author_name", c.Author.Name},
		{"author_email", c.Author.Email},
		{"author_time", timestamp(object.CommitTime(c.Author.Seconds))},
		{"committer_name", c.Committer.Name},
		{"committer_email", c.Committer.Email},
		{"committer_time", timestamp(object.CommitTime(c.Committer.Seconds))},
		{"summary", c.Summary()},
	} {
		out.raw(`,"` + field.name + `":`)
		out.text(field.value)
	}
	out.raw("}")
	return string(out.buffer)
}
