package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// NameKind says which names of a commit a request takes.
type NameKind uint8

// Kinds of names.
const (
	// AnyRevision is a revision as docs/api.md has it; "" is the default branch.
	AnyRevision NameKind = iota
	// BranchName is the name of a branch; "" is the default branch where a request has a default.
	BranchName
	// FullID is the whole ID of a commit, or of a tag that leads to one.
	FullID
	// IDPrefix is such an ID or the unique beginning of one.
	IDPrefix
)

// CommitName is how a request names a commit.
type CommitName struct {
	Text      string
	Kind      NameKind
	Namespace refs.Namespace
	// Field is what the client calls the name, such as "base_ref", for messages; "" is "ref".
	Field string
}

// Revision is a commit and the name that led to it.
type Revision struct {
	// Name is the requested name, or the default branch.
	Name string
	// Ref is the ref that was followed, as clients of its namespace see it, or "" for an object id.
	Ref string
	// Commit is the commit's id; tag objects have been peeled.
	Commit object.ID
}

// resolve finds the commit of a name, by the rules of docs/invariants.md 32.
//
// Errors: [ErrNotFound]; [ErrInvalid] for a name that is not of its kind, and for an ambiguous
// prefix.
func (r *Repository) resolve(ctx context.Context, names lookuper, v *odb.View, n CommitName) (Revision, error) {
	if n.Text == "" && n.Kind <= BranchName {
		var err error
		if n.Text, _, err = r.head(ctx, names, n.Namespace); err != nil && !errors.Is(err, refs.ErrNotFound) {
			return Revision{}, fmt.Errorf("look up the default branch: %w", err)
		}
	}
	switch n.Kind {
	case BranchName:
		return n.branch(ctx, names, "branch")
	case FullID, IDPrefix:
		return r.resolveID(ctx, v, n)
	case AnyRevision:
	}
	found, err := revision.Resolve(ctx, n.Text, namesIn{r, names, n.Namespace}, v, r.host.jumps)
	refusal, ok := errors.AsType[*revision.Error](err)
	switch {
	case !ok:
	case errors.Is(err, revision.ErrInvalid):
		err = fail(ErrInvalidRevision, "%s %v", n.field(), refusal)
	case refusal.Base == n.Text:
		err = missingBranch(ctx, names, n.Namespace, "ref", n.Text)
	case refusal.Base != "":
		err = fail(ErrRefNotFound, "ref %.200q: %v", n.Text, missingBranch(ctx, names, n.Namespace, "ref", refusal.Base))
	default:
		err = fail(ErrCommitNotFound, "ref %v", refusal)
	}
	return Revision{Name: n.Text, Ref: found.Ref, Commit: found.Commit}, err
}

func (n *CommitName) field() string {
	if n.Field == "" {
		return "ref"
	}
	return n.Field
}

// branch finds the tip of a branch. what is the word for it in an error.
func (n *CommitName) branch(ctx context.Context, names lookuper, what string) (Revision, error) {
	full := branchPrefix + n.Text
	ref, err := names.Lookup(ctx, n.Namespace.Full(full))
	if errors.Is(err, refs.ErrNotFound) {
		return Revision{}, missingBranch(ctx, names, n.Namespace, what, n.Text)
	}
	if err != nil {
		return Revision{}, fmt.Errorf("look up branch %s: %w", n.Text, err)
	}
	return Revision{Name: n.Text, Ref: full, Commit: ref.ID}, nil
}

// likely returns the stored names of the branches that names probably mean, of those that can mean
// one.
func (r *Repository) likely(names ...CommitName) (stored []string) {
	for _, n := range names {
		switch {
		case n.Text == "" && n.Kind <= BranchName:
			stored = append(stored, r.defaultRef(n.Namespace))
		case n.Kind <= BranchName && !isObjectName(n.Text):
			stored = append(stored, n.Namespace.Full(branchPrefix+n.Text))
		}
	}
	return stored
}

// resolveID finds the commit of an object ID, whole or the beginning of it. Names of refs are none.
func (r *Repository) resolveID(ctx context.Context, v *odb.View, n CommitName) (Revision, error) {
	digits := strings.ToLower(n.Text)
	switch {
	case n.Kind == FullID && (len(digits) != object.HexSize || !revision.IsHex(digits)):
		return Revision{}, fail(ErrInvalidRevision,
			"%s: expected the 40 hexadecimal digits of a commit, got %.60q", n.field(), n.Text)
	case !isObjectName(digits):
		return Revision{}, fail(ErrInvalidRevision, "%s: expected %d to %d hexadecimal digits, got %.60q", n.field(),
			revision.PrefixDigitsMin, object.HexSize, n.Text)
	}
	found, err := revision.Resolve(ctx, digits, noNames{}, v, nil)
	refusal, ok := errors.AsType[*revision.Error](err)
	switch {
	case !ok:
	case errors.Is(err, revision.ErrInvalid):
		err = fail(ErrInvalidRevision, "ref %v", refusal)
	default:
		err = fail(ErrCommitNotFound, "commit %s not found", digits)
	}
	return Revision{Name: n.Text, Commit: found.Commit}, err
}

// isObjectName reports whether text is an object ID or a sufficiently long beginning of one.
func isObjectName(text string) bool {
	return len(text) >= revision.PrefixDigitsMin && len(text) <= object.HexSize && revision.IsHex(text)
}

// namesIn looks up the refs of a namespace.
type namesIn struct {
	repo  *Repository
	names lookuper
	space refs.Namespace
}

func (n namesIn) Lookup(ctx context.Context, name string) (object.ID, bool, error) {
	full := n.space.Full(name)
	if space, _ := refs.SplitNamespace(full); space != n.space {
		return object.ZeroID, false, nil
	}
	ref, err := n.names.Lookup(ctx, full)
	if errors.Is(err, refs.ErrNotFound) {
		return object.ZeroID, false, nil
	}
	if err != nil {
		return object.ZeroID, false, fmt.Errorf("look up %s: %w", name, err)
	}
	return ref.Target(), true, nil
}

func (n namesIn) Default(ctx context.Context) (string, error) {
	name, _, err := n.repo.head(ctx, n.names, n.space)
	if errors.Is(err, refs.ErrNotFound) {
		err = nil
	}
	return branchPrefix + name, err
}

// At implements [revision.Refs]. Objects that are read of what it finds come from a view that was
// opened before.
func (n namesIn) At(ctx context.Context, moment Moment, do func(revision.Refs) error) (err error) {
	open, snapshot := (*Repository).visibleAt, (*Repository).visibleNames // in a transaction, which waits itself
	if _, reads := n.names.(*refs.Snapshot); reads {
		open, snapshot = (*Repository).At, (*Repository).names
	}
	then, err := open(n.repo, ctx, moment)
	if err != nil {
		return err
	}
	names, err := snapshot(then, ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	return do(namesIn{then, names, n.space})
}

// noNames is where no ref is.
type noNames struct{}

func (noNames) Lookup(context.Context, string) (object.ID, bool, error) {
	return object.ZeroID, false, nil
}

func (noNames) Default(context.Context) (string, error) { return "", nil }

func (noNames) At(_ context.Context, _ Moment, do func(revision.Refs) error) error {
	return do(noNames{})
}

// IsUnknownObject reports whether err says that an object does not exist or may not be read.
func IsUnknownObject(err error) bool { return errors.Is(err, odb.ErrNotFound) }
