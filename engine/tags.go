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
	// Object is the tag object, zero for a lightweight tag.
	Object object.ID
}

// CreatedTag is the outcome of a tag's creation. An idempotency record stores it.
type CreatedTag struct {
	Commit   object.ID
	Sequence uint64
}

const cursorTags = 't'

// Tags lists a namespace's tags in the byte order of their names. Errors: [ErrInvalid] for a cursor
// of another listing.
func (r *Repository) Tags(ctx context.Context, ns refs.Namespace, cursor string, limit int) (Page[Tag], error) {
	after := ns.TagPrefix()
	if cursor != "" {
		name, err := r.cursors().decode(cursorTags, cursor, 0)
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
		page.Items = append(page.Items, r.tagOf(ns, &ref))
	}
	return page, nil
}

func (r *Repository) tagOf(ns refs.Namespace, ref *refs.Ref) Tag {
	name := ref.Name[len(ns.TagPrefix()):]
	tag := Tag{Cursor: r.cursors().encode(cursorTags, []byte(name)), Name: name, Target: ref.Target()}
	if tag.Target != ref.ID {
		tag.Object = ref.ID
	}
	return tag
}

// Tag returns one tag of a namespace. Errors: [ErrNotFound].
func (r *Repository) Tag(ctx context.Context, ns refs.Namespace, name string) (Tag, error) {
	ref, err := r.oneRef(ctx, ns.TagPrefix()+name)
	if err != nil {
		return Tag{}, err
	}
	return r.tagOf(ns, &ref), nil
}

// CreateTag creates a lightweight tag of a commit, also where the target is an annotated tag, and
// returns when that is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a target that leads to no commit; [ErrExists];
// refs.ErrNameConflict, refs.ErrDenied, refs.ErrLimit, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) CreateTag(
	ctx context.Context, actor Actor, ns refs.Namespace, name string, target CommitName,
) (CreatedTag, error) {
	full, err := ns.Tag(name)
	if err != nil {
		return CreatedTag{}, badName("name", err)
	}
	made, err := changeRefs(ctx, r, &actor, "tag", func(
		ctx context.Context, tx *refs.Tx, now *Repository,
	) (CreatedTag, error) {
		return now.writeRefs(tx).createTag(ctx, full, name, target)
	}, full)
	if err == nil && made.Commit.IsZero() { // records of earlier releases leave it to the request, a full ID
		made.Commit, err = object.ParseID(target.Text)
	}
	return made, err
}

// requireCommit is [ErrNotFound] unless id is that of a commit that can be read.
func requireCommit(ctx context.Context, v *odb.View, id object.ID) error {
	info, err := v.Stat(ctx, id)
	if errors.Is(err, odb.ErrNotFound) || err == nil && info.Type != object.TypeCommit {
		return fail(ErrCommitNotFound, "commit %s not found", id)
	}
	if err != nil {
		return fmt.Errorf("read commit %s: %w", id, err)
	}
	return nil
}
