package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// tagJSON is a tag in a listing: docs/api.md, "Branches and tags".
type tagJSON struct {
	Cursor string `json:"cursor"`
	Name   string `json:"name"`
	SHA    string `json:"sha"`
}

// Tags answers GET /repos/tags.
func (d *Door) Tags(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, limit, err := d.openList(x, grant)
	if err != nil {
		return err
	}
	page, err := repo.Tags(x.Context(), space, x.Query().Get("cursor"), limit)
	if err != nil {
		return err
	}
	list := struct {
		Tags       []tagJSON `json:"tags"`
		NextCursor string    `json:"next_cursor,omitempty"`
		HasMore    bool      `json:"has_more"`
	}{Tags: []tagJSON{}, NextCursor: page.Next, HasMore: page.Next != ""}
	for _, tag := range page.Items {
		list.Tags = append(list.Tags, tagJSON{Cursor: tag.Cursor, Name: tag.Name, SHA: tag.Target.String()})
	}
	return answer(x, http.StatusOK, list)
}

// Tag answers GET /repos/tag.
func (d *Door) Tag(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, name, err := d.openOne(x, grant)
	if err != nil {
		return err
	}
	tag, err := repo.Tag(x.Context(), space, name)
	if err != nil {
		return err
	}
	type tagJSON struct {
		Name      string `json:"name"`
		SHA       string `json:"sha"`
		ObjectSHA string `json:"object_sha,omitempty"`
	}
	return answer(x, http.StatusOK, struct {
		Tag tagJSON `json:"tag"`
	}{tagJSON{tag.Name, tag.Target.String(), shaOrNone(tag.Object)}})
}

// CreateTag answers POST /repos/tags.
func (d *Door) CreateTag(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		Name      string  `json:"name"`
		Ref       *string `json:"ref"`
		Target    *string `json:"target"` // older
		Ephemeral bool    `json:"ephemeral"`
		dryRun
	}
	repo, by, err := d.writeJSON(x, grant, "POST /repos/tags", &request)
	if err != nil {
		return err
	}
	space := namespace(request.Ephemeral)
	text, field := eitherNamed("ref", request.Ref, "target", request.Target)
	target := commitName(text, field, "target", engine.FullID, space)
	switch {
	case request.Name == "":
		return badRequest("name is required")
	case text == "":
		return badRequest("ref or target is required")
	}
	if err := checkDigits(target); err != nil {
		return err
	}
	created, err := repo.CreateTag(x.Context(), by, space, request.Name, target)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusCreated, created.Sequence, struct {
		Name    string `json:"name"`
		SHA     string `json:"sha"`
		Message string `json:"message"`
	}{request.Name, created.Commit.String(), "tag created"})
}

// DeleteTag answers DELETE /repos/tags.
func (d *Door) DeleteTag(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		Name      string `json:"name"`
		Ephemeral bool   `json:"ephemeral"`
		dryRun
	}
	named := x.PathValue("name")
	body, err := readJSON(x, &request, named != "")
	if err != nil {
		return err
	}
	name, err := pathOr(x, "name", request.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return badRequest("name is required")
	}
	ephemeral, flag := request.Ephemeral, ""
	if named != "" {
		flag = x.Query().Get("ephemeral")
		if ephemeral, err = flagOf(x, "ephemeral", ephemeral); err != nil {
			return err
		}
	}
	repo, by, err := d.write(x, grant, "DELETE /repos/tags")
	if err == nil {
		err = rehearse(x, &by, &request)
	}
	if err != nil {
		return err
	}
	sign(&by, body, named, flag)
	deleted, err := repo.DeleteTag(x.Context(), by, namespace(ephemeral), name)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, deleted.Sequence, struct {
		Name    string `json:"name"`
		Message string `json:"message"`
	}{name, "tag deleted"})
}
