package rest

import (
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
)

// restoreMetadata has the fields of restore-commit beside those of all commits.
type restoreMetadata struct {
	commitMetadata
	BaseRef         *string `json:"base_ref"`
	TargetCommitSHA *string `json:"target_commit_sha"` // older
}

type restoreJSON struct {
	Metadata *restoreMetadata `json:"metadata"`
}

func (r *restoreJSON) isDryRun() bool { return r.Metadata != nil && r.Metadata.DryRun }

// RestoreCommit answers POST /repos/restore-commit.
func (d *Door) RestoreCommit(x exchange.Exchange, grant *auth.Grant) error {
	branch, by, result, err := d.restoreCommit(x, grant)
	if err != nil {
		return withResult(branch, err)
	}
	return answerCommit(x, &by, result, false)
}

func (d *Door) restoreCommit(
	x exchange.Exchange, grant *auth.Grant,
) (branch string, by engine.Actor, result engine.CommitResult, err error) {
	var request restoreJSON
	repo, by, err := d.writeJSON(x, grant, "POST /repos/restore-commit", &request)
	if request.Metadata != nil {
		branch = request.Metadata.TargetBranch
	}
	if err != nil {
		return branch, by, result, err
	}
	if request.Metadata == nil {
		return branch, by, result, badRequest("metadata is required")
	}
	restore, err := request.Metadata.restore()
	if err != nil {
		return branch, by, result, err
	}
	result, err = repo.RestoreCommit(x.Context(), by, restore)
	return branch, by, result, err
}

// restore turns metadata into a request; errors name the missing or malformed field.
func (m *restoreMetadata) restore() (engine.RestoreRequest, error) {
	space := namespace(either(m.BaseIsEphemeral, nil))              // of base_ref
	m.BaseBranch, m.BaseIsEphemeral, m.EphemeralBase = "", nil, nil // unknown here: the branch exists
	target, details, err := m.target()
	request := engine.RestoreRequest{Target: target, Details: details}
	if err != nil {
		return request, err
	}
	text, field := eitherNamed("base_ref", m.BaseRef, "target_commit_sha", m.TargetCommitSHA)
	if text == "" {
		return request, badRequest("base_ref or target_commit_sha is required")
	}
	request.Commit = commitName(text, field, "target_commit_sha", engine.FullID, space)
	return request, checkDigits(request.Commit)
}
