package merge

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// Merger makes merges in one view, one after the other. It keeps for the next one what it made:
// objects, the outcomes of merged contents, and virtual merge bases.
type Merger struct {
	// BeforeForget, if set, is called before the merger drops the objects that it kept: what
	// [Result.NewObjects] returned has to be in the view when it returns.
	BeforeForget func(ctx context.Context) error

	view      *odb.View
	relations *revwalk.Relations
	objects   *objects
	// bases are the trees of virtual merge bases. They are among the objects.
	bases map[string]object.ID
}

// NewMerger returns a merger that reads from view, which must stay open while its results are used.
// relations are those of the commits of view; a merger that does not merge commits has none.
func NewMerger(view *odb.View, relations *revwalk.Relations) *Merger {
	return &Merger{view: view, relations: relations}
}

// begin prepares for a merge.
func (m *Merger) begin(ctx context.Context, o *Options) error {
	o.fill()
	several := m.objects != nil
	keeps := several && m.objects.mayKeep(ctx, 0)
	if several && !keeps && m.BeforeForget != nil {
		if err := m.BeforeForget(ctx); err != nil {
			return err
		}
	}
	if !keeps {
		m.objects, m.bases = newObjects(m.view), make(map[string]object.ID)
	}
	m.objects.beginMerge(o.BytesMax, several)
	return nil
}

// Commits merges commit theirs into commit ours, whose merge bases are given, newest first. Several
// of them, as after criss-cross merges, are merged with each other first, conflicts and all, and
// the result is the base.
//
// Errors: [ErrUnrelated] when there is no merge base and the options do not allow that;
// [ErrTooLarge]; those of reading objects.
func (m *Merger) Commits(ctx context.Context, ours, theirs object.ID, bases []object.ID, o Options) (*Result, error) {
	if len(bases) == 0 && !o.Unrelated {
		return nil, ErrUnrelated
	}
	if err := m.begin(ctx, &o); err != nil {
		return nil, err
	}
	r := &recursion{merger: m, Options: o}
	return r.merge(ctx, commitOf(ours), commitOf(theirs), bases, 0)
}

// Trees merges tree theirs into tree ours, both of which come from tree base. Each may be the empty
// tree. Errors: [ErrTooLarge]; those of reading objects.
func (m *Merger) Trees(ctx context.Context, base, ours, theirs object.ID, o Options) (*Result, error) {
	if err := m.begin(ctx, &o); err != nil {
		return nil, err
	}
	return mergeTrees(ctx, m.objects, [3]object.ID{base, ours, theirs}, o, 0)
}
