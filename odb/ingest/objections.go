package ingest

import (
	"context"
	"sync"

	"packhorse/odb"
	"packhorse/pack/object"
)

// objections are failures of git's checks in stored objects. Those were accepted under the rules of
// their day, and only a new history would change them: they are logged and kept.
type objections struct {
	mu    sync.Mutex // guards the fields below
	count int
	id    object.ID // of the first
	err   error
}

// judge returns err, the failure of a check of content, unless the pack consists of stored objects.
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

// log reports the failures found while layers of a pool were rewritten.
func (o *objections) log(ctx context.Context, in *Ingest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count > 0 {
		in.store.Env().Log.WarnContext(ctx, "stored objects fail git's fsck and are kept as they are",
			"pool", in.view.Pool().String(), "objects", o.count, "first", o.id.String(), "why", o.err)
	}
}
