package rest

import (
	"fmt"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/commit"
)

// landJSON is the body of POST /repos/land.
type landJSON struct {
	TargetBranch      string         `json:"target_branch"`
	TargetIsEphemeral bool           `json:"target_is_ephemeral"`
	Sources           []landSource   `json:"sources"`
	ExpectedTargetSHA string         `json:"expected_target_sha"`
	StopOnConflict    bool           `json:"stop_on_conflict"`
	Author            *commit.Person `json:"author"`
	Committer         *commit.Person `json:"committer"`
	dryRun
}

type landSource struct {
	Ref         string `json:"ref"`
	IsEphemeral bool   `json:"is_ephemeral"`
	Message     string `json:"message"`
	Squash      bool   `json:"squash"`
}

// landResultJSON is the answer: docs/api.md, "Merging".
type landResultJSON struct {
	CommitSHA string       `json:"commit_sha"`
	TreeSHA   string       `json:"tree_sha"`
	Target    mergedBranch `json:"target"`
	Sources   []landedJSON `json:"sources"`
}

type landedJSON struct {
	Ref           string          `json:"ref"`
	SHA           string          `json:"sha"`
	Result        engine.LandKind `json:"result"`
	Code          code.Code       `json:"code,omitempty"`
	CommitSHA     string          `json:"commit_sha,omitempty"`
	ConflictPaths []string        `json:"conflict_paths,omitempty"`
	Clashes       []clashJSON     `json:"clashes,omitempty"`
}

type clashJSON struct {
	With      string   `json:"with"`
	Index     *int     `json:"index,omitempty"`
	Ref       string   `json:"ref,omitempty"`
	CommitSHA string   `json:"commit_sha,omitempty"`
	Paths     []string `json:"paths"`
}

// Land answers POST /repos/land.
func (d *Door) Land(x exchange.Exchange, grant *auth.Grant) error {
	var body landJSON
	repo, by, err := d.writeJSON(x, grant, "POST /repos/land", &body)
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
	outcome, err := repo.Land(x.Context(), by, request)
	if err != nil {
		return withConflictType(err)
	}
	told := landResultJSON{
		CommitSHA: outcome.Commit.String(), TreeSHA: outcome.Tree.String(),
		Target: mergedBranch{
			Branch: body.TargetBranch, Ephemeral: body.TargetIsEphemeral, OldSHA: outcome.Old.String(),
			NewSHA: outcome.Commit.String(),
		},
	}
	for i := range outcome.Sources {
		told.Sources = append(told.Sources, body.landed(i, &outcome.Sources[i]))
	}
	return answerWrite(x, &by, http.StatusOK, outcome.Sequence, told)
}

// landed tells what became of a source.
func (l *landJSON) landed(index int, s *engine.Landed) landedJSON {
	told := landedJSON{
		Ref: l.Sources[index].Ref, SHA: s.Source.String(), Result: s.Kind, CommitSHA: shaOrNone(s.Commit),
		ConflictPaths: s.Paths,
	}
	switch s.Kind { // as the merge of that source alone is refused
	case engine.LandConflicted:
		told.Code = code.MergeConflict
	case engine.LandUnrelated:
		told.Code = code.UnrelatedHistories
	default:
	}
	for _, c := range s.Clashes {
		clash := clashJSON{With: "target", CommitSHA: shaOrNone(c.Commit), Paths: c.Paths}
		if !c.Target {
			clash.With, clash.Index, clash.Ref = "source", &c.Index, l.Sources[c.Index].Ref
		}
		told.Clashes = append(told.Clashes, clash)
	}
	return told
}

// request turns the body into a request; errors name the missing or malformed field.
func (l *landJSON) request() (engine.LandRequest, error) {
	request := engine.LandRequest{
		Target:         engine.MergeBranch{Name: l.TargetBranch, Namespace: namespace(l.TargetIsEphemeral)},
		StopOnConflict: l.StopOnConflict,
	}
	if l.TargetBranch == "" {
		return request, badRequest("target_branch is required")
	}
	if len(l.Sources) == 0 {
		return request, badRequest("sources is required: at least one with a ref")
	}
	for i, s := range l.Sources {
		field := fmt.Sprintf("sources[%d].ref", i)
		if s.Ref == "" {
			return request, badRequest("%s is required", field)
		}
		request.Sources = append(request.Sources, engine.LandSource{
			Source:  engine.CommitName{Text: s.Ref, Namespace: namespace(s.IsEphemeral), Field: field},
			Message: s.Message, Squash: s.Squash,
		})
	}
	if l.Author != nil {
		request.Author = *l.Author
	}
	if l.Committer != nil {
		request.Committer = *l.Committer
	}
	var err error
	request.Expected, err = expectedID(l.ExpectedTargetSHA, "expected_target_sha")
	return request, err
}
