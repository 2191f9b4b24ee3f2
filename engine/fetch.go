package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// FetchRequest is what a git client asks for, whatever version of the protocol it speaks. Ref names are as clients of the
// namespace see them.
type FetchRequest struct {
	Namespace refs.Namespace
	Wants     []object.ID
	WantRefs  []string
	Haves     []object.ID
	// Shallow is the client's shallow boundary.
	Shallow []object.ID
	// Depth, Since (seconds since 1970) and Not ask for a new boundary; with Relative, Depth counts from the old one.
	Depth    int
	Since    int64
	Not      []string
	Relative bool
	// Filter is a filter specification of rev-list, "" for none.
	Filter                     string
	Thin, OFSDelta, IncludeTag bool
}

// Deepens tells whether the request moves the client's shallow boundary.
func (q *FetchRequest) Deepens() bool { return q.Depth > 0 || q.Since > 0 || len(q.Not) > 0 }

// LimitError says which limit a request exceeds. It matches [ErrTooLarge].
type LimitError struct {
	Limit string
	Max   int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: more than the limit of %d", e.Limit, e.Max)
}

// Is reports whether target is [ErrTooLarge].
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// Fetch is a negotiated fetch: what it sends is what was readable when it began. It is used by one goroutine at a time and
// closed when its answer has ended.
type Fetch struct {
	repo    *Repository
	request FetchRequest
	filter  odb.Filter
	view    *odb.View
	names   *refs.Snapshot
	wants   []object.ID
	wanted  []refs.Ref
	common  []object.ID
	// boundary is what Boundary computed.
	shallow, unshallow []object.ID
	bounded            bool
	ready              *bool
	plan               *odb.PackPlan
}

// Fetch begins a fetch: it finds out what is wanted and what both sides have. Errors: [ErrNotFound] for a want that may not
// be read, [ErrInvalid] for a filter that cannot be served.
func (r *Repository) Fetch(ctx context.Context, request FetchRequest) (*Fetch, error) {
	var filter odb.Filter
	if request.Filter != "" {
		var err error
		if filter, err = odb.ParseFilter(request.Filter); err != nil {
			return nil, &failure{kind: ErrInvalid, text: err.Error()}
		}
	}
	names, err := r.names(ctx)
	if err != nil {
		return nil, err
	}
	view, err := r.Objects(ctx)
	if err != nil {
		return nil, errors.Join(err, names.Close())
	}
	f := &Fetch{repo: r, request: request, filter: filter, view: view, names: names}
	if err := errors.Join(f.findWants(ctx), f.findCommon(ctx)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close releases what the fetch reads.
func (f *Fetch) Close() {
	if f.plan != nil {
		f.plan.Close()
	}
	f.view.Close()
	f.names.Close()
}

func (f *Fetch) findWants(ctx context.Context) error {
	f.wants = append(f.wants, f.request.Wants...)
	for _, id := range f.request.Wants {
		known, err := f.view.Has(ctx, id)
		if err != nil {
			return fmt.Errorf("look up want %s: %w", id, err)
		}
		if !known {
			return notFound("not our ref %s", id)
		}
	}
	for _, name := range f.request.WantRefs {
		ref, err := f.lookup(ctx, name)
		if errors.Is(err, refs.ErrNotFound) {
			return notFound("unknown ref %s", name)
		}
		if err != nil {
			return fmt.Errorf("look up want-ref %s: %w", name, err)
		}
		f.wants = append(f.wants, ref.ID)
		f.wanted = append(f.wanted, refs.Ref{Name: name, ID: ref.ID, Peeled: ref.Peeled})
	}
	return nil
}

// lookup finds a ref that the client names; HEAD is the default branch.
func (f *Fetch) lookup(ctx context.Context, name string) (refs.Ref, error) {
	full := f.request.Namespace.Full(name)
	if name == "HEAD" {
		full = f.repo.defaultRef(f.request.Namespace)
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

// Common returns the haves that the repository has too, in the order in which they came.
func (f *Fetch) Common() []object.ID { return f.common }

// WantedRefs returns the refs of want-ref requests with the values that are sent.
func (f *Fetch) WantedRefs() []refs.Ref { return f.wanted }

// Ready tells whether enough is in common to send a good pack: every want has an ancestor among the haves.
func (f *Fetch) Ready(ctx context.Context) (bool, error) {
	if f.ready == nil {
		ready, err := f.wantsReachCommon(ctx)
		if err != nil {
			return false, fmt.Errorf("look for wants behind the common commits: %w", err)
		}
		f.ready = &ready
	}
	return *f.ready, nil
}

func (f *Fetch) wantsReachCommon(ctx context.Context) (bool, error) {
	if len(f.common) == 0 {
		return false, nil
	}
	return f.view.AllReach(ctx, f.wants, f.common)
}

// Boundary returns how the client's shallow boundary moves: commits that become shallow and commits that are so no longer.
func (f *Fetch) Boundary(ctx context.Context) (shallow, unshallow []object.ID, err error) {
	if f.bounded || !f.request.Deepens() {
		return f.shallow, f.unshallow, nil
	}
	options := odb.DeepenOptions{
		Depth:         f.request.Depth,
		Since:         f.request.Since,
		Relative:      f.request.Relative,
		ClientShallow: f.request.Shallow,
	}
	if f.request.Relative {
		for ref, err := range f.names.In(ctx, f.request.Namespace, "") {
			if err != nil {
				return nil, nil, fmt.Errorf("list refs: %w", err)
			}
			options.Tips = append(options.Tips, ref.ID)
		}
	}
	for _, name := range f.request.Not {
		revision, err := f.repo.resolve(ctx, f.names, f.view, f.request.Namespace, name)
		if err != nil {
			return nil, nil, err
		}
		options.Not = append(options.Not, revision.Commit)
	}
	f.shallow, f.unshallow, err = f.view.Deepen(ctx, f.wants, options)
	if err != nil {
		return nil, nil, fmt.Errorf("deepen: %w", err)
	}
	f.bounded = true
	return f.shallow, f.unshallow, nil
}

// Plan decides what the pack holds; progress hears lines for the client.
func (f *Fetch) Plan(ctx context.Context, progress func(string)) error {
	if _, _, err := f.Boundary(ctx); err != nil {
		return err
	}
	request := odb.PackRequest{
		Wants:         f.wants,
		Haves:         f.common,
		ClientShallow: f.request.Shallow,
		Shallow:       f.shallow,
		Unshallow:     f.unshallow,
		Filter:        f.filter,
		Thin:          f.request.Thin,
		OFSDelta:      f.request.OFSDelta,
	}
	if f.request.IncludeTag {
		for ref, err := range f.names.All(ctx, f.request.Namespace.TagPrefix()) {
			if err != nil {
				return fmt.Errorf("list tags: %w", err)
			}
			if !ref.Peeled.IsZero() {
				request.Tags = append(request.Tags, odb.TagTarget{Tag: ref.ID, Peeled: ref.Peeled})
			}
		}
	}
	plan, err := f.view.Plan(ctx, request, narrate(progress))
	if err != nil {
		return fmt.Errorf("plan pack: %w", err)
	}
	f.plan = plan
	return nil
}

// Send writes the planned pack.
func (f *Fetch) Send(ctx context.Context, w io.Writer, progress func(string)) error {
	if _, err := f.plan.WriteTo(ctx, w, narrate(progress)); err != nil {
		return fmt.Errorf("send pack: %w", err)
	}
	return nil
}
