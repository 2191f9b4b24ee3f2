package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// writeCommit writes the fields of a commit, with its parents: one item of GET /repos/commits.
func (s *jsonStream) writeCommit(c *engine.Commit) {
	s.textField("sha", c.ID.String())
	s.field("parent_shas")
	s.raw("[")
	for i, parent := range c.Parents {
		if i > 0 {
			s.raw(",")
		}
		s.text(parent.String())
	}
	s.raw("]")
	s.textField("message", c.Message)
	s.textField("author_name", c.Author.Name)
	s.textField("author_email", c.Author.Email)
	s.textField("committer_name", c.Committer.Name)
	s.textField("committer_email", c.Committer.Email)
	s.textField("date", timestamp(object.CommitTime(c.Committer.Seconds)))
}

// Commits answers GET /repos/commits.
func (d *Door) Commits(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, limit, err := d.openList(x, grant)
	if err != nil {
		return err
	}
	query := x.Query()
	from, by := parameter(x, "ref", "branch")
	page, err := repo.Commits(x.Context(), engine.CommitsRequest{
		From:   commitName(from, by, "branch", engine.BranchName, space),
		Path:   query.Get("path"),
		Cursor: query.Get("cursor"),
		Limit:  limit,
		Slot:   x.Slot,
	})
	if err != nil {
		return err
	}
	return answerStream(x, http.StatusOK, page.IsWhole(), func(ctx context.Context, w io.Writer) error {
		return errors.Join(writeCommits(ctx, w, page), page.Close())
	})
}

func writeCommits(ctx context.Context, w io.Writer, page *engine.CommitPage) error {
	out := newJSONStream(w)
	out.raw(`{"commits":[`)
	count := 0
	for c, err := range page.All(ctx) {
		if err != nil {
			return err
		}
		if err := out.separate(count); err != nil {
			return err
		}
		out.raw("{")
		out.writeCommit(&c)
		out.raw("}")
		count++
	}
	out.raw("]")
	out.page(page.Next)
	out.raw("}\n")
	return out.end()
}

// Commit answers GET /repos/commit.
func (d *Door) Commit(x exchange.Exchange, grant *auth.Grant) error {
	ref, by := parameter(x, "ref", "sha")
	if ref == "" {
		return badRequest("ref or sha is required")
	}
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	repo, err := d.recallAt(x, grant)
	if err != nil {
		return err
	}
	found, err := repo.Commit(x.Context(), commitName(ref, by, "sha", engine.IDPrefix, space))
	if err != nil {
		return err
	}
	size := len(found.Message) + len(found.Author.Name) + len(found.Signature) + len(found.Payload)
	return answerStream(x, http.StatusOK, size < streamBytes, func(_ context.Context, w io.Writer) error {
		out := newJSONStream(w)
		out.raw(`{"commit":{`)
		out.writeCommit(&found.Commit)
		if len(found.Signature) > 0 {
			out.textField("signature", string(found.Signature))
		}
		if len(found.Payload) > 0 && utf8.Valid(found.Payload) { // or else JSON cannot say which bytes were signed
			out.textField("payload", string(found.Payload))
		}
		out.raw("}}\n")
		return out.end()
	})
}
