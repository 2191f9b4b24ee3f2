package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/pack/object"
)

// ErrInTheWay says that a conflict was resolved by a file where the merge has a folder, or below
// another file.
var ErrInTheWay = errors.New("merge: a file and a folder would have the same path")

// AddBlob makes a blob that [Result.Resolve] may name. data is kept. Errors: [ErrTooLarge].
func (r *Result) AddBlob(data []byte) (object.ID, error) {
	return r.objects.add(object.TypeBlob, data, object.ZeroID)
}

// Resolve makes the entries of the merged tree at paths that conflict the given ones, and takes the
// conflicts at these paths from the list. A version without a mode removes the file. Errors:
// [ErrInTheWay], and nothing is changed then; [ErrTooLarge]; those of reading trees.
func (r *Result) Resolve(ctx context.Context, versions map[string]Version) error {
	root := &place{}
	for path, v := range versions {
		at := root
		for name := range strings.SplitSeq(path, "/") {
			at = at.below(name)
		}
		at.version = &v
	}
	tree, err := r.objects.replace(ctx, r.Tree, root, "")
	if err != nil {
		return err
	}
	if tree.IsZero() {
		if tree, err = r.objects.add(object.TypeTree, nil, object.ZeroID); err != nil {
			return err
		}
	}
	r.Tree = tree
	r.Conflicts = slices.DeleteFunc(slices.Clone(r.Conflicts), func(c Conflict) bool {
		_, ok := versions[c.Path]
		return ok && c.Staged()
	})
	return nil
}

// place is a path, or a folder above one, that gets another entry.
type place struct {
	version *Version // nil where only something below changes
	places  map[string]*place
}

func (p *place) below(name string) *place {
	if p.places == nil {
		p.places = make(map[string]*place)
	}
	if p.places[name] == nil {
		p.places[name] = &place{}
	}
	return p.places[name]
}

// replace returns the tree of a folder with other entries at some places below it, zero for an
// empty folder.
func (o *objects) replace(ctx context.Context, tree object.ID, p *place, path string) (object.ID, error) {
	data, err := o.tree(ctx, tree)
	if err != nil {
		return object.ZeroID, err
	}
	var entries []object.TreeEntry
	met := make(map[string]bool, len(p.places))
	put := func(name string, there Version) error {
		met[name] = true
		v, err := o.entry(ctx, there, p.places[name], join(path, name))
		if err == nil && v.Mode != 0 {
			entries = append(entries, object.TreeEntry{Mode: v.Mode, Name: name, ID: v.ID})
		}
		return err
	}
	it := object.IterTree(data)
	for it.Next() {
		name, there := string(it.Name), Version{it.Mode.Canonical(), it.ID}
		if p.places[name] == nil {
			entries = append(entries, object.TreeEntry{Mode: there.Mode, Name: name, ID: there.ID})
		} else if err := put(name, there); err != nil {
			return object.ZeroID, err
		}
	}
	if err := it.Err(); err != nil {
		return object.ZeroID, fmt.Errorf("read tree %s: %w", tree, err)
	}
	for name := range p.places {
		if !met[name] {
			if err := put(name, Version{}); err != nil {
				return object.ZeroID, err
			}
		}
	}
	if len(entries) == 0 {
		return object.ZeroID, nil
	}
	object.SortTree(entries)
	predecessor := tree
	if f, ok := o.fresh[tree]; ok {
		predecessor = f.predecessor
	}
	return o.add(object.TypeTree, object.AppendTree(nil, entries), predecessor)
}

// entry returns the entry at a place that has the entry there so far. A removed file does not
// remove a folder that stands in its place.
func (o *objects) entry(ctx context.Context, there Version, p *place, path string) (Version, error) {
	if p.version != nil && !there.Mode.IsTree() {
		there = *p.version
	}
	var folder object.ID
	if there.Mode.IsTree() {
		folder = there.ID
	}
	below := folder
	if len(p.places) > 0 {
		var err error
		if below, err = o.replace(ctx, folder, p, path); err != nil {
			return Version{}, err
		}
	}
	isFile := p.version != nil && p.version.Mode != 0 || there.Mode != 0 && !there.Mode.IsTree()
	switch {
	case below.IsZero() && p.version != nil:
		return *p.version, nil
	case below.IsZero() && !there.Mode.IsTree():
		return there, nil
	case below.IsZero():
		return Version{}, nil
	case isFile:
		return Version{}, fmt.Errorf("%w: %s", ErrInTheWay, path)
	default:
		return Version{object.ModeTree, below}, nil
	}
}
