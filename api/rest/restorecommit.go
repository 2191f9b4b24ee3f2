package rest

import (
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// restoreMetadata has the fields of restore-commit beside those of all commits.
type restoreMetadata struct {
	commitMetadata
	TargetCommitSHA string `json:"target_commit_sha"`
}

// RestoreCommit answers POST /repos/restore-commit.
func (d *Door) RestoreCommit(x exchange.Exchange, grant *auth.Grant) error {
	branch, result, err := d.restoreCommit(x, grant)
	if err != nil {
		return withResult(branch, err)
	}
	return answerCommit(x, result, false)
}

func (d *Door) restoreCommit(
	x exchange.Exchange, grant *auth.Grant,
) (branch string, result engine.CommitResult, err error) {
	var request struct {
		Metadata *restoreMetadata `json:"metadata"`
	}
	repo, by, err := d.writeJSON(x, grant, "POST /repos/restore-commit", &request)
	if request.Metadata != nil {
		branch = request.Metadata.TargetBranch
	}
	if err != nil {
		return branch, result, err
	}
	if request.Metadata == nil {
		return branch, result, badRequest("metadata is required")
	}
	restore, err := request.Metadata.restore()
	if err != nil {
		return branch, result, err
	}
	result, err = repo.RestoreCommit(x.Context(), by, restore)
	return branch, result, err
}

// restore turns metadata into a request; errors name the missing or malformed field.
func (m *restoreMetadata) restore() (engine.RestoreRequest, error) {
	m.BaseBranch, m.BaseIsEphemeral, m.EphemeralBase = "", nil, nil // unknown here: the branch exists
	target, details, err := m.target()
	request := engine.RestoreRequest{Target: target, Details: details}
	if err != nil {
		return request, err
	}
	if m.TargetCommitSHA == "" {
		return request, badRequest("target_commit_sha is required")
	}
	request.Commit = engine.CommitName{Text: m.TargetCommitSHA, Kind: engine.FullID, Field: "target_commit_sha"}
	if _, err = object.ParseID(m.TargetCommitSHA); err != nil {
		return request, badRequest("target_commit_sha: expected 40 lower-case hexadecimal digits, got %.60q",
			m.TargetCommitSHA)
	}
	return request, nil
}
