package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// branchJSON is a branch in a listing: docs/api.md, "Branches and tags".
type branchJSON struct {
	Cursor    string `json:"cursor"`
	Name      string `json:"name"`
	HeadSHA   string `json:"head_sha"`
	CreatedAt string `json:"created_at"`
}

// Branches answers GET /repos/branches.
func (d *Door) Branches(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, limit, err := d.openList(x, grant)
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

// Branch answers GET /repos/branch.
func (d *Door) Branch(x exchange.Exchange, grant *auth.Grant) error {
	repo, space, name, err := d.openOne(x, grant)
	if err != nil {
		return err
	}
	branch, err := repo.Branch(x.Context(), space, name)
	if err != nil {
		return err
	}
	type branchJSON struct {
		Name      string `json:"name"`
		HeadSHA   string `json:"head_sha"`
		CreatedAt string `json:"created_at"`
	}
	return answer(x, http.StatusOK, struct {
		Branch branchJSON `json:"branch"`
	}{branchJSON{branch.Name, branch.Tip.String(), timestamp(branch.Created)}})
}

// openOne opens the repository for the branch or tag that a query names.
func (d *Door) openOne(
	x exchange.Exchange, grant *auth.Grant,
) (repo *engine.Repository, space refs.Namespace, name string, err error) {
	if name = x.Query().Get("name"); name == "" {
		return nil, space, "", badRequest("name is required")
	}
	if space, err = spaceOf(x); err != nil {
		return nil, space, "", err
	}
	repo, err = d.openAt(x, grant, nil)
	return repo, space, name, err
}

// CreateBranch answers POST /repos/branches/create.
func (d *Door) CreateBranch(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		newBranch
		dryRun
	}
	repo, by, err := d.writeJSON(x, grant, "POST /repos/branches/create", &request)
	if err != nil {
		return err
	}
	switch {
	case request.TargetBranch == "":
		return badRequest("target_branch is required")
	case request.BaseBranch == "" && request.BaseRef == "":
		return badRequest("base_branch or base_ref is required")
	}
	created, err := repo.CreateBranch(x.Context(), by, request.creation())
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if created.Moved {
		status = http.StatusOK
	}
	return answerWrite(x, &by, status, created.Sequence, struct {
		Message           string `json:"message"`
		TargetBranch      string `json:"target_branch"`
		TargetIsEphemeral bool   `json:"target_is_ephemeral"`
		CommitSHA         string `json:"commit_sha"`
	}{branchMessage(&created), request.TargetBranch, request.TargetIsEphemeral, created.Tip.String()})
}

// newBranch has the fields of the creation of a branch.
type newBranch struct {
	TargetBranch      string `json:"target_branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	BaseBranch        string `json:"base_branch"`
	BaseRef           string `json:"base_ref"`
	BaseIsEphemeral   bool   `json:"base_is_ephemeral"`
	Force             bool   `json:"force"`
}

// creation is what they ask for. A base by its newer name is any revision, by its older one a
// branch.
func (b *newBranch) creation() engine.CreateBranchRequest {
	create := engine.CreateBranchRequest{
		Branch:    b.TargetBranch,
		Namespace: namespace(b.TargetIsEphemeral),
		Base:      engine.CommitName{Text: b.BaseRef, Namespace: namespace(b.BaseIsEphemeral), Field: "base_ref"},
		Force:     b.Force,
	}
	if b.BaseRef == "" {
		create.Base.Text, create.Base.Kind, create.Base.Field = b.BaseBranch, engine.BranchName, "base_branch"
	}
	return create
}

func branchMessage(created *engine.CreatedBranch) string {
	if created.Moved {
		return "branch moved"
	}
	return "branch created"
}

// DeleteBranch answers DELETE /repos/branches.
func (d *Door) DeleteBranch(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		TargetBranch *string `json:"target_branch"`
		Name         *string `json:"name"` // older
		Ephemeral    bool    `json:"ephemeral"`
		dryRun
	}
	repo, by, err := d.writeJSON(x, grant, "DELETE /repos/branches", &request)
	if err != nil {
		return err
	}
	name := either(request.TargetBranch, request.Name)
	if name == "" {
		return badRequest("target_branch or name is required")
	}
	deleted, err := repo.DeleteBranch(x.Context(), by, namespace(request.Ephemeral), name)
	if err != nil {
		return err
	}
	return answerWrite(x, &by, http.StatusOK, deleted.Sequence, struct {
		TargetBranch string `json:"target_branch"`
		Name         string `json:"name"` // older
		Message      string `json:"message"`
		Ephemeral    bool   `json:"ephemeral"`
	}{name, name, "branch deleted", request.Ephemeral})
}
