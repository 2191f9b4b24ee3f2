package rest

import (
	"net/http"
	"unicode/utf8"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// commitJSON is spec.md, "Commit (list item, commit history)", with its parents.
type commitJSON struct {
	SHA            string   `json:"sha"`
	ParentSHAs     []string `json:"parent_shas"`
	Message        string   `json:"message"`
	AuthorName     string   `json:"author_name"`
	AuthorEmail    string   `json:"author_email"`
	CommitterName  string   `json:"committer_name"`
	CommitterEmail string   `json:"committer_email"`
	Date           string   `json:"date"`
}

func commitOf(c engine.Commit) commitJSON {
	told := commitJSON{
		SHA:            c.ID.String(),
		ParentSHAs:     []string{},
		Message:        c.Message,
		AuthorName:     c.Author.Name,
		AuthorEmail:    c.Author.Email,
		CommitterName:  c.Committer.Name,
		CommitterEmail: c.Committer.Email,
		Date:           timestamp(engine.CommitTime(c.Committer.Seconds)),
	}
	for _, parent := range c.Parents {
		told.ParentSHAs = append(told.ParentSHAs, parent.String())
	}
	return told
}

// Commits answers GET /repos/commits.
func (d *Door) Commits(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, limit, err := d.openList(x, grant)
	if err != nil {
		return err
	}
	query := x.Query()
	page, err := repo.Commits(x.Context(), engine.CommitsRequest{
		Namespace: space,
		Branch:    query.Get("branch"),
		Path:      query.Get("path"),
		Cursor:    query.Get("cursor"),
		Limit:     limit,
		Slot:      x.Slot,
	})
	if err != nil {
		return err
	}
	list := struct {
		Commits    []commitJSON `json:"commits"`
		NextCursor string       `json:"next_cursor,omitempty"`
		HasMore    bool         `json:"has_more"`
	}{Commits: []commitJSON{}, NextCursor: page.Next, HasMore: page.Next != ""}
	for _, c := range page.Items {
		list.Commits = append(list.Commits, commitOf(c))
	}
	return answer(x, http.StatusOK, list)
}

// Commit answers GET /repos/commit.
func (d *Door) Commit(x exchange.Exchange, grant *auth.Grant) error {
	sha := x.Query().Get("sha")
	if sha == "" {
		return badRequest("sha is required")
	}
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	found, err := repo.Commit(x.Context(), sha)
	if err != nil {
		return err
	}
	type signedJSON struct {
		commitJSON
		Signature string `json:"signature,omitempty"`
		Payload   string `json:"payload,omitempty"`
	}
	told := signedJSON{commitJSON: commitOf(found.Commit), Signature: string(found.Signature)}
	if utf8.Valid(found.Payload) { // or else JSON cannot say which bytes were signed
		told.Payload = string(found.Payload)
	}
	return answer(x, http.StatusOK, struct {
		Commit signedJSON `json:"commit"`
	}{told})
}
