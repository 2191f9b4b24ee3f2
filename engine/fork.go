package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/engine/catalog"
	"packhorse/engine/commit"
	"packhorse/engine/quota"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Base is the repository that a new one is made from. The two share their common objects; nothing
// is copied.
type Base struct {
	// Name is that of a repository of the same organization.
	Name string
	// Ref is a branch, a tag, a full ref or an object id, and Commit an object id, which wins. Without
	// either a fork takes every ref outside of the ephemeral namespace, and a snapshot is of the
	// default branch.
	Ref, Commit string
	// Snapshot makes one new commit without parents of the base's tree, in place of its history; nil
	// makes a fork.
	Snapshot *CommitDetails
}

func (b *Base) check() error {
	switch {
	case b.Name == "":
		return invalid("base_repo.name is required")
	case b.Commit != "" && !isObjectName(b.Commit):
		return invalid("base_repo.sha %.50q is no object id", b.Commit)
	case b.Snapshot == nil:
		return nil
	}
	return b.Snapshot.checkAs("initial_commit.message")
}

// cause is the name of the creation in the journal.
func (b *Base) cause() string {
	switch {
	case b == nil:
		return "create"
	case b.Snapshot != nil:
		return "snapshot"
	default:
		return "fork"
	}
}

// origin is the initial content of a new repository.
type origin struct {
	pool          odb.PoolID
	defaultBranch string
	chosen        chosenBy
	refs          []refs.Ref
	fork          *odb.Fork // nil without a base
	base          odb.PoolID
	hold          *quota.Hold
	push          *firstPush // nil unless a push creates the repository
}

// id returns the ID of the new repository.
func (o *origin) id() refs.RepoID {
	if o.push != nil {
		return o.push.repo.record.ID
	}
	return refs.NewRepoID()
}

func (o *origin) settled(ctx context.Context) {
	if o.push != nil {
		o.push.settled(ctx)
	}
}

// reserve holds what the batch of the creation stores. Errors: [quota.ErrExceeded].
func (o *origin) reserve(ctx context.Context, b *kv.Batch) error {
	if o.fork == nil {
		return nil
	}
	return o.hold.StageFork(ctx, b, o.fork.Hot())
}

// origin adds to b the pool of a new repository. The caller closes the result.
func (h *Host) origin(ctx context.Context, b *kv.Batch, actor *Actor, request *CreateRequest) (*origin, error) {
	if request.Base == nil {
		o := &origin{defaultBranch: request.DefaultBranch, push: request.push}
		if o.push != nil {
			o.pool = o.push.repo.record.Pool
		} else {
			o.pool = h.objects.CreatePool(b)
		}
		if o.defaultBranch == "" {
			o.defaultBranch, o.chosen = "main", chosenByNobody
		}
		return o, nil
	}
	source, err := h.Repository(ctx, actor.Org, request.Base.Name)
	if err != nil {
		return nil, err
	}
	b.Require(catalog.RecordKey(source.record.ID), source.stored)
	names, err := source.visibleNames(ctx)
	if err != nil {
		return nil, err
	}
	hold, err := h.quotas.BeginFork(ctx, source.counted())
	if err != nil {
		return nil, errors.Join(err, names.Close())
	}
	o, err := source.fork(ctx, b, names, request)
	if err = source.gone(err); err != nil && !errors.Is(err, kv.ErrConflict) { // a refusal shows the state that was read
		err = errors.Join(err, names.WaitDurable(ctx))
	}
	if err = errors.Join(err, names.Close()); err != nil {
		hold.Release()
		return nil, err
	}
	o.base, o.hold = source.record.Pool, hold
	return o, nil
}

// fork adds to b a pool that shares the repository's layers. Errors: [kv.ErrConflict] when the
// repository changed during the reading.
func (r *Repository) fork(
	ctx context.Context, b *kv.Batch, names *refs.Snapshot, request *CreateRequest,
) (o *origin, err error) {
	view, err := r.Objects(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	// If the refs are the same before and after the view was made, their objects are in it. Pruning
	// from now on changes the layers, which b depends on.
	if current, err := names.IsCurrent(ctx); err != nil {
		return nil, r.gone(err)
	} else if !current {
		return nil, kv.ErrConflict
	}
	o, err = r.take(ctx, names, view, request)
	if err != nil {
		return nil, err
	}
	if request.Base.Snapshot != nil {
		return o, r.snapshot(ctx, b, view, o, request.Base.Snapshot)
	}
	tips := make([]object.ID, len(o.refs))
	for i := range o.refs {
		tips[i] = o.refs[i].ID
	}
	return o, o.share(ctx, b, view, tips)
}

// share adds the pool to b.
func (o *origin) share(ctx context.Context, b *kv.Batch, view *odb.View, tips []object.ID) error {
	fork, err := view.Fork(ctx, b, tips)
	if err != nil {
		return fmt.Errorf("share objects: %w", err)
	}
	o.fork, o.pool = fork, fork.Pool()
	return nil
}

// take finds the refs that the new repository begins with, in the order of their creation.
func (r *Repository) take(
	ctx context.Context, names *refs.Snapshot, view *odb.View, request *CreateRequest,
) (*origin, error) {
	base := request.Base
	wanted := cmp.Or(base.Commit, base.Ref)
	if wanted == "" && base.Snapshot == nil {
		return r.takeAll(ctx, names, request.DefaultBranch)
	}
	name := CommitName{Text: wanted, Field: "base_repo.ref"}
	if base.Commit != "" {
		name.Kind = IDPrefix
	}
	found, err := r.resolve(ctx, names, view, name)
	if name.Kind == IDPrefix && isNotFound(err) {
		err = fail(ErrRefNotFound, "ref %q not found", wanted)
	}
	if err != nil {
		return nil, err
	}
	o := &origin{defaultBranch: request.DefaultBranch}
	if branch, ok := strings.CutPrefix(found.Ref, "refs/heads/"); ok && o.defaultBranch == "" {
		o.defaultBranch = branch
	}
	o.defaultBranch = cmp.Or(o.defaultBranch, r.record.DefaultBranch)
	o.refs = []refs.Ref{{Name: "refs/heads/" + o.defaultBranch, ID: found.Commit}}
	if base.Snapshot == nil && strings.HasPrefix(found.Ref, "refs/tags/") {
		tag, err := names.Lookup(ctx, found.Ref)
		if errors.Is(err, refs.ErrNotFound) { // found at a moment
			return o, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", found.Ref, err)
		}
		if tag.Target() == found.Commit { // and not an ancestor of it
			o.refs = append(o.refs, tag)
		}
	}
	return o, nil
}

// takeAll takes every ref that a clone of the repository sees.
func (r *Repository) takeAll(ctx context.Context, names *refs.Snapshot, defaultBranch string) (*origin, error) {
	o := &origin{defaultBranch: cmp.Or(defaultBranch, r.record.DefaultBranch)}
	hasDefault := false
	for ref, err := range names.In(ctx, refs.Main, "refs/") {
		if err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
		if len(o.refs) == refs.UpdatesMax {
			return nil, &LimitError{Limit: "refs taken by a fork (a fork by ref takes one)", Max: refs.UpdatesMax}
		}
		hasDefault = hasDefault || ref.Name == "refs/heads/"+o.defaultBranch
		o.refs = append(o.refs, ref)
	}
	if defaultBranch == "" && len(o.refs) == 0 {
		o.chosen = r.record.Chosen
	}
	if defaultBranch != "" && len(o.refs) > 0 && !hasDefault {
		return nil, fail(ErrRefNotFound, "branch %q not found in repository %q", defaultBranch, r.record.Name)
	}
	slices.SortFunc(o.refs, func(a, b refs.Ref) int {
		return cmp.Or(cmp.Compare(a.Created.Sequence, b.Created.Sequence), cmp.Compare(a.Created.Index, b.Created.Index))
	})
	return o, nil
}

// snapshot replaces the commit that was taken by a new one without parents. Of the layers that are
// shared only its tree may be read.
func (r *Repository) snapshot(
	ctx context.Context, b *kv.Batch, view *odb.View, o *origin, details *CommitDetails,
) error {
	tree, err := treeOf(ctx, view.Linked(), o.refs[0].ID)
	if err != nil {
		return err
	}
	if err := o.share(ctx, b, view, []object.ID{tree}); err != nil {
		return err
	}
	header := commit.Header{
		Author: details.Author, Committer: details.Committer, Message: details.Message, When: r.host.now(),
	}
	if o.refs[0].ID, err = o.fork.Write(b, object.TypeCommit, header.Encode(tree)); err != nil {
		return fmt.Errorf("write initial commit: %w", err)
	}
	return nil
}
