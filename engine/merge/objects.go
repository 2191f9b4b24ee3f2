package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"packhorse/engine/diff"
	"packhorse/engine/diff/lines"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// objects are those of a pool, and new ones that only the merges of a [Merger] know.
type objects struct {
	view  *odb.View
	fresh map[object.ID]*freshObject
	// contents are the outcomes of merges of blobs, which are fresh.
	contents map[contentKey]mergedContent
	// bases are texts that were bases of such merges, trees those of merge bases, and baseSize the
	// memory that they all take.
	bases    map[object.ID]*lines.Base
	trees    map[object.ID][]byte
	baseSize int64
	several  bool  // this is not the first merge
	size     int64 // of all fresh ones
	before   int64 // size when the merge began
	sizeMax  int64 // of those that the merge makes
}

// freshObject is one that a merge made.
type freshObject struct {
	kind        object.Type
	data        []byte
	predecessor object.ID // of the same path on our side, zero if there is none
	written     bool
}

func newObjects(view *odb.View) *objects {
	return &objects{
		view: view, fresh: make(map[object.ID]*freshObject), contents: make(map[contentKey]mergedContent),
		bases: make(map[object.ID]*lines.Base), trees: make(map[object.ID][]byte),
	}
}

// Bounds of what a merge finds from those before it, in bytes: what the request has anyhow, and,
// from the second merge on, what it may take of memory that nobody else wants.
const (
	keptMin = 4 << 20
	keptMax = 64 << 20
)

// mayKeep reports whether the next merge may find all there is and more bytes.
func (o *objects) mayKeep(ctx context.Context, more int64) bool {
	kept := o.size + o.baseSize + more
	return kept <= keptMin ||
		o.several && kept <= keptMax && fair.Spare(ctx, pathsFrom+kept) >= pathsFrom+kept
}

// keepBase keeps the text of a blob for other merges that have it as their base.
func (o *objects) keepBase(ctx context.Context, id object.ID, base *lines.Base) {
	if size := base.Size(); o.mayKeep(ctx, size) {
		o.bases[id] = base
		o.baseSize += size
	}
}

// beginMerge begins a merge, which may make new objects of sizeMax bytes.
func (o *objects) beginMerge(sizeMax int64, several bool) {
	o.before, o.sizeMax, o.several = o.size, sizeMax, several
}

// blob returns the bytes of a blob, which are not to be changed.
func (o *objects) blob(ctx context.Context, id object.ID) ([]byte, error) {
	if f, ok := o.fresh[id]; ok {
		return f.data, nil
	}
	t, data, err := o.view.Read(ctx, id)
	if err == nil && t != object.TypeBlob {
		err = &odb.TypeError{Object: id, Type: t, Want: object.TypeBlob}
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	return data, nil
}

// tree returns the bytes of a tree, which are not to be changed; the zero ID means none.
func (o *objects) tree(ctx context.Context, id object.ID) ([]byte, error) {
	if f, ok := o.fresh[id]; ok {
		return f.data, nil
	}
	data, err := o.view.ReadTree(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read tree %s: %w", id, err)
	}
	return data, nil
}

// baseTree is tree for one of a merge base, which other merges are likely to have, too.
func (o *objects) baseTree(ctx context.Context, id object.ID) ([]byte, error) {
	if data, ok := o.trees[id]; ok {
		return data, nil
	}
	data, err := o.tree(ctx, id)
	if _, isFresh := o.fresh[id]; err == nil && !isFresh && o.mayKeep(ctx, int64(len(data))) {
		o.trees[id] = data
		o.baseSize += int64(len(data))
	}
	return data, err
}

// fingerprint returns the similarity fingerprint of a file.
func (o *objects) fingerprint(ctx context.Context, id object.ID) (*diff.Fingerprint, error) {
	if f, ok := o.fresh[id]; ok {
		return diff.NewFingerprint(f.data), nil
	}
	return diff.ReadFingerprint(ctx, o.view, id)
}

func (o *objects) blobSize(ctx context.Context, id object.ID) (int64, error) {
	if f, ok := o.fresh[id]; ok {
		return int64(len(f.data)), nil
	}
	info, err := o.view.Stat(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("look up blob %s: %w", id, err)
	}
	return info.Size, nil
}

// begin returns the first bytes of a blob, sizeMax at most, and its size.
func (o *objects) begin(ctx context.Context, id object.ID, sizeMax int64) (data []byte, size int64, err error) {
	if size, err = o.blobSize(ctx, id); err != nil {
		return nil, 0, err
	}
	if f, ok := o.fresh[id]; ok {
		return f.data[:min(size, sizeMax)], size, nil
	}
	stream, err := o.view.Open(ctx, id)
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	section, err := stream.Section(0, sizeMax)
	if err != nil {
		return nil, 0, fmt.Errorf("read blob %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, section.Close()) }()
	data = make([]byte, min(size, sizeMax))
	if _, err = io.ReadFull(section, data); err != nil {
		return nil, 0, fmt.Errorf("read blob %s: %w", id, err)
	}
	return data, size, nil
}

// add makes an object and returns its ID. data is kept. Errors: [ErrTooLarge].
func (o *objects) add(t object.Type, data []byte, predecessor object.ID) (object.ID, error) {
	id, err := object.Hash(t, data)
	if err != nil {
		return object.ZeroID, fmt.Errorf("hash %s: %w", t, err)
	}
	if _, ok := o.fresh[id]; ok {
		return id, nil
	}
	if o.size+int64(len(data))-o.before > o.sizeMax {
		return object.ZeroID, ErrTooLarge
	}
	o.size += int64(len(data))
	o.fresh[id] = &freshObject{kind: t, data: data, predecessor: predecessor}
	return id, nil
}

// NewObject is an object that a merge made.
type NewObject struct {
	ID   object.ID
	Type object.Type
	// Data is the content, shared and read-only.
	Data []byte
	// predecessor is the object at the same path on our side, zero if there is none.
	predecessor object.ID
	path        string
}

// Write stores the object. Errors: those of [odb.Quarantine.Write].
func (n *NewObject) Write(ctx context.Context, q *odb.Quarantine) error {
	err := q.WriteHashed(ctx, n.ID, n.Type, n.Data, n.predecessor)
	if err != nil && n.path != "" {
		return odb.InFolder(n.path, err)
	}
	return err
}

// unwritten appends the new objects of a tree or blob at a path that were not appended before, each
// behind those that it names.
func (o *objects) unwritten(to []NewObject, id object.ID, path string) ([]NewObject, error) {
	f, ok := o.fresh[id]
	if !ok || f.written {
		return to, nil
	}
	if f.kind == object.TypeTree {
		data := f.data
		if before := o.fresh[f.predecessor]; before != nil && before.written {
			data = object.OwnEntries(data, before.data) // what that one names is written
		}
		it := object.IterTree(data)
		for it.Next() {
			if below, ok := o.fresh[it.ID]; !ok || below.written || it.Mode.Type() == object.TypeCommit {
				continue
			}
			var err error
			if to, err = o.unwritten(to, it.ID, join(path, string(it.Name))); err != nil {
				return to, err
			}
		}
		if err := it.Err(); err != nil {
			return to, fmt.Errorf("read merged tree %s: %w", id, err)
		}
	}
	predecessor := f.predecessor
	if p, ok := o.fresh[predecessor]; ok && !p.written {
		predecessor = object.ZeroID // an object of a virtual merge base, or of a conflict
	}
	f.written = true
	return append(to, NewObject{ID: id, Type: f.kind, Data: f.data, predecessor: predecessor, path: path}), nil
}

// find returns the entry at a path below a tree.
func (o *objects) find(ctx context.Context, tree object.ID, path string) (Version, error) {
	v := Version{object.ModeTree, tree}
	for name := range strings.SplitSeq(path, "/") {
		if !v.Mode.IsTree() {
			return Version{}, nil
		}
		data, err := o.tree(ctx, v.ID)
		if err != nil {
			return Version{}, err
		}
		v = Version{}
		it := object.IterTree(data)
		for it.Next() {
			if bytes.Equal(it.Name, []byte(name)) {
				v = Version{it.Mode.Canonical(), it.ID}
				break
			}
		}
		if err := it.Err(); err != nil {
			return Version{}, fmt.Errorf("read tree: %w", err)
		}
	}
	return v, nil
}

func itoa(i int) string { return strconv.Itoa(i) }
