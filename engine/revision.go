package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Revision is a commit and the name that led to it.
type Revision struct {
	// Name is the requested name, or the default branch.
	Name string
	// Ref is the ref that was followed, as clients of its namespace see it, or "" for an object id.
	Ref string
	// Commit is the commit's id; tag objects have been peeled.
	Commit object.ID
}

// prefixDigitsMin is the shortest abbreviation of an object ID.
const prefixDigitsMin = 7

// resolve finds the commit of a name: an object ID, a branch, a tag, a full ref, or the unique
// beginning of an object ID, in this order (docs/invariants.md 32). Without a name it is the
// default branch.
//
// Errors: [ErrNotFound]; [ErrInvalid] for an ambiguous prefix.
func (r *Repository) resolve(
	ctx context.Context, names lookuper, v *odb.View, ns refs.Namespace, name string,
) (Revision, error) {
	if name == "" {
		var err error
		if name, _, err = r.head(ctx, names, ns); err != nil && !errors.Is(err, refs.ErrNotFound) {
			return Revision{}, fmt.Errorf("look up the default branch: %w", err)
		}
	}
	revision := Revision{Name: name}
	missing := func() error { return missingBranch(ctx, names, ns, "ref", name) }
	if id, err := object.ParseID(strings.ToLower(name)); err == nil {
		revision.Commit, err = peel(ctx, v, id)
		if isUnknown(err) {
			return revision, missing()
		}
		return revision, err
	}
	for _, candidate := range candidates(name) {
		ref, err := names.Lookup(ctx, ns.Full(candidate))
		if errors.Is(err, refs.ErrNotFound) {
			continue
		}
		if err != nil {
			return revision, fmt.Errorf("look up %s: %w", candidate, err)
		}
		revision.Ref = candidate
		revision.Commit, err = peel(ctx, v.Linked(), ref.Target())
		if isUnknown(err) {
			return revision, missing()
		}
		return revision, err
	}
	if len(name) < prefixDigitsMin || strings.Trim(strings.ToLower(name), "0123456789abcdef") != "" {
		return revision, missing()
	}
	return r.resolvePrefix(ctx, v, revision)
}

// candidates are the refs that a name may mean.
func candidates(name string) []string {
	list := []string{"refs/heads/" + name, "refs/tags/" + name}
	if strings.HasPrefix(name, "refs/") {
		list = append(list, name)
	}
	return list
}

func (r *Repository) resolvePrefix(ctx context.Context, v *odb.View, revision Revision) (Revision, error) {
	ids, err := v.Resolve(ctx, strings.ToLower(revision.Name))
	if err != nil {
		return revision, fmt.Errorf("resolve %q: %w", revision.Name, err)
	}
	found := 0
	for _, id := range ids {
		info, err := v.Stat(ctx, id)
		if err != nil {
			return revision, fmt.Errorf("read %s: %w", id, err)
		}
		if info.Type == object.TypeCommit {
			revision.Commit = id
			found++
		}
	}
	switch found {
	case 0:
		return revision, notFound("ref %q not found", revision.Name)
	case 1:
		return revision, nil
	default:
		return revision, invalid("ref %q is ambiguous: %d commits begin with it", revision.Name, found)
	}
}

// peel follows tag objects to the commit. It is [errNotCommit] for anything else.
func peel(ctx context.Context, v *odb.View, id object.ID) (object.ID, error) {
	id, t, err := follow(ctx, v, id)
	if err == nil && t != object.TypeCommit {
		err = fmt.Errorf("%w: %s is a %s", errNotCommit, id, t)
	}
	return id, err
}

// tagChainMax bounds the chain of tag objects before an object. Real chains have one, seldom two.
const tagChainMax = 100

// errTagChain says that an object is behind more tag objects than are followed.
var errTagChain = &LimitError{Limit: "tag objects that lead from one to the next", Max: tagChainMax}

// follow follows tag objects to the first object that is none. Errors: [odb.ErrNotFound],
// errTagChain.
func follow(ctx context.Context, v *odb.View, id object.ID) (object.ID, object.Type, error) {
	for tags := 0; ; tags, v = tags+1, v.Linked() { // the target of a tag is readable if the tag is
		info, err := v.Stat(ctx, id)
		if err != nil {
			return id, 0, fmt.Errorf("read %s: %w", id, err)
		}
		if info.Type != object.TypeTag {
			return id, info.Type, nil
		}
		if tags == tagChainMax {
			return id, 0, errTagChain
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

// errNotCommit says that an object that should lead to a commit does not.
var errNotCommit = errors.New("engine: not a commit")

// isUnknown reports whether err says that no such commit can be read.
func isUnknown(err error) bool {
	return errors.Is(err, odb.ErrNotFound) || errors.Is(err, errNotCommit)
}

// IsUnknownObject reports whether err says that an object does not exist or may not be read.
func IsUnknownObject(err error) bool { return errors.Is(err, odb.ErrNotFound) }
