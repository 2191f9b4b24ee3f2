package intent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"packhorse/odb/kv"
)

// pending is an intent of this process.
type pending struct {
	files *Files
	key   []byte
	names []string

	noted chan struct{} // closed when the first row was stored, or could not be
	err   error         // why it could not, and is not a row to rely on; set before noted is closed
	once  sync.Once     // closes noted

	mu    sync.Mutex // held while the row is changed; guards the fields below
	row   row
	value []byte // the row as it is stored

	// The fields below are guarded by files.mu.
	open  map[string]bool // files of which something may be stored
	doubt bool            // something of a file that is not open may be stored
	over  bool            // all files are registered, or left
}

func newPending(files *Files, names []string) *pending {
	p := &pending{
		files: files, key: newKey(), names: slices.Clone(names), noted: make(chan struct{}), open: make(map[string]bool),
	}
	for _, name := range names {
		p.row.files = append(p.row.files, noted{name: name})
	}
	return p
}

// store stores the first row.
func (p *pending) store(ctx context.Context) {
	server, err := p.files.servers.Own(ctx)
	if err == nil {
		p.mu.Lock()
		p.row.server = server
		p.value = p.row.encode()
		value := p.value
		p.mu.Unlock()
		b := kv.NewBatch()
		b.Put(p.key, value)
		err = apply(ctx, p.files.keys, b)
	}
	p.failed(err)
}

// failed ends the wait for the first row. err is nil if it is stored.
func (p *pending) failed(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.noted)
	})
}

// await returns when the first row is durable.
func (p *pending) await(ctx context.Context) error {
	select {
	case <-p.noted:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stored returns the row as it is stored.
func (p *pending) stored() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value
}

// begin returns nil while the intent stands for all that this process knows.
func (p *pending) begin(ctx context.Context) error {
	if err := p.await(ctx); err != nil {
		return fmt.Errorf("note what is about to be stored: %w", err)
	}
	own, err := p.files.servers.Own(ctx)
	p.mu.Lock()
	server := p.row.server
	p.mu.Unlock()
	if err == nil && own != server {
		err = ErrTaken
	}
	if err != nil {
		return fmt.Errorf("begin to store a file: %w", err)
	}
	return nil
}

// upload notes the ID of an upload of a file.
func (p *pending) upload(ctx context.Context, name, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := row{server: p.row.server, files: slices.Clone(p.row.files)}
	at := slices.IndexFunc(next.files, func(f noted) bool { return f.name == name })
	if next.files[at].upload == id {
		return nil
	}
	next.files[at].upload = id
	value := next.encode()
	b := kv.NewBatch()
	b.Require(p.key, p.value)
	b.Put(p.key, value)
	err := apply(ctx, p.files.keys, b)
	if errors.Is(err, kv.ErrConflict) {
		// An attempt whose answer was lost may have stored the same.
		now, getErr := p.files.keys.Get(ctx, p.key)
		switch {
		case getErr == nil && bytes.Equal(now, value):
			err = nil
		case getErr == nil || errors.Is(getErr, kv.ErrNotFound):
			err = ErrTaken
		default:
			err = getErr
		}
	}
	if err != nil {
		return fmt.Errorf("note an upload: %w", err)
	}
	p.row, p.value = next, value
	return nil
}

// take makes the row one that a collector has taken. It returns false if the row has gone, with
// the registration of the files, or a collector was quicker.
func (p *pending) take(ctx context.Context) (bool, error) {
	if err := p.await(ctx); ctx.Err() != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.value == nil { // it was never sent
		return true, nil
	}
	if p.row.server == nobody {
		return true, nil
	}
	now, err := p.files.keys.Get(ctx, p.key)
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stored, err := decode(now) // it may have an upload whose answer was lost
	if err != nil {
		return false, err
	}
	if stored.server == nobody {
		return false, nil
	}
	err = takeRow(ctx, p.files.keys, p.key, now, &stored)
	if errors.Is(err, kv.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.row, p.value = stored, stored.encode()
	return true, nil
}

// takeRow makes a row that was read one that a collector has taken. Errors: kv.ErrConflict.
func takeRow(ctx context.Context, keys kv.Store, key, value []byte, r *row) error {
	taken := row{server: nobody, files: r.files}
	b := kv.NewBatch()
	b.Require(key, value)
	b.Put(key, taken.encode())
	if err := apply(ctx, keys, b); err != nil {
		return err
	}
	*r = taken
	return nil
}

// finish removes the row, or leaves it to a collector if something of its files may be stored.
func (p *pending) finish(ctx context.Context) error {
	p.files.mu.Lock()
	doubt := p.doubt || len(p.open) > 0
	p.files.mu.Unlock()
	if doubt {
		_, err := p.take(ctx)
		return err
	}
	if err := p.await(ctx); ctx.Err() != nil {
		return err
	}
	value := p.stored()
	if value == nil {
		return nil
	}
	b := kv.NewBatch()
	b.Require(p.key, value)
	b.Delete(p.key)
	err := apply(ctx, p.files.keys, b)
	if !errors.Is(err, kv.ErrConflict) {
		return err
	}
	_, err = p.take(ctx) // it has an upload whose answer was lost, or is none of ours
	return err
}

// noting is the file.Intent of a file.
type noting struct {
	pending *pending
	name    string
}

func (n *noting) Begin(ctx context.Context) error { return n.pending.begin(ctx) }

func (n *noting) Upload(ctx context.Context, id string) error {
	return n.pending.upload(ctx, n.name, id)
}

func (n *noting) End(err error) { n.pending.files.left(n.name, err) }
