package revision

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// tagChainMax bounds the chain of tag objects before an object. Real chains have one, seldom two.
// [ErrTagChain] names it.
const tagChainMax = 100

// Peel follows tag objects to the commit. Errors: [odb.ErrNotFound]; [revwalk.ErrNotCommit] when
// they lead to something else; [ErrTagChain].
func Peel(ctx context.Context, v *odb.View, id object.ID) (object.ID, error) {
	id, t, err := Follow(ctx, v, id)
	if err == nil && t != object.TypeCommit {
		err = fmt.Errorf("%w: %s is a %s", revwalk.ErrNotCommit, id, t)
	}
	return id, err
}

// Follow follows tag objects to the first object that is none, and returns its type. Errors:
// [odb.ErrNotFound], [ErrTagChain].
func Follow(ctx context.Context, v *odb.View, id object.ID) (object.ID, object.Type, error) {
	for tags := 0; ; tags, v = tags+1, v.Linked() { // the target of a tag is readable if the tag is
		info, err := v.Stat(ctx, id)
		if err != nil {
			return id, 0, fmt.Errorf("read %s: %w", id, err)
		}
		if info.Type != object.TypeTag {
			return id, info.Type, nil
		}
		if tags == tagChainMax {
			return id, 0, ErrTagChain
		}
		_, data, err := v.Linked().Read(ctx, id)
		if err != nil {
			return id, 0, fmt.Errorf("read tag %s: %w", id, err)
		}
		target, _, err := object.TagLink(data)
		if err != nil {
			return id, 0, fmt.Errorf("read tag %s: %w", id, err)
		}
		id = target
	}
}

// IsUnknown reports whether err says that no such commit can be read.
func IsUnknown(err error) bool {
	return errors.Is(err, odb.ErrNotFound) || errors.Is(err, revwalk.ErrNotCommit)
}
