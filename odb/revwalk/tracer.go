package revwalk

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/bloom"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// tracer is the state of one trace.
type tracer struct {
	history *Graph
	view    *odb.View
	filters *odb.PathFilters
	known   func(commit object.ID) *TracedFolder // or nil
	admit   func(sizeBytes int64) error          // or nil
	flat    bool
	queue   Queue       // by generation: no commit before its children
	waiting []*traceSet // by number of the commit
	hits    []int32     // what the last call of doubt found
}

// run follows a set from the tip until all of its files have a commit.
func (t *tracer) run(ctx context.Context, tip int32, set *traceSet) error {
	if len(set.items) == 0 {
		return nil
	}
	if err := t.arrive(ctx, tip, set); err != nil {
		return err
	}
	for t.queue.Len() > 0 {
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		n := t.queue.Pop()
		set := t.waiting[n]
		t.waiting[n] = nil
		if t.known != nil && n != tip {
			if known := t.known(t.history.ID(n)); known != nil {
				var err error
				if set, err = t.settleDoubts(ctx, set, t.history.Tree(n)); err == nil && set != nil {
					set, err = t.recall(ctx, set, known)
				}
				if err != nil {
					return err
				}
			}
		}
		if set == nil {
			continue
		}
		if err := t.pass(ctx, n, set); err != nil {
			return err
		}
	}
	return nil
}

// arrive adds a set to those that wait at commit n.
func (t *tracer) arrive(ctx context.Context, n int32, set *traceSet) error {
	if err := t.history.Rank(ctx, n); err != nil {
		return err
	}
	if len(t.waiting) <= int(n) {
		t.waiting = append(t.waiting, make([]*traceSet, len(t.history.nodes)-len(t.waiting))...)
	}
	if waiting := t.waiting[n]; waiting != nil {
		t.waiting[n] = join(waiting, set)
		return nil
	}
	t.waiting[n] = set
	t.queue.Push(n, int64(t.history.nodes[n].generation))
	return nil
}

// pass moves the files of a set to the first parent in which they are as in commit n. Commit n has
// changed the rest.
func (t *tracer) pass(ctx context.Context, n int32, set *traceSet) error {
	h := t.history
	for i := range h.nodes[n].parentCount {
		parent := h.ParentsOf(n)[i]
		if err := h.Load(ctx, parent); err != nil {
			return err
		}
		same, rest, err := t.compare(ctx, n, i, set)
		if err != nil {
			return err
		}
		if same != nil {
			if err := t.arrive(ctx, parent, same); err != nil {
				return err
			}
		}
		if set = rest; set == nil {
			return nil
		}
	}
	set, err := t.settleDoubts(ctx, set, h.Tree(n))
	if set == nil || err != nil {
		return err
	}
	return t.resolve(ctx, set, h.ID(n))
}

// compare splits the set of commit n into the files that are equal in its i-th parent and the rest.
func (t *tracer) compare(ctx context.Context, n, i int32, set *traceSet) (same, rest *traceSet, err error) {
	h := t.history
	tree := h.nodes[h.ParentsOf(n)[i]].tree
	if tree == h.nodes[n].tree {
		return set, nil, nil
	}
	if i > 0 {
		return t.split(ctx, set, tree, nil)
	}
	filter, err := t.filters.Find(ctx, h.ID(n))
	if err != nil {
		return nil, nil, err
	}
	var changed *bloom.Probe
	if filter != nil {
		probe := filter.Probe()
		changed = &probe
		if t.flat && h.ParentCount(n) == 1 {
			same, err = t.doubt(ctx, n, set, tree, changed)
			return same, nil, err
		}
		if touched, err := t.touches(ctx, set, changed, bloom.Cover{}); !touched || err != nil {
			return set, nil, err
		}
	}
	if set, err = t.settleDoubts(ctx, set, h.Tree(n)); set == nil || err != nil {
		return nil, nil, err
	}
	return t.split(ctx, set, tree, changed)
}

// resolve assigns a commit to every file of a set; to a doubtful one it assigns that of the doubt.
func (t *tracer) resolve(ctx context.Context, s *traceSet, commit object.ID) error {
	if err := t.open(ctx, s); err != nil {
		return err
	}
	for _, item := range s.items {
		e := s.entry(item)
		if item.set != nil {
			if err := t.resolve(ctx, item.set, commit); err != nil {
				return err
			}
			e.Folder = item.set.folder.out
			continue
		}
		at := commit
		if item.doubt != 0 {
			at = t.history.ID(item.doubt - 1)
		}
		if err := t.settle(ctx, e, at); err != nil {
			return err
		}
	}
	return nil
}

// settle assigns a commit to a file, or a folder of a flat trace.
func (t *tracer) settle(ctx context.Context, e *TracedEntry, commit object.ID) error {
	e.Last = commit
	if e.Mode.IsGitlink() || e.Mode.IsTree() {
		return nil
	}
	info, err := t.view.Stat(ctx, e.ID)
	e.Size = info.Size
	return err
}

// recall assigns the commits that an earlier trace of the set's commit found to the files of the
// set, and returns the rest, or nil.
func (t *tracer) recall(ctx context.Context, s *traceSet, known *TracedFolder) (*traceSet, error) {
	if err := t.open(ctx, s); err != nil {
		return nil, err
	}
	rest := s.items[:0]
	at := 0
	for _, item := range s.items {
		e := s.entry(item)
		for at < len(known.Entries) &&
			object.CompareEntries(known.Entries[at].Name, known.Entries[at].Mode.IsTree(), e.Name, e.Mode.IsTree()) < 0 {
			at++
		}
		if at == len(known.Entries) || known.Entries[at].Name != e.Name {
			rest = append(rest, item)
			continue
		}
		left, err := t.recallEntry(ctx, e, item, &known.Entries[at])
		if err != nil {
			return nil, err
		}
		if left {
			rest = append(rest, item)
		}
		if item.set != nil && !item.set.whole {
			s.whole = false
		}
	}
	if len(rest) < len(s.items) {
		s.items, s.whole = rest, false
	}
	if len(rest) == 0 {
		return nil, nil
	}
	return s, nil
}

// recallEntry is recall for one entry, and reports whether a part of it is still unknown. It shares
// a folder that is known completely.
func (t *tracer) recallEntry(
	ctx context.Context, e *TracedEntry, item traceItem, known *TracedEntry,
) (left bool, err error) {
	switch {
	case item.set == nil:
		if known.Last.IsZero() {
			return true, nil
		}
		e.Last, e.Size = known.Last, known.Size
		return false, nil
	case known.Folder == nil:
		return true, nil
	case item.set.whole && known.ID == e.ID && known.Folder.Complete:
		e.Folder = known.Folder
		return false, nil
	default:
		set, err := t.recall(ctx, item.set, known.Folder)
		e.Folder = item.set.folder.out
		return set != nil, err
	}
}
