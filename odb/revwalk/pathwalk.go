package revwalk

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"packhorse/odb"
	"packhorse/odb/bloom"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// WalkPath gives the commits reachable from tips that changed the file or folder at path, as git
// log -- path does with its default simplification of history: it follows a merge that is equal to
// a parent at path to that parent alone, and does not give the merge. The order is that of
// [OrderDate]; the parents are the real ones.
//
// The empty path is the whole tree: commits that changed nothing at all are missing. Memory follows
// the visited part, with about 200 bytes a commit and folder on the path. Errors end the walk:
// [odb.ErrNotFound] for a tip, and those of reading.
func WalkPath(ctx context.Context, v *odb.View, tips []object.ID, path string) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		w := NewWalker(v, WalkOptions{})
		p, err := newPathChanges(ctx, v, path)
		if err != nil {
			yield(Commit{}, err)
			return
		}
		defer p.close()
		w.simplify = p.simplify
		if err := w.Start(ctx, tips, nil); err != nil {
			yield(Commit{}, err)
			return
		}
		for {
			n, ok, err := w.next(ctx)
			if err != nil {
				yield(Commit{}, err)
				return
			}
			if !ok {
				return
			}
			if w.Graph.Has(n, markSame) {
				continue
			}
			if !yield(w.Graph.commit(n), nil) {
				return
			}
		}
	}
}

// pathChanges determines which commits changed a path. It reads every tree on the way once.
type pathChanges struct {
	view    *odb.View
	names   []string
	keys    []bloom.Key
	filters *odb.PathFilters
	history *odb.PathHistories
	entries map[pathStep]pathEntry
}

func (p *pathChanges) close() {
	p.filters.Close()
	p.history.Close()
}

// pathStep is a tree and the index of the name that leads on from it.
type pathStep struct {
	tree object.ID
	name int
}

// pathEntry is the entry at a path; zero if there is none.
type pathEntry struct {
	mode object.Mode
	id   object.ID
}

func newPathChanges(ctx context.Context, v *odb.View, path string) (*pathChanges, error) {
	p := &pathChanges{
		view: v, filters: &odb.PathFilters{}, history: &odb.PathHistories{}, entries: make(map[pathStep]pathEntry),
	}
	if path == "" {
		return p, nil
	}
	p.names, p.keys = strings.Split(path, "/"), bloom.Keys(path)
	history, err := v.OpenHistories(ctx, segment.PathID(path))
	if err != nil {
		return nil, fmt.Errorf("open path histories: %w", err)
	}
	p.history = history
	if p.filters, err = v.OpenFilters(ctx); err != nil {
		history.Close()
		return nil, fmt.Errorf("open path filters: %w", err)
	}
	return p, nil
}

// verdict is what is known, without reading a tree, of a commit and a path.
type verdict int

const (
	unknown   verdict = iota // whether the commit changed something there
	untouched                // it has what the parent has
	touched                  // it has not
)

// look finds out what histories and filters know of a commit and one of its parents, by index. The
// change is that of a touched one.
func (p *pathChanges) look(ctx context.Context, commit object.ID, parent int) (verdict, *segment.PathChange, error) {
	change, known, err := p.history.Find(ctx, commit, parent)
	switch {
	case err != nil:
		return unknown, nil, err
	case change != nil:
		return touched, change, nil
	case known:
		return untouched, nil, nil
	case parent > 0: // filters are about the first one
		return unknown, nil, nil
	}
	f, err := p.filters.Find(ctx, commit)
	if err != nil || f == nil || f.HasAll(p.keys) {
		return unknown, nil, err
	}
	return untouched, nil, nil
}

// simplify marks commit n, which is loaded, with markSame if a parent is equal at the path, and
// makes the walk follow only the first such parent. A commit without parents gets the mark if it
// has nothing at the path.
func (p *pathChanges) simplify(ctx context.Context, h *Graph, n int32) error {
	tree := h.nodes[n].tree
	if h.nodes[n].parentCount == 0 {
		same, err := p.same(ctx, tree, object.EmptyTreeID)
		if same {
			h.Set(n, markSame)
		}
		return err
	}
	for i := range h.nodes[n].parentCount {
		parent := h.ParentsOf(n)[i]
		if err := h.Load(ctx, parent); err != nil {
			return err
		}
		known, _, err := p.look(ctx, h.ID(n), int(i))
		same := known == untouched
		if err == nil && known == unknown {
			same, err = p.same(ctx, tree, h.nodes[parent].tree)
		}
		if err != nil {
			return fmt.Errorf("changes of commit %s: %w", h.ID(n), err)
		}
		if same {
			node := &h.nodes[n]
			node.marks |= markSame
			node.parentStart, node.parentCount = node.parentStart+i, 1
			return nil
		}
	}
	return nil
}

// same reports whether two trees are equal at the path. It opens trees only as far as they differ.
func (p *pathChanges) same(ctx context.Context, a, b object.ID) (bool, error) {
	at, bt := pathEntry{object.ModeTree, a}, pathEntry{object.ModeTree, b}
	for i := range p.names {
		if at == bt {
			return true, nil
		}
		var err error
		if at, err = p.entry(ctx, at, i); err != nil {
			return false, err
		}
		if bt, err = p.entry(ctx, bt, i); err != nil {
			return false, err
		}
	}
	return at == bt, nil
}

// entry returns the entry with the name of index i in a folder.
func (p *pathChanges) entry(ctx context.Context, folder pathEntry, i int) (pathEntry, error) {
	if !folder.mode.IsTree() || folder.id == object.EmptyTreeID {
		return pathEntry{}, nil
	}
	step := pathStep{folder.id, i}
	if found, ok := p.entries[step]; ok {
		return found, nil
	}
	data, err := p.view.ReadTree(ctx, folder.id)
	if err != nil {
		return pathEntry{}, err
	}
	var found pathEntry
	it := object.IterTree(data)
	for it.Next() {
		if string(it.Name) == p.names[i] {
			found = pathEntry{it.Mode.Canonical(), it.ID}
			break
		}
	}
	if err := it.Err(); err != nil {
		return pathEntry{}, fmt.Errorf("read tree %s: %w", folder.id, err)
	}
	if found.mode.IsTree() && found.id == object.EmptyTreeID {
		found = pathEntry{} // git does not see an empty folder
	}
	p.entries[step] = found
	return found, nil
}
