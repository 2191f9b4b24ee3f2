package patch

import (
	"context"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
)

// entry is the entry of a path.
type entry struct {
	mode object.Mode // as git reads it
	id   object.ID
}

// base is the tree that a patch is applied to. Folders stay open between lookups, so that many
// files of one folder cost little.
type base struct {
	view    *odb.View
	root    object.ID
	folders map[string]map[string]entry
	count   int // entries that folders hold
}

// entriesMax bounds the entries in memory.
const entriesMax = 500_000

// lookup returns the entry at a path: a file, a link, a submodule or a folder.
func (b *base) lookup(ctx context.Context, path string) (entry, bool, error) {
	above, name := "", path
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		above, name = path[:i], path[i+1:]
	}
	folder, err := b.folder(ctx, above)
	e, ok := folder[name]
	return e, ok, err
}

// file is lookup for entries that are not folders.
func (b *base) file(ctx context.Context, path string) (entry, bool, error) {
	e, ok, err := b.lookup(ctx, path)
	return e, ok && !e.mode.IsTree(), err
}

// folder returns the entries of a folder, none if there is no such folder.
func (b *base) folder(ctx context.Context, path string) (map[string]entry, error) {
	if entries, ok := b.folders[path]; ok {
		return entries, nil
	}
	id := b.root
	if path != "" {
		e, ok, err := b.lookup(ctx, path)
		if err != nil {
			return nil, err
		}
		if !ok || !e.mode.IsTree() {
			return nil, nil
		}
		id = e.id
	}
	data, err := b.view.ReadTree(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read tree %s: %w", id, err)
	}
	entries := make(map[string]entry)
	it := object.IterTree(data)
	for it.Next() {
		entries[string(it.Name)] = entry{mode: it.Mode.Canonical(), id: it.ID}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read tree %s: %w", id, err)
	}
	if b.count += len(entries); b.count > entriesMax || b.folders == nil {
		b.folders, b.count = make(map[string]map[string]entry), len(entries)
	}
	b.folders[path] = entries
	return entries, nil
}

// keeps returns a file at or below a folder that removed does not name, "" if there is none.
func (b *base) keeps(ctx context.Context, path string, removed map[string]bool) (string, error) {
	folder, err := b.folder(ctx, path)
	if err != nil {
		return "", err
	}
	for name, e := range folder {
		below := path + "/" + name
		if !e.mode.IsTree() {
			if !removed[below] {
				return below, nil
			}
			continue
		}
		if kept, err := b.keeps(ctx, below, removed); kept != "" || err != nil {
			return kept, err
		}
	}
	return "", nil
}
