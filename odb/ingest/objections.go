package ingest

import (
	"context"
	"sync"

	"packhorse/odb"
	"packhorse/pack/object"
)

// objections are what git's checks say against stored objects. Those have come in under the rules
// of their day, and nothing but a new history would change them: they are told, and kept.
type objections struct {
	mu    sync.Mutex // guards the fields below
	count int
	id    object.ID // of the first
	err   error
}

// judge returns err, which checks of content have found, unless the pack is made of what is stored.
func (in *Ingest) judge(id object.ID, err error) error {
	if in.options.Own == nil || !odb.IsObjection(err) {
		return err
	}
	o := &in.options.Own.objections
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count++; o.count == 1 {
		o.id, o.err = id, err
	}
	return nil
}

// log tells of what was found while layers of a pool were rewritten.
func (o *objections) log(ctx context.Context, in *Ingest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count > 0 {
		in.store.Env().Log.WarnContext(ctx, "git's fsck objects to stored objects, which stay as they are",
			"pool", in.view.Pool().String(), "objects", o.count, "first", o.id.String(), "why", o.err)
	}
}
