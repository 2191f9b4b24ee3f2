package revwalk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"packhorse/odb"
	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// traceSet is a set of files of one folder and its subfolders that the trace has followed to the
// same commit. All of them are there as in the folder that the trace began with.
type traceSet struct {
	folder *tracedOut
	// seen is a tree known to contain the whole set unchanged; it need not be opened again.
	seen object.ID
	// items are the members of the set, in the order of the tree. A set that has not been opened holds
	// everything.
	items  []traceItem
	opened bool
	whole  bool // nothing has left the set
}

// traceItem is a file, or with a set a folder that is traced into, by its index in the entries.
type traceItem struct {
	index int32
	doubt int32 // 1 + the number of the commit that may have changed it, or 0; see doubt.go
	set   *traceSet
}

// tracedOut is a folder that is being traced. The sets of its files share it.
type tracedOut struct {
	tree   object.ID
	prefix string        // its path, empty or with a slash behind it
	base   *TracedFolder // the result of an earlier trace, or nil
	out    *TracedFolder // nil before the folder is opened
	keys   []bloom.Key   // of the entries; nil until a filter is consulted
}

// key returns the key of an entry of a folder that is open.
func (f *tracedOut) key(index int32) bloom.Key {
	if f.keys == nil {
		f.keys = make([]bloom.Key, len(f.out.Entries))
		for i := range f.out.Entries {
			f.keys[i] = bloom.NewKey(f.prefix + f.out.Entries[i].Name)
		}
	}
	return f.keys[index]
}

func newTraceSet(tree object.ID, prefix string, base *TracedFolder) *traceSet {
	return &traceSet{folder: &tracedOut{tree: tree, prefix: prefix, base: base}, seen: tree, whole: base == nil}
}

func (s *traceSet) entry(item traceItem) *TracedEntry { return &s.folder.out.Entries[item.index] }

// open reads the entries of the folder of a set.
func (t *tracer) open(ctx context.Context, s *traceSet) error {
	if s.opened {
		return nil
	}
	s.opened = true
	if err := t.readFolder(ctx, s.folder); err != nil {
		return err
	}
	return t.addItems(s, 0, len(s.folder.out.Entries))
}

// addItems makes items of some entries of the folder of a set.
func (t *tracer) addItems(s *traceSet, from, to int) error {
	f := s.folder
	items, err := t.admitItems(f, from, to)
	if err != nil {
		return err
	}
	s.items = make([]traceItem, 0, items)
	for i := from; i < to; i++ {
		e := &f.out.Entries[i]
		if e.known() {
			continue
		}
		item := traceItem{index: int32(i)}
		if e.Mode.IsTree() {
			if e.ID == object.EmptyTreeID {
				e.Folder = &TracedFolder{Tree: e.ID} // without history, to git too
				continue
			}
			item.set = newTraceSet(e.ID, f.prefix+e.Name+"/", e.Folder)
		}
		s.items = append(s.items, item)
	}
	return nil
}

// readFolder makes the result for a folder: from an earlier result, which is shared and stays
// unchanged, or from its tree.
func (t *tracer) readFolder(ctx context.Context, f *tracedOut) error {
	f.out = &TracedFolder{Tree: f.tree}
	if f.base != nil {
		if err := t.admitEntries(len(f.base.Entries), 0); err != nil {
			return err
		}
		f.out.Entries = slices.Clone(f.base.Entries)
	} else {
		data, err := t.view.ReadTree(ctx, f.tree)
		if err != nil {
			return err
		}
		count, it := 0, object.IterTree(data)
		for it.Next() {
			count++
		}
		if err := t.admitEntries(count, len(data)); err != nil {
			return err
		}
		f.out.Entries = make([]TracedEntry, 0, count)
		names := string(data) // one copy, which the names are parts of
		it = object.IterTree(data)
		for it.Next() {
			end := len(names) - len(it.Rest()) - object.IDSize - 1
			f.out.Entries = append(f.out.Entries,
				TracedEntry{Name: names[end-len(it.Name) : end], Mode: it.Mode.Canonical(), ID: it.ID})
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("read tree %s: %w", f.tree, err)
		}
	}
	return nil
}

// admitEntries asks for permission to keep the entries of another folder, their names, and the keys
// that filters are asked for.
func (t *tracer) admitEntries(count, namesBytes int) error {
	if t.admit == nil {
		return nil
	}
	const perEntry = int64(unsafe.Sizeof(TracedEntry{}) + unsafe.Sizeof(bloom.Key{}))
	return t.admit(int64(unsafe.Sizeof(TracedFolder{})) + int64(count)*perEntry + int64(namesBytes))
}

// admitItems asks for permission to keep the items of some entries of a folder, and what is kept of
// its subfolders before they are opened. It returns the number of items.
func (t *tracer) admitItems(f *tracedOut, from, to int) (count int, err error) {
	const perItem = int64(unsafe.Sizeof(traceItem{}))
	const perSet = int64(unsafe.Sizeof(tracedOut{}) + unsafe.Sizeof(traceSet{}))
	size := int64(0)
	for i := from; i < to; i++ {
		e := &f.out.Entries[i]
		if e.known() {
			continue
		}
		count++
		size += perItem
		if e.Mode.IsTree() {
			size += perSet + int64(len(f.prefix)+len(e.Name)+1)
		}
	}
	if t.admit == nil {
		return count, nil
	}
	return count, t.admit(size)
}

// limit opens a set with the files only that lie at a path below its folder, and for a flat trace
// leaves the folders there closed. Errors: [odb.NotFoundError] when nothing lies there.
func (t *tracer) limit(ctx context.Context, s *traceSet, path string) error {
	if path == "" {
		if err := t.open(ctx, s); err != nil {
			return err
		}
		for i := range s.items {
			if t.flat {
				s.items[i].set = nil
			}
		}
		return nil
	}
	s.opened, s.whole = true, false
	if err := t.readFolder(ctx, s.folder); err != nil {
		return err
	}
	name, rest, more := strings.Cut(path, "/")
	entries := s.folder.out.Entries
	at := slices.IndexFunc(entries, func(e TracedEntry) bool { return e.Name == name && (!more || e.Mode.IsTree()) })
	if at < 0 {
		return &odb.NotFoundError{Object: s.folder.tree}
	}
	if err := t.addItems(s, at, at+1); err != nil {
		return err
	}
	if len(s.items) > 0 && s.items[0].set != nil {
		return t.limit(ctx, s.items[0].set, rest)
	}
	return nil
}

// touches reports whether a filter may hold a file of the set. above covers the folders that the
// set lies in.
func (t *tracer) touches(
	ctx context.Context, s *traceSet, changed *bloom.Probe, above bloom.Cover,
) (bool, error) {
	if err := t.open(ctx, s); err != nil {
		return false, err
	}
	for _, item := range s.items {
		cover, ok := changed.HasBeside(above, s.folder.key(item.index))
		if !ok {
			continue
		}
		if item.set == nil {
			return true, nil
		}
		if found, err := t.touches(ctx, item.set, changed, cover); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// split divides a set into the files that are equal in a parent's tree and the rest; either may be
// nil. changed, if not nil, has every path at which the parent differs.
func (t *tracer) split(
	ctx context.Context, s *traceSet, tree object.ID, changed *bloom.Probe,
) (same, rest *traceSet, err error) {
	switch tree {
	case s.seen, s.folder.tree:
		return s, nil, nil
	case object.EmptyTreeID:
		return nil, s, nil
	}
	if err := t.open(ctx, s); err != nil {
		return nil, nil, err
	}
	data, err := t.view.ReadTree(ctx, tree)
	if err != nil {
		return nil, nil, err
	}
	it := object.IterTree(data)
	more := it.Next()
	kept, moved := s.items[:0], []traceItem(nil)
	for _, item := range s.items {
		e := s.entry(item)
		for more && object.CompareEntries(it.Name, it.Mode.IsTree(), e.Name, e.Mode.IsTree()) < 0 {
			more = it.Next()
		}
		found := more && string(it.Name) == e.Name && it.Mode.IsTree() == e.Mode.IsTree()
		if item.set == nil {
			if found && it.ID == e.ID && it.Mode.Canonical() == e.Mode {
				kept = append(kept, item)
			} else {
				moved = append(moved, item)
			}
			continue
		}
		below := object.EmptyTreeID
		if found {
			below = it.ID
		}
		sameBelow, restBelow, err := t.splitBelow(ctx, s, item, below, changed)
		if err != nil {
			return nil, nil, err
		}
		if sameBelow != nil {
			kept = append(kept, traceItem{index: item.index, set: sameBelow})
		}
		if restBelow != nil {
			moved = append(moved, traceItem{index: item.index, set: restBelow})
		}
	}
	if err := it.Err(); err != nil {
		return nil, nil, fmt.Errorf("read tree %s: %w", tree, err)
	}
	if len(moved) == 0 {
		s.seen = tree
		return s, nil, nil
	}
	rest = &traceSet{folder: s.folder, seen: s.seen, items: moved, opened: true, whole: s.whole && len(kept) == 0}
	if len(kept) == 0 {
		return nil, rest, nil
	}
	s.items, s.seen, s.whole = kept, tree, false
	return s, rest, nil
}

// splitBelow splits the set of a folder within the set s, unless the filter shows that nothing in
// it changed.
func (t *tracer) splitBelow(
	ctx context.Context, s *traceSet, item traceItem, tree object.ID, changed *bloom.Probe,
) (same, rest *traceSet, err error) {
	if changed != nil {
		cover, touched := changed.HasBeside(bloom.Cover{}, s.folder.key(item.index))
		if touched {
			if touched, err = t.touches(ctx, item.set, changed, cover); err != nil {
				return nil, nil, err
			}
		}
		if !touched {
			return item.set, nil, nil
		}
	}
	return t.split(ctx, item.set, tree, changed)
}

// join merges two sets of one folder that have reached the same commit.
func join(a, b *traceSet) *traceSet {
	if a.seen != b.seen {
		a.seen = a.folder.tree
	}
	items := make([]traceItem, 0, len(a.items)+len(b.items))
	i, j := 0, 0
	for i < len(a.items) && j < len(b.items) {
		switch x, y := a.items[i], b.items[j]; {
		case x.index < y.index:
			items = append(items, x)
			i++
		case y.index < x.index:
			items = append(items, y)
			j++
		default:
			items = append(items, traceItem{index: x.index, set: join(x.set, y.set)})
			i, j = i+1, j+1
		}
	}
	items = append(items, a.items[i:]...)
	a.items = append(items, b.items[j:]...)
	a.opened, a.whole = true, false
	return a
}
