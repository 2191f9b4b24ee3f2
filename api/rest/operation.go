package rest

import (
	"cmp"
	"strings"

	"packhorse/api/auth"
	"packhorse/engine"
)

// operationJSON is an operation of a transaction: one of its kinds is given.
type operationJSON struct {
	Repo *string `json:"repo"`
	Auth *struct {
		Token string `json:"token"`
	} `json:"auth"`

	Commit  *commitMetadata      `json:"commit"`
	Patch   *patchOperationJSON  `json:"patch"`
	Merge   *mergeJSON           `json:"merge"`
	Pick    *pickJSON            `json:"cherry_pick"`
	Revert  *pickJSON            `json:"revert"`
	Restore *restoreMetadata     `json:"restore"`
	Branch  *branchOperationJSON `json:"branch"`
	Tag     *tagOperationJSON    `json:"tag"`
	Note    *noteRequest         `json:"note"`
}

// patchOperationJSON is a commit of a patch, which is the content of an ID.
type patchOperationJSON struct {
	commitMetadata
	ContentID string `json:"content_id"`
}

// branchOperationJSON creates, renames or deletes a branch.
type branchOperationJSON struct {
	Action string `json:"action"`
	newBranch
	NewName           string `json:"new_name"`
	ExpectedTargetSHA string `json:"expected_target_sha"`
}

// tagOperationJSON creates or deletes a tag.
type tagOperationJSON struct {
	Action      string `json:"action"`
	Name        string `json:"name"`
	Ref         string `json:"ref"`
	Ephemeral   bool   `json:"ephemeral"`
	ExpectedSHA string `json:"expected_sha"`
}

// kinds are the names of the kinds that are given, and whether one of them asks for a dry run.
func (o *operationJSON) kinds() (given []string, dry bool) {
	for _, kind := range []struct {
		name  string
		given bool
		body  func() bool
	}{
		{"commit", o.Commit != nil, func() bool { return o.Commit.DryRun }},
		{"patch", o.Patch != nil, func() bool { return o.Patch.DryRun }},
		{"merge", o.Merge != nil, func() bool { return o.Merge.DryRun }},
		{"cherry_pick", o.Pick != nil, func() bool { return o.Pick.DryRun }},
		{"revert", o.Revert != nil, func() bool { return o.Revert.DryRun }},
		{"restore", o.Restore != nil, func() bool { return o.Restore.DryRun }},
		{"branch", o.Branch != nil, func() bool { return false }},
		{"tag", o.Tag != nil, func() bool { return false }},
		{"note", o.Note != nil, func() bool { return o.Note.DryRun }},
	} {
		if kind.given {
			given, dry = append(given, kind.name), dry || kind.body()
		}
	}
	return given, dry
}

// operation turns it into one of the engine; errors name the missing or malformed field.
func (o *operationJSON) operation(d *Door, grant *auth.Grant) (engine.Operation, error) {
	given, dry := o.kinds()
	switch {
	case len(given) != 1:
		return nil, badRequest("expected one of commit, patch, merge, cherry_pick, revert, restore, branch, tag and note, "+
			"got %s", cmp.Or(strings.Join(given, " and "), "none"))
	case dry:
		return nil, badRequest("%s.dry_run: the whole transaction is a dry run, or nothing of it", given[0])
	case o.Commit != nil:
		request, err := o.Commit.upload()
		return &engine.CommitOperation{UploadRequest: request}, err
	case o.Patch != nil:
		target, details, err := o.Patch.target()
		return &engine.PatchOperation{
			PatchRequest: engine.PatchRequest{Target: target, Details: details}, ContentID: o.Patch.ContentID,
		}, err
	case o.Merge != nil:
		request, err := o.Merge.request()
		return &engine.MergeOperation{MergeRequest: request}, err
	case o.Pick != nil:
		request, err := o.Pick.request(false)
		return &engine.PickOperation{PickRequest: request}, err
	case o.Revert != nil:
		request, err := o.Revert.request(true)
		return &engine.PickOperation{PickRequest: request}, err
	case o.Restore != nil:
		request, err := o.Restore.restore()
		return &engine.RestoreOperation{RestoreRequest: request}, err
	case o.Branch != nil:
		return o.Branch.operation()
	case o.Tag != nil:
		return o.Tag.operation()
	default:
		return o.note(d, grant)
	}
}

func (b *branchOperationJSON) operation() (engine.Operation, error) {
	space := namespace(b.TargetIsEphemeral)
	expected, err := expectedID(b.ExpectedTargetSHA, "expected_target_sha")
	switch {
	case err != nil:
		return nil, err
	case b.TargetBranch == "":
		return nil, badRequest("target_branch is required")
	case b.Action == "move" && b.NewName == "":
		return nil, badRequest("new_name is required")
	case b.Action == "create" && b.BaseBranch == "" && b.BaseRef == "":
		return nil, badRequest("base_branch or base_ref is required")
	}
	switch b.Action {
	case "create":
		return &engine.CreateBranchOperation{
			CreateBranchRequest: b.creation(), Expected: expected,
		}, nil
	case "move":
		return &engine.RenameBranchOperation{Namespace: space, From: b.TargetBranch, To: b.NewName, Expected: expected}, nil
	case "delete":
		return &engine.DeleteRefOperation{Namespace: space, Name: b.TargetBranch, Expected: expected}, nil
	default:
		return nil, badRequest("action: expected create, move or delete, got %.40q", b.Action)
	}
}

func (t *tagOperationJSON) operation() (engine.Operation, error) {
	space := namespace(t.Ephemeral)
	expected, err := expectedID(t.ExpectedSHA, "expected_sha")
	switch {
	case err != nil:
		return nil, err
	case t.Name == "":
		return nil, badRequest("name is required")
	case t.Action == "create" && t.Ref == "":
		return nil, badRequest("ref is required")
	case t.Action == "create" && expected != nil:
		return nil, badRequest("expected_sha: a tag that is created is not there")
	}
	switch t.Action {
	case "create":
		target := commitName(t.Ref, "ref", "", 0, space)
		return &engine.CreateTagOperation{Namespace: space, Name: t.Name, Target: target}, nil
	case "delete":
		return &engine.DeleteRefOperation{Namespace: space, Name: t.Name, Tag: true, Expected: expected}, nil
	default:
		return nil, badRequest("action: expected create or delete, got %.40q", t.Action)
	}
}

func (o *operationJSON) note(d *Door, grant *auth.Grant) (engine.Operation, error) {
	target, err := d.noteChange(grant, o.Note)
	note := &engine.NoteOperation{Target: target, Text: o.Note.Note}
	switch {
	case err != nil:
		return nil, err
	case o.Note.Action == "delete":
		note.Delete = true
		return note, nil
	case o.Note.Note == "":
		return nil, badRequest("note is required")
	}
	switch o.Note.Action {
	case "", "add":
	case "append":
		note.Append = true
	default:
		return nil, badRequest("action: expected add, append or delete, got %.40q", o.Note.Action)
	}
	return note, nil
}

// changedBranchJSON is the result of an operation on a branch.
type changedBranchJSON struct {
	Message           string `json:"message"`
	TargetBranch      string `json:"target_branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	CommitSHA         string `json:"commit_sha,omitempty"`
}

// changedTagJSON is the result of an operation on a tag.
type changedTagJSON struct {
	Name    string `json:"name"`
	SHA     string `json:"sha,omitempty"`
	Message string `json:"message"`
}

// result renders an outcome under the name of the operation, in the form of the call for it.
func (o *operationJSON) result(outcome *engine.Outcome) map[string]any {
	switch {
	case o.Commit != nil:
		return map[string]any{"commit": commitResultOf(*outcome.Commit, true)}
	case o.Patch != nil:
		return map[string]any{"patch": commitResultOf(*outcome.Commit, true)}
	case o.Restore != nil:
		return map[string]any{"restore": commitResultOf(*outcome.Commit, true)}
	case o.Merge != nil:
		return map[string]any{"merge": o.Merge.result(outcome.Merge)}
	case o.Pick != nil:
		return map[string]any{"cherry_pick": o.Pick.result(outcome.Pick)}
	case o.Revert != nil:
		return map[string]any{"revert": o.Revert.result(outcome.Pick)}
	case o.Tag != nil && outcome.Tag != nil:
		return map[string]any{"tag": changedTagJSON{o.Tag.Name, outcome.Tag.Commit.String(), "tag created"}}
	case o.Tag != nil:
		return map[string]any{"tag": changedTagJSON{Name: o.Tag.Name, Message: "tag deleted"}}
	case o.Note != nil:
		message := "note added"
		if o.Note.Action == "delete" {
			message = "note deleted"
		}
		return map[string]any{"note": noteResultOf(*outcome.Note, message)}
	}
	told := changedBranchJSON{
		TargetBranch: o.Branch.TargetBranch, TargetIsEphemeral: o.Branch.TargetIsEphemeral, Message: "branch deleted",
	}
	switch {
	case outcome.Branch != nil:
		told.CommitSHA, told.Message = outcome.Branch.Tip.String(), branchMessage(outcome.Branch)
	case outcome.Renamed != nil:
		told.CommitSHA, told.Message, told.TargetBranch = outcome.Renamed.Tip.String(), "branch renamed", o.Branch.NewName
	}
	return map[string]any{"branch": told}
}
