package rest

import (
	"cmp"
	"errors"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/pack/object"
	"packhorse/refs"
)

// mergeJSON is the body of POST /repos/merge.
type mergeJSON struct {
	SourceRef         *string        `json:"source_ref"`
	SourceBranch      *string        `json:"source_branch"` // older
	SourceIsEphemeral bool           `json:"source_is_ephemeral"`
	TargetBranch      string         `json:"target_branch"`
	TargetIsEphemeral bool           `json:"target_is_ephemeral"`
	Strategy          string         `json:"strategy"`
	Squash            bool           `json:"squash"`
	ExpectedTargetSHA string         `json:"expected_target_sha"`
	CommitMessage     string         `json:"commit_message"`
	Author            *commit.Person `json:"author"`
	Committer         *commit.Person `json:"committer"`
	AllowUnrelated    bool           `json:"allow_unrelated_histories"`
	PreviewToken      string         `json:"preview_token"`
	Resolutions       []resolution   `json:"resolutions"`
	dryRun
}

// mergedBranch is one of the branches of a merge, in its answer.
type mergedBranch struct {
	Ref       string `json:"ref,omitempty"` // of the source
	Branch    string `json:"branch"`
	Ephemeral bool   `json:"ephemeral"`
	SHA       string `json:"sha,omitempty"`
	OldSHA    string `json:"old_sha,omitempty"`
	NewSHA    string `json:"new_sha,omitempty"`
}

// mergeResultJSON is the answer to a merge: docs/api.md, "Merging".
type mergeResultJSON struct {
	Result          engine.MergeKind `json:"result"`
	CommitSHA       string           `json:"commit_sha"`
	TreeSHA         string           `json:"tree_sha"`
	Source          mergedBranch     `json:"source"`
	Target          mergedBranch     `json:"target"`
	MergeBaseSHA    string           `json:"merge_base_sha,omitempty"`
	PromotedCommits int              `json:"promoted_commits"`
}

// Merge answers POST /repos/merge.
func (d *Door) Merge(x exchange.Exchange, grant *auth.Grant) error {
	var body mergeJSON
	repo, by, err := d.writeJSON(x, grant, "POST /repos/merge", &body)
	if err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	if repo, err = repo.Imported(x.Context()); err != nil {
		return err
	}
	outcome, err := repo.Merge(x.Context(), by, request)
	if err != nil {
		return withConflictType(err)
	}
	if outcome.Kind == engine.MergeConflicted {
		return mergeConflict(&outcome)
	}
	return answerWrite(x, &by, http.StatusOK, outcome.Sequence, body.result(&outcome))
}

// result is the answer to a merge.
func (m *mergeJSON) result(outcome *engine.MergeOutcome) mergeResultJSON {
	source := mergeSource(m.SourceRef, m.SourceBranch, m.SourceIsEphemeral).Text
	return mergeResultJSON{
		Result:    outcome.Kind,
		CommitSHA: outcome.Commit.String(),
		TreeSHA:   outcome.Tree.String(),
		Source: mergedBranch{
			Ref: source, Branch: source, Ephemeral: m.SourceIsEphemeral, SHA: outcome.Source.String(),
		},
		Target: mergedBranch{
			Branch: m.TargetBranch, Ephemeral: m.TargetIsEphemeral, OldSHA: outcome.Old.String(),
			NewSHA: outcome.Commit.String(),
		},
		MergeBaseSHA:    shaOrNone(outcome.Base),
		PromotedCommits: outcome.Promoted,
	}
}

// request turns the body into a request; errors name the missing or malformed field.
func (m *mergeJSON) request() (engine.MergeRequest, error) {
	preview, err := m.preview()
	if err != nil {
		return engine.MergeRequest{}, err
	}
	request := engine.MergeRequest{
		Preview:   preview,
		Source:    mergeSource(m.SourceRef, m.SourceBranch, m.SourceIsEphemeral),
		Target:    engine.MergeBranch{Name: m.TargetBranch, Namespace: namespace(m.TargetIsEphemeral)},
		Strategy:  engine.MergeStrategy(m.Strategy),
		Squash:    m.Squash,
		Details:   engine.CommitDetails{Message: m.CommitMessage},
		Unrelated: m.AllowUnrelated,
	}
	for _, required := range []struct{ field, value string }{
		{"source_ref or source_branch", request.Source.Text}, {"target_branch", m.TargetBranch}, {"strategy", m.Strategy},
	} {
		if required.value == "" {
			return request, badRequest("%s is required", required.field)
		}
	}
	if m.Author != nil {
		request.Details.Author = *m.Author
	}
	if m.Committer != nil {
		request.Details.Committer = *m.Committer
	}
	if request.Resolutions, err = resolutions(m.Resolutions); err != nil {
		return request, err
	}
	request.Expected, err = expectedID(m.ExpectedTargetSHA, "expected_target_sha")
	return request, err
}

// preview reads the token of a preview, nil without one, and fills in what it says. What the body
// says beside it must be the same.
func (m *mergeJSON) preview() (*engine.PreviewToken, error) {
	if m.PreviewToken == "" {
		return nil, nil
	}
	p, err := engine.ParsePreviewToken(m.PreviewToken)
	if err != nil {
		return nil, err
	}
	source := mergeSource(m.SourceRef, m.SourceBranch, m.SourceIsEphemeral)
	if said := source.Text; said != "" && said != p.Source.Text {
		return nil, badRequest("%s: preview_token is of %.100q, not of %.100q", source.Field, p.Source.Text, said)
	}
	if said := m.TargetBranch; said != "" && said != p.Target.Name {
		return nil, badRequest("target_branch: preview_token is of %.100q, not of %.100q", p.Target.Name, said)
	}
	m.SourceRef, m.SourceBranch = &p.Source.Text, nil
	if p.Source.Kind == engine.BranchName {
		m.SourceRef, m.SourceBranch = nil, &p.Source.Text
	}
	m.SourceIsEphemeral = p.Source.Namespace == refs.Ephemeral
	m.TargetBranch, m.TargetIsEphemeral = p.Target.Name, p.Target.Namespace == refs.Ephemeral
	m.Strategy = cmp.Or(m.Strategy, string(engine.PreferForward))
	return p, nil
}

// mergeSource is the source of a merge.
func mergeSource(ref, branch *string, ephemeral bool) engine.CommitName {
	text, by := eitherNamed("source_ref", ref, "source_branch", branch)
	return commitName(text, by, "source_branch", engine.BranchName, namespace(ephemeral))
}

// mergeConflict is the refusal of branches that cannot be merged.
func mergeConflict(outcome *engine.MergeOutcome) error {
	return problem.With(
		&exchange.Error{Status: http.StatusConflict, Code: code.MergeConflict, Message: "the branches conflict"},
		conflictFields(outcome))
}

func conflictFields(outcome *engine.MergeOutcome) map[string]any {
	fields := map[string]any{"conflict_type": "merge_conflict", "conflict_paths": engine.ConflictPaths(outcome.Conflicts)}
	if !outcome.Base.IsZero() {
		fields["merge_base_sha"] = outcome.Base.String()
	}
	addUnresolvable(fields, outcome.Conflicts)
	return fields
}

// withConflictType adds the type of the conflict to an error for a target that has moved, or a
// merge that is not as it was shown.
func withConflictType(err error) error {
	if errors.Is(err, engine.ErrNoConflict) {
		return problem.With(err, map[string]any{"conflict_type": "no_such_conflict", "conflict_paths": []string{}})
	}
	stale, ok := errors.AsType[*engine.StaleError](err)
	if !ok {
		return err
	}
	kind := "target_moved"
	switch stale.Of {
	case engine.StaleSource:
		kind = "source_moved"
	case engine.StaleResult:
		kind = "result_changed"
	case engine.StaleTarget:
	}
	return problem.With(err, map[string]any{"conflict_type": kind, "conflict_paths": []string{}})
}

// shaOrNone is "" for the zero ID.
func shaOrNone(id object.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
