package revwalk

import (
	"context"
	"unsafe"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Listing returns the commits reachable from a tip one by one, by date, as [Walk] does, or as
// [WalkPath] with a path. Between two of them it may rest until a client asks for the next page; it
// then holds memory and no view. It is for one goroutine at a time.
type Listing struct {
	walk  *Walker
	path  string
	paths *pathChanges // nil without a path, and at rest
}

// List begins a listing, which uses v until it rests. Errors: [odb.ErrNotFound] for the tip, and
// those of reading.
func List(ctx context.Context, v *odb.View, tip object.ID, path string) (*Listing, error) {
	l := &Listing{walk: NewWalker(v, WalkOptions{}), path: path}
	if err := l.Resume(ctx, v); err != nil {
		return nil, err
	}
	if err := l.walk.Start(ctx, []object.ID{tip}, nil); err != nil {
		l.Rest()
		return nil, err
	}
	return l, nil
}

// Next returns the next commit, or false at the end. After an error the listing is unusable.
func (l *Listing) Next(ctx context.Context) (Commit, bool, error) {
	for {
		n, ok, err := l.walk.next(ctx)
		if !ok || err != nil {
			return Commit{}, false, err
		}
		if !l.walk.Graph.Has(n, markSame) {
			return l.walk.Graph.commit(n), true, nil
		}
	}
}

// Rest releases the view, filters and histories.
func (l *Listing) Rest() {
	if l.paths != nil {
		l.paths.close()
		l.paths, l.walk.simplify = nil, nil
	}
	l.walk.Graph.view, l.walk.Graph.linked = nil, nil
}

// Resume continues with a view of the same pool. Errors: [odb.ErrNotFound] if the tip is not
// readable.
func (l *Listing) Resume(ctx context.Context, v *odb.View) error {
	l.walk.Graph.view, l.walk.Graph.linked = v, v.Linked()
	if l.path == "" {
		return nil
	}
	var err error
	if l.paths, err = newPathChanges(ctx, v, l.path); err != nil {
		return err
	}
	l.walk.simplify = l.paths.simplify
	return nil
}

// Bytes returns approximately the memory in bytes that the listing takes at rest.
func (l *Listing) Bytes() int64 {
	h := l.walk.Graph
	return int64(unsafe.Sizeof(*l)) + int64(unsafe.Sizeof(*l.walk)) + int64(unsafe.Sizeof(*h)) +
		int64(cap(h.table.ids))*object.IDSize + int64(cap(h.table.slots))*4 + int64(cap(h.parents))*4 +
		int64(cap(h.nodes))*int64(unsafe.Sizeof(commitNode{})) + int64(cap(l.walk.queue.heap))*int64(unsafe.Sizeof(queued{}))
}
