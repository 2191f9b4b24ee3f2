package rest

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// undoneRefJSON is a ref that was given a former value.
type undoneRefJSON struct {
	Ref    string `json:"ref"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Undo answers POST /repos/undo.
func (d *Door) Undo(x exchange.Exchange, grant *auth.Grant) error {
	var request struct {
		To       *string  `json:"to"`
		Sequence *uint64  `json:"sequence"`
		Refs     []string `json:"refs"`
		Force    bool     `json:"force"`
		dryRun
	}
	repo, by, err := d.writeJSON(x, grant, "POST /repos/undo", &request)
	if err != nil {
		return err
	}
	undo := engine.UndoRequest{Force: request.Force}
	switch {
	case request.To == nil && request.Sequence == nil:
		return badRequest("one of to and sequence is required")
	case request.To != nil && request.Sequence != nil:
		return badRequest("to and sequence exclude each other: one of them is required")
	case request.To == nil:
		if undo.Sequence = *request.Sequence; undo.Sequence == 0 {
			return badRequest("sequence: expected the number of a transaction, from 1 on, got 0")
		}
	default:
		if undo.To, err = engine.ParseMoment("to", *request.To); err != nil {
			return err
		}
	}
	if undo.Refs, err = refs.ParsePatterns(request.Refs); err != nil {
		return badRequest("refs: %v", err)
	}
	undone, err := repo.Undo(x.Context(), by, undo)
	if err != nil {
		return err
	}
	told := struct {
		To   *uint64         `json:"to_sequence,omitempty"`
		Refs []undoneRefJSON `json:"refs"`

		Unmatched []string       `json:"unmatched,omitempty"`
		Elsewhere []positionJSON `json:"elsewhere,omitempty"`
	}{Refs: make([]undoneRefJSON, 0, len(undone.Refs)), Elsewhere: positions(undone.Elsewhere)}
	if undone.To != 0 {
		told.To = &undone.To
	}
	for _, i := range undone.Unmatched {
		told.Unmatched = append(told.Unmatched, request.Refs[i])
	}
	for _, ref := range undone.Refs {
		told.Refs = append(told.Refs, undoneRefJSON{ref.Name, ref.Before.String(), ref.After.String()})
	}
	return answerWrite(x, &by, http.StatusOK, undone.Sequence, told)
}
