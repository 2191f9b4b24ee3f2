package rest

import (
	"context"
	"errors"
	"io"
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

// noteRequest is the body of the calls that change notes.
type noteRequest struct {
	ObjectRef           *string        `json:"object_ref"`
	SHA                 *string        `json:"sha"` // older
	Action              string         `json:"action"`
	Note                string         `json:"note"`
	Author              *commit.Person `json:"author"`
	ExpectedNotesRefSHA *string        `json:"expected_notes_ref_sha"`
	ExpectedRefSHA      *string        `json:"expected_ref_sha"` // older
	NotesRef            *string        `json:"notes_ref"`
	Ref                 *string        `json:"ref"` // older
	Ephemeral           bool           `json:"ephemeral"`
	dryRun
}

// noteResultJSON is the answer to a change of notes: docs/api.md, "Notes".
type noteResultJSON struct {
	SHA        string     `json:"sha"`
	NotesRef   string     `json:"notes_ref"`
	TargetRef  string     `json:"target_ref"` // older
	BaseCommit string     `json:"base_commit,omitempty"`
	NewRefSHA  string     `json:"new_ref_sha"`
	Result     resultJSON `json:"result"`
}

// resultJSON is the result of a change of notes.
type resultJSON struct {
	Success bool   `json:"success"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// Note answers GET /repos/notes.
func (d *Door) Note(x exchange.Exchange, grant *auth.Grant) error {
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	about, by := parameter(x, "object_ref", "sha")
	ref, _ := parameter(x, "notes_ref", "ref")
	target, err := d.noteTarget(grant, commitName(about, by, "sha", engine.FullID, space), ref)
	if err != nil {
		return err
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	note, err := repo.Note(x.Context(), target)
	if err != nil {
		return err
	}
	return answerStream(x, http.StatusOK, len(note.Text) < streamBytes, func(_ context.Context, w io.Writer) error {
		out := newJSONStream(w)
		out.raw("{")
		out.textField("sha", note.Commit.String())
		out.textField("note", note.Text)
		out.textField("ref_sha", note.Tip.String())
		out.raw("}\n")
		return out.end()
	})
}

// AddNote answers POST /repos/notes.
func (d *Door) AddNote(x exchange.Exchange, grant *auth.Grant) error {
	var request noteRequest
	repo, by, err := d.writeJSON(x, grant, "POST /repos/notes", &request)
	if err != nil {
		return err
	}
	target, err := d.noteChange(grant, &request)
	if err != nil {
		return err
	}
	toExisting := false
	switch request.Action {
	case "", "add":
	case "append":
		toExisting = true
	default:
		return badRequest("action: expected add or append, got %.40q", request.Action)
	}
	if request.Note == "" {
		return badRequest("note is required")
	}
	result, err := repo.AddNote(x.Context(), by, target, request.Note, toExisting)
	if err != nil {
		return withNoteResult(target, result.Commit, err)
	}
	return answerWrite(x, &by, http.StatusCreated, result.Sequence, noteResultOf(result, "note added"))
}

// DeleteNote answers DELETE /repos/notes.
func (d *Door) DeleteNote(x exchange.Exchange, grant *auth.Grant) error {
	var request noteRequest
	repo, by, err := d.writeJSON(x, grant, "DELETE /repos/notes", &request)
	if err != nil {
		return err
	}
	target, err := d.noteChange(grant, &request)
	if err != nil {
		return err
	}
	result, err := repo.DeleteNote(x.Context(), by, target)
	if err != nil {
		return withNoteResult(target, result.Commit, err)
	}
	return answerWrite(x, &by, http.StatusOK, result.Sequence, noteResultOf(result, "note deleted"))
}

// NotesRefs answers GET /repos/notes/refs.
func (d *Door) NotesRefs(x exchange.Exchange, grant *auth.Grant) error {
	if !d.customNotes(grant) {
		return errCustomNotes
	}
	limit, err := limitOf(x, limitDefault, limitMax)
	if err != nil {
		return err
	}
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	prefix, err := engine.NotesPrefix(x.Query().Get("prefix"))
	if err != nil {
		return malformed(code.InvalidRefName, "prefix: %v", err)
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	page, err := repo.NotesRefs(x.Context(), space, prefix, x.Query().Get("cursor"), limit)
	if err != nil {
		return err
	}
	type refJSON struct {
		Cursor string `json:"cursor"`
		Ref    string `json:"ref"`
		SHA    string `json:"sha"`
	}
	list := struct {
		Refs       []refJSON `json:"refs"`
		Prefix     string    `json:"prefix"`
		NextCursor string    `json:"next_cursor,omitempty"`
		HasMore    bool      `json:"has_more"`
	}{Refs: []refJSON{}, Prefix: prefix, NextCursor: page.Next, HasMore: page.Next != ""}
	for _, ref := range page.Items {
		list.Refs = append(list.Refs, refJSON{Cursor: ref.Cursor, Ref: ref.Name, SHA: ref.Tip.String()})
	}
	return answer(x, http.StatusOK, list)
}

var errCustomNotes = malformed(code.NotEnabled, "custom notes refs are not enabled")

// customNotes reports whether the organization has notes refs beside the default one: it has,
// unless it switched them off.
func (d *Door) customNotes(grant *auth.Grant) bool {
	config, ok := d.orgConfig(grant.Org)
	return !ok || config.CustomNotesRefs
}

// noteTarget reads the target of a note.
func (d *Door) noteTarget(grant *auth.Grant, about engine.CommitName, ref string) (engine.NoteTarget, error) {
	target := engine.NoteTarget{Namespace: about.Namespace, Object: about}
	if about.Text == "" {
		return target, badRequest("object_ref or sha is required")
	}
	err := checkDigits(about)
	if err != nil {
		return target, err
	}
	if target.Ref, err = engine.NotesRef(ref); err != nil {
		return target, err
	}
	if target.Ref != engine.DefaultNotesRef && !d.customNotes(grant) {
		return target, errCustomNotes
	}
	return target, nil
}

// noteChange reads which note to change, the author and the expectation.
func (d *Door) noteChange(grant *auth.Grant, request *noteRequest) (engine.NoteTarget, error) {
	about, by := eitherNamed("object_ref", request.ObjectRef, "sha", request.SHA)
	target, err := d.noteTarget(grant,
		commitName(about, by, "sha", engine.FullID, namespace(request.Ephemeral)), either(request.NotesRef, request.Ref))
	if err != nil {
		return target, err
	}
	if request.Author != nil {
		if reason := request.Author.Check(); reason != "" {
			return target, badRequest("author: %s", reason)
		}
		target.Author = *request.Author
	}
	target.Expected, err = expectedID(
		eitherNamed("expected_notes_ref_sha", request.ExpectedNotesRefSHA, "expected_ref_sha", request.ExpectedRefSHA))
	return target, err
}

func noteResultOf(r engine.NoteResult, message string) noteResultJSON {
	told := noteResultJSON{
		SHA: r.Commit.String(), NotesRef: r.Ref, TargetRef: r.Ref, NewRefSHA: r.New.String(),
		Result: resultJSON{Success: true, Status: "ok", Message: message},
	}
	if !r.Old.IsZero() {
		told.BaseCommit = r.Old.String()
	}
	return told
}

// withNoteResult adds to a conflict of a change of notes the result in the form that client
// libraries expect.
func withNoteResult(target engine.NoteTarget, about object.ID, err error) error {
	p := problem.From(err)
	if p.Status != http.StatusConflict {
		return err
	}
	fields := map[string]any{
		"sha": about.String(), "notes_ref": target.Ref, "target_ref": target.Ref, "new_ref_sha": "",
	}
	result := resultJSON{Status: commitStatus(p.Status), Message: p.Message}
	if stale, ok := errors.AsType[*refs.StaleError](err); ok {
		result.Status = "precondition_failed"
		if !stale.Actual.IsZero() {
			fields["base_commit"] = stale.Actual.String()
		}
	}
	fields["result"] = result
	return problem.With(err, fields)
}
