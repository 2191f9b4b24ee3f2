package engine

import (
	"context"
	"fmt"

	"packhorse/pack/object"
	"packhorse/refs"
)

// NotesRefItem is a notes ref in a listing.
type NotesRefItem struct {
	// Cursor continues the listing after the ref.
	Cursor string
	Name   string // in full, as clients of the namespace see it
	Tip    object.ID
}

// cursorNotesRefs keeps the cursors of this listing from being used in another.
const cursorNotesRefs = 'o'

// NotesRefs lists the notes refs of a namespace whose full names begin with prefix, as
// [NotesPrefix] gives it, in the byte order of their names. Errors: [ErrInvalid] for a cursor of
// another listing.
func (r *Repository) NotesRefs(
	ctx context.Context, ns refs.Namespace, prefix, cursor string, limit int,
) (Page[NotesRefItem], error) {
	after := ""
	if cursor != "" {
		name, err := r.cursors().decode(cursorNotesRefs, cursor, 0)
		if err != nil {
			return Page[NotesRefItem]{}, err
		}
		after = string(name)
	}
	names, err := r.names(ctx)
	if err != nil {
		return Page[NotesRefItem]{}, err
	}
	defer names.Close()
	var page Page[NotesRefItem]
	for ref, err := range names.After(ctx, ns.Full(prefix), ns.Full(after)) {
		if err != nil {
			return Page[NotesRefItem]{}, fmt.Errorf("list notes refs: %w", err)
		}
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].Cursor
			break
		}
		name := ns.Short(ref.Name)
		page.Items = append(page.Items,
			NotesRefItem{Cursor: r.cursors().encode(cursorNotesRefs, []byte(name)), Name: name, Tip: ref.ID})
	}
	return page, nil
}
