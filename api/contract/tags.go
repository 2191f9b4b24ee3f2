package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// TagList is a page of tags.
type TagList struct {
	Tags []ListedTag `json:"tags"`
	Page
}

// ListedTag is a tag in a listing.
type ListedTag struct {
	Cursor string `json:"cursor"`
	Name   string `json:"name"`
	SHA    string `json:"sha" schema:"ObjectID" jsonschema:"the object that the tag finally points to, usually a commit"`
}

// OneTag is the answer for one tag.
type OneTag struct {
	Tag Tag `json:"tag"`
}

// Tag is a tag.
type Tag struct {
	Name      string `json:"name"`
	SHA       string `json:"sha" schema:"ObjectID" jsonschema:"the commit"`
	ObjectSHA string `json:"object_sha,omitempty" schema:"ObjectID" jsonschema:"the tag object, of an annotated tag"`
}

// CreateTag is the body of a creation.
type CreateTag struct {
	Name      string `json:"name" schema:"required"`
	Ref       string `json:"ref" schema:"required" jsonschema:"the revision that is tagged"`
	Target    string `json:"target" schema:"older=ref,ObjectID"`
	Ephemeral bool   `json:"ephemeral" jsonschema:"the namespace of the tag"`
	Rehearsal
}

// CreatedTag is the answer to a creation.
type CreatedTag struct {
	Name    string `json:"name"`
	SHA     string `json:"sha" schema:"ObjectID"`
	Message string `json:"message"`
	Rehearsed
}

// DeleteTag is the body of a deletion.
type DeleteTag struct {
	Name      string `json:"name" schema:"required"`
	Ephemeral bool   `json:"ephemeral" jsonschema:"the namespace of the tag"`
	Rehearsal
}

// DeletedTag is the answer to a deletion.
type DeletedTag struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Rehearsed
}

func tagCalls() []call {
	return []call{
		{
			v1: "/repos/tags", path: "/repos/{n}/tags", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "tags", Group: branchesAndTags,
				Summary:     "lists tags",
				Description: "Sorted by name in byte order.",
				Parameters:  query(ephemeral, cursor, limit(20, 100)),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "A page of tags.", Type: TagList{},
					Example: `{"tags": [{"cursor": "dHYxLjA", "name": "v1.0",
   "sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}], "has_more": false}`,
				}},
			},
		},
		{
			v1: "/repos/tag", path: "/repos/{n}/tag", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "tag", Group: branchesAndTags,
				Summary: "describes one tag",
				Parameters: query(
					openapi.Parameter{Name: "name", Required: true, Description: "The tag.", Example: "v1.0"}, ephemeral,
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The tag.", Type: OneTag{},
					Example: `{"tag": {"name": "v1.0", "sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The tag, or the repository, does not exist.")},
			},
		},
		{
			v1: "/repos/tags", path: "/repos/{n}/tags", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "createTag", Group: branchesAndTags,
				Summary:     "creates a lightweight tag",
				Description: "To create an annotated tag, push it. With an upstream, the tag is sent there.",
				Body:        &openapi.Body{Type: CreateTag{}, Example: `{"name": "v1.0", "ref": "main"}`},
				Answers: []openapi.Answer{{
					Status: http.StatusCreated, Description: "The tag.", Type: CreatedTag{},
					Example: `{"name": "v1.0", "sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "message": "tag created"}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The commit, or the repository, does not exist."),
					fails(http.StatusConflict, "The tag exists, its name conflicts with another ref."),
				},
			},
		},
		{
			v1: "/repos/tags", path: "/repos/{n}/tags/{name}", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "deleteTag", Group: branchesAndTags,
				Summary: "deletes a tag",
				Body:    &openapi.Body{Type: DeleteTag{}, Example: `{"name": "v1.0"}`},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "It is deleted.", Type: DeletedTag{},
					Example: `{"name": "v1.0", "message": "tag deleted"}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The tag, or the repository, does not exist.")},
			},
			named: func(o *openapi.Operation) {
				o.Body = notNeeded
				o.Parameters = append([]openapi.Parameter{
					{
						Name: "name", In: openapi.InPath, Required: true, Example: "release/v1",
						Description: "The tag in one segment: `release%2Fv1`.",
					},
					query(flag("ephemeral", "The namespace of the tag."))[0],
				}, o.Parameters...)
			},
		},
	}
}
