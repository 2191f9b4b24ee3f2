package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// ChangeNote has the fields of both changes of notes.
type ChangeNote struct {
	ObjectRef           string  `json:"object_ref" schema:"required" jsonschema:"the commit: a full id, or another revision"`
	SHA                 string  `json:"sha" schema:"ObjectID,older=object_ref"`
	NotesRef            string  `json:"notes_ref" schema:"default=refs/notes/commits" jsonschema:"reviews, notes/reviews and refs/notes/reviews are the same"`
	Ref                 string  `json:"ref" schema:"older=notes_ref"`
	Ephemeral           bool    `json:"ephemeral" jsonschema:"its namespace"`
	Author              *Person `json:"author" jsonschema:"by default the token's sub, or else the organization"`
	ExpectedNotesRefSHA string  `json:"expected_notes_ref_sha" schema:"Expected" jsonschema:"the tip that the notes ref must have; 40 zeros if it must not exist"`
	ExpectedRefSHA      string  `json:"expected_ref_sha" schema:"Expected,older=expected_notes_ref_sha"`
	Rehearsal
}

// AddNote is the body that adds a note.
type AddNote struct {
	ChangeNote
	Note   string `json:"note" schema:"required" jsonschema:"the text; it is cleaned up as by git notes add"`
	Action string `json:"action" schema:"enum=add|append,default=add" jsonschema:"add is 409 if there is a note; append adds the text to it"`
}

// DeleteNote is the body that deletes a note.
type DeleteNote struct {
	ChangeNote
}

// ChangedNote is the answer to a change of notes.
type ChangedNote struct {
	SHA        string     `json:"sha" schema:"ObjectID" jsonschema:"the commit"`
	NotesRef   string     `json:"notes_ref"`
	TargetRef  string     `json:"target_ref" schema:"older=notes_ref"`
	BaseCommit string     `json:"base_commit,omitempty" schema:"ObjectID" jsonschema:"the ref's tip before, if there was one"`
	NewRefSHA  string     `json:"new_ref_sha" schema:"MaybeID" jsonschema:"its tip now; empty in an error"`
	Result     NoteResult `json:"result"`
	Rehearsed
}

// NoteResult is the result of a change of notes.
type NoteResult struct {
	Success bool   `json:"success"`
	Status  string `json:"status" schema:"enum=ok|conflict|precondition_failed"`
	Message string `json:"message,omitempty"`
}

// NoteConflict is the error of a change of notes that conflicts.
type NoteConflict struct {
	Failure
	SHA        string     `json:"sha" schema:"optional" jsonschema:"as requested"`
	NotesRef   string     `json:"notes_ref" schema:"optional"`
	TargetRef  string     `json:"target_ref" schema:"optional,older=notes_ref"`
	BaseCommit string     `json:"base_commit,omitempty" schema:"ObjectID" jsonschema:"the ref's tip, if a guard met another one"`
	NewRefSHA  string     `json:"new_ref_sha" schema:"optional" jsonschema:"empty"`
	Result     NoteResult `json:"result" schema:"optional"`
}

// Note is a note.
type Note struct {
	SHA    string `json:"sha" schema:"ObjectID" jsonschema:"the commit"`
	Note   string `json:"note" jsonschema:"without line ends at its end"`
	RefSHA string `json:"ref_sha" schema:"ObjectID" jsonschema:"the tip of the notes ref"`
}

// NotesRefList is a page of notes refs.
type NotesRefList struct {
	Refs   []ListedNotesRef `json:"refs"`
	Prefix string           `json:"prefix" jsonschema:"in full"`
	Page
}

// ListedNotesRef is a notes ref in a listing.
type ListedNotesRef struct {
	Cursor string `json:"cursor"`
	Ref    string `json:"ref"`
	SHA    string `json:"sha" schema:"ObjectID"`
}

func noteCalls() []call {
	const (
		commitID = "7e0b46a13ca26dd703ee7b47673cd04387447f50"
		changed  = `{"sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "notes_ref": "refs/notes/commits",
 "target_ref": "refs/notes/commits", "new_ref_sha": "ef7af9ea4f70379685771140277ef82676bc42ef",
 "result": {"success": true, "status": "ok", "message": "note added"}}`
	)
	namespace := flag("ephemeral", "The namespace of the notes ref.")
	conflict := openapi.Error{
		Status: http.StatusConflict, Type: NoteConflict{},
		Description: "There is a note already, the notes ref has not the expected tip.",
	}
	return []call{
		{
			v1: "/repos/notes", path: "/repos/{n}/notes", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "note", Group: notes,
				Summary: "reads the note of a commit",
				Parameters: query(
					openapi.Parameter{
						Name: "object_ref", Older: "sha", Required: true, Example: commitID,
						Description: "The commit: a full id, or another revision.",
					},
					openapi.Parameter{
						Name: "notes_ref", Older: "ref", Schema: "default=refs/notes/commits",
						Description: "`reviews`, `notes/reviews` and `refs/notes/reviews` are the same.",
					},
					namespace,
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The note.", Type: Note{},
					Example: `{"sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "note": "Looks good.",
 "ref_sha": "ef7af9ea4f70379685771140277ef82676bc42ef"}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "There is no note, or the repository does not exist.")},
			},
		},
		{
			v1: "/repos/notes", path: "/repos/{n}/notes", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "addNote", Group: notes,
				Summary: "adds a note, or appends to one",
				Body: &openapi.Body{
					Type: AddNote{}, Example: `{"object_ref": "` + commitID + `", "note": "Looks good."}`,
				},
				Answers: []openapi.Answer{{
					Status: http.StatusCreated, Description: "The note is there.", Type: ChangedNote{}, Example: changed,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The commit, or the repository, does not exist."), conflict},
			},
		},
		{
			v1: "/repos/notes", path: "/repos/{n}/notes", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "deleteNote", Group: notes,
				Summary:     "deletes a note",
				Description: "The commit need not exist any more.",
				Body:        &openapi.Body{Type: DeleteNote{}, Example: `{"object_ref": "` + commitID + `"}`},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The note is gone.", Type: ChangedNote{}, Example: changed,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "There is no note, or the repository does not exist."), conflict},
			},
		},
		{
			v1: "/repos/notes/refs", path: "/repos/{n}/notes/refs", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "notesRefs", Group: notes,
				Summary:     "lists notes refs",
				Description: "Sorted by name in byte order.",
				Parameters: query(
					openapi.Parameter{Name: "prefix", Description: "In the forms of `notes_ref`."}, namespace, cursor, limit(20, 100),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "A page of notes refs.", Type: NotesRefList{},
					Example: `{"refs": [{"cursor": "b3JlZnMvbm90ZXMvY29tbWl0cw", "ref": "refs/notes/commits",
   "sha": "ef7af9ea4f70379685771140277ef82676bc42ef"}], "prefix": "refs/notes/", "has_more": false}`,
				}},
			},
		},
	}
}
