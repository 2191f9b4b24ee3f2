package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/packgen"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// FetchRequest is the request of a git client, in any version of the protocol. Ref names are as
// clients of the namespace see them.
type FetchRequest struct {
	Namespace refs.Namespace
	Wants     []object.ID
	WantRefs  []string
	Haves     []object.ID
	// Shallow is the client's shallow boundary.
	Shallow []object.ID
	// Depth, Since (seconds since 1970) and Not define a new boundary; with Relative, Depth counts
	// from the old one.
	Depth    int
	Since    int64
	Not      []string
	Relative bool
	// Filter is a filter specification of rev-list, "" for none.
	Filter                     string
	Thin, OFSDelta, IncludeTag bool
}

// Deepens reports whether the request moves the client's shallow boundary.
func (q *FetchRequest) Deepens() bool { return q.Depth > 0 || q.Since > 0 || len(q.Not) > 0 }

// Fetch is a negotiated fetch: it sends the objects that were readable when it began. It is used by
// one goroutine at a time and closed when its answer has ended.
type Fetch struct {
	repo     *Repository
	request  FetchRequest
	filter   packgen.Filter
	view     *odb.View
	names    *refs.Snapshot
	wants    []object.ID
	wanted   []refs.Ref
	common   []object.ID
	shallow  []object.ID // the part of the client's boundary that the repository knows
	excluded []object.ID // what FetchRequest.Not names
	moved    *boundary
}

// boundary is how the client's shallow boundary moves.
type boundary struct{ shallow, unshallow []object.ID }

// Fetch begins a fetch: it resolves the wants and the common commits. Errors: [ErrNotFound] for a
// want that may not be read, [ErrInvalid] for a filter that cannot be served and for contradictory
// limits of history.
func (r *Repository) Fetch(ctx context.Context, request FetchRequest) (*Fetch, error) {
	var filter packgen.Filter
	if request.Filter != "" {
		var err error
		if filter, err = packgen.ParseFilter(request.Filter); err != nil {
			return nil, invalid("%v", err)
		}
	}
	if request.Depth > 0 && (request.Since > 0 || len(request.Not) > 0) {
		return nil, invalid("deepen and deepen-since (or deepen-not) cannot be used together")
	}
	names, view, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	f := &Fetch{repo: r, request: request, filter: filter, view: view, names: names}
	for _, find := range []func(context.Context) error{
		f.findWants, f.findWantedRefs, f.findCommon, f.findShallow, f.findExcluded,
	} {
		if err := find(ctx); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// Close releases the view of the fetch. A generation that others wait for reads on in its own.
func (f *Fetch) Close() {
	f.names.Close()
	f.view.Close()
}

func (f *Fetch) findWants(ctx context.Context) error {
	for _, id := range f.request.Wants {
		known, err := f.view.Has(ctx, id)
		if err != nil {
			return fmt.Errorf("look up want %s: %w", id, err)
		}
		if !known {
			return fail(ErrObjectNotFound, "upload-pack: not our ref %s", id)
		}
		f.wants = append(f.wants, id)
	}
	return nil
}

func (f *Fetch) findWantedRefs(ctx context.Context) error {
	for _, name := range f.request.WantRefs {
		ref, err := f.lookup(ctx, name)
		if errors.Is(err, refs.ErrNotFound) {
			return fail(ErrRefNotFound, "unknown ref %s", name)
		}
		if err != nil {
			return fmt.Errorf("look up want-ref %s: %w", name, err)
		}
		f.wants = append(f.wants, ref.ID)
		f.wanted = append(f.wanted, refs.Ref{Name: name, ID: ref.ID, Peeled: ref.Peeled})
	}
	return nil
}

// lookup finds a ref that the client names in full; HEAD is the default branch. Refs that clients
// of the namespace do not see are not found.
func (f *Fetch) lookup(ctx context.Context, name string) (refs.Ref, error) {
	full := f.request.Namespace.Full(name)
	if name == "HEAD" {
		full = f.repo.defaultRef(f.request.Namespace)
	}
	if ns, _ := refs.SplitNamespace(full); ns != f.request.Namespace {
		return refs.Ref{}, refs.ErrNotFound
	}
	return f.names.Lookup(ctx, full)
}

func (f *Fetch) findCommon(ctx context.Context) error {
	for _, id := range f.request.Haves {
		known, err := f.view.Has(ctx, id)
		if err != nil {
			return fmt.Errorf("look up have %s: %w", id, err)
		}
		if known {
			f.common = append(f.common, id)
		}
	}
	return nil
}

func (f *Fetch) findShallow(ctx context.Context) error {
	for _, id := range f.request.Shallow {
		info, err := f.view.Stat(ctx, id)
		switch {
		case errors.Is(err, odb.ErrNotFound):
		case err != nil:
			return fmt.Errorf("look up shallow commit %s: %w", id, err)
		case info.Type != object.TypeCommit:
			return invalid("invalid shallow object %s", id)
		default:
			f.shallow = append(f.shallow, id)
		}
	}
	return nil
}

// findExcluded finds the refs that deepen-not names, as git expands a short name: each must be one
// ref and no other.
func (f *Fetch) findExcluded(ctx context.Context) error {
	for _, name := range f.request.Not {
		var found []object.ID
		for _, pattern := range []string{
			"%s", "refs/%s", "refs/tags/%s", "refs/heads/%s", "refs/remotes/%s", "refs/remotes/%s/HEAD",
		} {
			ref, err := f.lookup(ctx, fmt.Sprintf(pattern, name))
			if errors.Is(err, refs.ErrNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("look up deepen-not %s: %w", name, err)
			}
			found = append(found, ref.ID)
		}
		if len(found) != 1 {
			return invalid("ambiguous deepen-not: deepen-not %s", name)
		}
		commit, err := revision.Peel(ctx, f.view.Linked(), found[0])
		switch {
		case errors.Is(err, revwalk.ErrNotCommit): // leaves out no commit
		case err != nil:
			return err
		default:
			f.excluded = append(f.excluded, commit)
		}
	}
	return nil
}

// Common returns the haves that the repository has too, in the order of the request.
func (f *Fetch) Common() []object.ID { return f.common }

// WantedRefs returns the refs of want-ref requests with the values that are sent.
func (f *Fetch) WantedRefs() []refs.Ref { return f.wanted }

// Ready reports whether the common commits suffice for a good pack: every want has an ancestor
// among the haves.
func (f *Fetch) Ready(ctx context.Context) (bool, error) {
	return f.areReady(ctx, f.wants, len(f.common), nil)
}

// ReadyAfter returns how many of [Fetch.Common] make the fetch ready, false if all of them do not
// suffice. It examines the history that will be sent, down to the boundary, which versions 0 and 1
// of the protocol announce first.
func (f *Fetch) ReadyAfter(ctx context.Context) (count int, ok bool, err error) {
	shallow, unshallow, err := f.Boundary(ctx)
	if err != nil {
		return 0, false, err
	}
	cut, wants := slices.Concat(f.shallow, shallow), slices.Clip(f.wants)
	for _, id := range unshallow {
		row, err := f.view.Linked().Graph(ctx, id)
		if err != nil {
			return 0, false, fmt.Errorf("look up parents of %s: %w", id, err)
		}
		wants = append(wants, row.Parents...)
	}
	if ready, err := f.areReady(ctx, wants, len(f.common), cut); !ready || err != nil {
		return 0, false, err
	}
	count = sort.Search(len(f.common), func(n int) bool {
		ready, readyErr := f.areReady(ctx, wants, n, cut)
		err = errors.Join(err, readyErr)
		return ready
	})
	return count, err == nil, err
}

func (f *Fetch) areReady(ctx context.Context, wants []object.ID, commonCount int, cut []object.ID) (bool, error) {
	if commonCount == 0 {
		return false, nil
	}
	ready := false
	err := fair.Do(ctx, func(ctx context.Context) (err error) {
		ready, err = revwalk.AllReach(ctx, f.view.Linked(), wants, f.common[:commonCount], cut)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("check wants against common commits: %w", err)
	}
	return ready, nil
}

// Boundary returns how the client's shallow boundary moves: commits that become shallow and commits
// that are so no longer. Errors: [ErrInvalid] when the limits of history leave nothing to send.
func (f *Fetch) Boundary(ctx context.Context) (shallow, unshallow []object.ID, err error) {
	if !f.request.Deepens() {
		return nil, nil, nil
	}
	if f.moved == nil {
		options := revwalk.DeepenOptions{
			Depth:         min(f.request.Depth, revwalk.DepthInfinite),
			Since:         f.request.Since,
			Relative:      f.request.Relative,
			Not:           f.excluded,
			ClientShallow: f.shallow,
		}
		if f.request.Relative {
			if options.Tips, err = f.tips(ctx); err != nil {
				return nil, nil, err
			}
		}
		moved := &boundary{}
		err := fair.Do(ctx, func(ctx context.Context) (err error) {
			moved.shallow, moved.unshallow, err = revwalk.Deepen(ctx, f.view.Linked(), f.wants, options)
			return err
		})
		if errors.Is(err, revwalk.ErrNoCommits) {
			return nil, nil, invalid("%v", revwalk.ErrNoCommits)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("deepen: %w", err)
		}
		f.moved = moved
	}
	return f.moved.shallow, f.moved.unshallow, nil
}

// tips returns the targets of the refs of the namespace.
func (f *Fetch) tips(ctx context.Context) ([]object.ID, error) {
	var tips []object.ID
	for ref, err := range f.names.In(ctx, f.request.Namespace, "") {
		if err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
		tips = append(tips, ref.ID)
	}
	return tips, nil
}
