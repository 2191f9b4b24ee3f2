package rest

import (
	"fmt"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/engine/commit"
)

// pickJSON is the body of POST /repos/cherry-pick and of POST /repos/revert.
type pickJSON struct {
	Commits           []string       `json:"commits"`
	SourceIsEphemeral bool           `json:"source_is_ephemeral"`
	TargetBranch      string         `json:"target_branch"`
	TargetIsEphemeral bool           `json:"target_is_ephemeral"`
	ExpectedTargetSHA string         `json:"expected_target_sha"`
	Mainline          *int           `json:"mainline"`
	Empty             string         `json:"empty"`
	MessageLine       bool           `json:"message_line"` // of cherry-pick
	Author            *commit.Person `json:"author"`
	Committer         *commit.Person `json:"committer"`
	Resolutions       []resolution   `json:"resolutions"`
	dryRun
}

// pickResultJSON is the answer to both: docs/api.md, "Merging".
type pickResultJSON struct {
	Result    engine.PickKind `json:"result"`
	CommitSHA string          `json:"commit_sha"`
	TreeSHA   string          `json:"tree_sha"`
	Target    mergedBranch    `json:"target"`
	Commits   []pickedJSON    `json:"commits"`
}

type pickedJSON struct {
	SourceSHA string `json:"source_sha"`
	CommitSHA string `json:"commit_sha,omitempty"`
}

// CherryPick answers POST /repos/cherry-pick.
func (d *Door) CherryPick(x exchange.Exchange, grant *auth.Grant) error {
	return d.pick(x, grant, "POST /repos/cherry-pick", false)
}

// Revert answers POST /repos/revert.
func (d *Door) Revert(x exchange.Exchange, grant *auth.Grant) error {
	return d.pick(x, grant, "POST /repos/revert", true)
}

func (d *Door) pick(x exchange.Exchange, grant *auth.Grant, endpoint string, revert bool) error {
	var body pickJSON
	repo, by, err := d.writeJSON(x, grant, endpoint, &body)
	if err != nil {
		return err
	}
	request, err := body.request(revert)
	if err != nil {
		return err
	}
	if repo, err = repo.Imported(x.Context()); err != nil {
		return err
	}
	outcome, err := repo.Pick(x.Context(), by, request)
	if err != nil {
		return withConflictType(err)
	}
	if outcome.Kind == engine.PickConflicted || outcome.Kind == engine.PickEmpty {
		return pickConflict(&outcome)
	}
	return answerWrite(x, &by, http.StatusOK, outcome.Sequence, body.result(&outcome))
}

// result is the answer to a cherry-pick or a revert.
func (p *pickJSON) result(outcome *engine.PickOutcome) pickResultJSON {
	told := pickResultJSON{
		Result: outcome.Kind, CommitSHA: outcome.Commit.String(), TreeSHA: outcome.Tree.String(),
		Target: mergedBranch{
			Branch: p.TargetBranch, Ephemeral: p.TargetIsEphemeral, OldSHA: outcome.Old.String(),
			NewSHA: outcome.Commit.String(),
		},
	}
	for _, done := range outcome.Done {
		told.Commits = append(told.Commits, pickedJSON{done.Source.String(), shaOrNone(done.Commit)})
	}
	return told
}

// request turns the body into a request; errors name the missing or malformed field.
func (p *pickJSON) request(revert bool) (engine.PickRequest, error) {
	request := engine.PickRequest{
		Revert: revert,
		Target: engine.MergeBranch{Name: p.TargetBranch, Namespace: namespace(p.TargetIsEphemeral)},
		Origin: p.MessageLine && !revert,
		Empty:  engine.EmptyPick(p.Empty),
	}
	switch {
	case len(p.Commits) == 0:
		return request, badRequest("commits is required: at least one revision")
	case p.TargetBranch == "":
		return request, badRequest("target_branch is required")
	case !revert && p.Committer == nil && p.Author == nil:
		return request, badRequest("committer is required")
	case p.Mainline != nil && *p.Mainline < 1:
		return request, badRequest("mainline: expected the number of a parent, from 1 on, got %d", *p.Mainline)
	}
	for i, text := range p.Commits {
		field := fmt.Sprintf("commits[%d]", i)
		if text == "" {
			return request, badRequest("%s: expected a revision, got none", field)
		}
		request.Commits = append(request.Commits,
			engine.CommitName{Text: text, Namespace: namespace(p.SourceIsEphemeral), Field: field})
	}
	if p.Mainline != nil {
		request.Mainline = *p.Mainline
	}
	if p.Author != nil {
		request.Author = *p.Author
	}
	if p.Committer != nil {
		request.Committer = *p.Committer
	}
	var err error
	if request.Resolutions, err = resolutions(p.Resolutions); err != nil {
		return request, err
	}
	request.Expected, err = expectedID(p.ExpectedTargetSHA, "expected_target_sha")
	return request, err
}

// pickConflict is the refusal of a commit that could not be picked.
func pickConflict(outcome *engine.PickOutcome) error {
	return problem.With(&engine.ConflictError{Pick: outcome}, pickFields(outcome))
}

func pickFields(outcome *engine.PickOutcome) map[string]any {
	kind := "merge_conflict"
	if outcome.Kind == engine.PickEmpty {
		kind = "empty"
	}
	fields := map[string]any{
		"conflict_type": kind, "conflict_paths": engine.ConflictPaths(outcome.Conflicts), "commit_index": outcome.Failed,
		"commit_sha": outcome.Done[outcome.Failed].Source.String(),
	}
	addUnresolvable(fields, outcome.Conflicts)
	return fields
}
