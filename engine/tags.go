package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Tag is a tag in a listing.
type Tag struct {
	// Cursor continues the listing after the tag.
	Cursor string
	Name   string
	// Target is the target of the tag, usually a commit; tag objects have been peeled.
	Target object.ID
}

// CreatedTag is the outcome of a tag's creation.
type CreatedTag struct {
	Sequence uint64
}

const cursorTags = 't'

// Tags lists a namespace's tags in the byte order of their names. Errors: [ErrInvalid] for a cursor
// of another listing.
func (r *Repository) Tags(ctx context.Context, ns refs.Namespace, cursor string, limit int) (Page[Tag], error) {
	after := ns.TagPrefix()
	if cursor != "" {
		name, err := decodeCursor(cursorTags, cursor, 0)
		if err != nil {
			return Page[Tag]{}, err
		}
		after += string(name)
	}
	names, err := r.names(ctx)
	if err != nil {
		return Page[Tag]{}, err
	}
	defer names.Close()
	var page Page[Tag]
	for ref, err := range names.After(ctx, ns.TagPrefix(), after) {
		if err != nil {
			return Page[Tag]{}, fmt.Errorf("list tags: %w", err)
		}
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].Cursor
			break
		}
		name := ref.Name[len(ns.TagPrefix()):]
		tag := Tag{Cursor: encodeCursor(cursorTags, []byte(name)), Name: name, Target: ref.Peeled}
		if ref.Peeled.IsZero() {
			tag.Target = ref.ID
		}
		page.Items = append(page.Items, tag)
	}
	return page, nil
}

// CreateTag creates a lightweight tag of a commit and returns when that is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a target that is no commit that can be read; [ErrExists];
// refs.ErrNameConflict, refs.ErrDenied, refs.ErrLimit, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateTag(
	ctx context.Context, actor Actor, ns refs.Namespace, name string, target object.ID,
) (CreatedTag, error) {
	full, err := ns.Tag(name)
	if err != nil {
		return CreatedTag{}, badName("name", err)
	}
	return changeRefs(ctx, r, &actor, "tag", func(ctx context.Context, tx *refs.Tx, _ *Repository) (CreatedTag, error) {
		created := CreatedTag{Sequence: tx.Sequence() + 1}
		err := r.withStored(ctx, tx, func(v *odb.View) error { return requireCommit(ctx, v, target) })
		if err != nil {
			return created, err
		}
		absent := object.ZeroID
		err = tx.Set(ctx, full, &absent, target, object.ZeroID)
		if errors.Is(err, refs.ErrStale) {
			err = &failure{kind: ErrExists, text: fmt.Sprintf("tag %q already exists", name)}
		}
		return created, err
	})
}

// requireCommit is [ErrNotFound] unless id is that of a commit that can be read.
func requireCommit(ctx context.Context, v *odb.View, id object.ID) error {
	info, err := v.Stat(ctx, id)
	if errors.Is(err, odb.ErrNotFound) || err == nil && info.Type != object.TypeCommit {
		return notFound("commit %s not found", id)
	}
	if err != nil {
		return fmt.Errorf("read commit %s: %w", id, err)
	}
	return nil
}
