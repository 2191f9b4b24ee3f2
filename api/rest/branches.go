package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// branchJSON is spec.md, "Branch (list item)".
type branchJSON struct {
	Cursor    string `json:"cursor"`
	Name      string `json:"name"`
	HeadSHA   string `json:"head_sha"`
	CreatedAt string `json:"created_at"`
}

// Branches answers GET /repos/branches.
func (d *Door) Branches(x exchange.Exchange, grant *auth.Grant) error {
	limit, err := limitOf(x, limitDefault, limitMax)
	if err != nil {
		return err
	}
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	repo, err := d.read(x, grant)
	if err != nil {
		return err
	}
	page, err := repo.Branches(x.Context(), space, x.Query().Get("cursor"), limit)
	if err != nil {
		return err
	}
	list := struct {
		Branches   []branchJSON `json:"branches"`
		NextCursor string       `json:"next_cursor,omitempty"`
		HasMore    bool         `json:"has_more"`
	}{Branches: []branchJSON{}, HasMore: page.Next != ""}
	for _, branch := range page.Items {
		list.Branches = append(list.Branches, branchJSON{
			Cursor:    branch.Cursor,
			Name:      branch.Name,
			HeadSHA:   branch.Tip.String(),
			CreatedAt: timestamp(branch.Created),
		})
		list.NextCursor = branch.Cursor
	}
	return answer(x, http.StatusOK, list)
}
