package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
)

// OpenFiles is the bounded set of open sectioned files: descriptors and fan-outs, shared by all
// views. An unused file stays open until another one needs its place.
type OpenFiles struct {
	env  *Env
	max  int
	idle func(LayerID) // called when a file was closed to make room

	mu   sync.Mutex // guards ring and hand
	ring []*SharedFile
	hand int
}

// NewOpenFiles returns an empty set for at most countMax files. It calls idle with the owner of
// each file that it closes to make room.
func NewOpenFiles(env *Env, countMax int, idle func(LayerID)) *OpenFiles {
	return &OpenFiles{env: env, max: countMax, idle: idle}
}

// SharedFile is a file that Acquire opens and that its set closes when another file needs the
// place. Layer names the file.
type SharedFile struct {
	set    *OpenFiles
	owner  LayerID // the segment; the file may be that of an auxiliary file
	Layer  LayerID
	kind   LayerKind
	isOpen atomic.Bool

	mu       sync.Mutex // guards the fields below
	open     *File
	users    int
	recently bool
}

// Init makes f the file layer of a set. The file belongs to the segment owner.
func (f *SharedFile) Init(set *OpenFiles, owner, layer LayerID, kind LayerKind) {
	f.set, f.owner, f.Layer, f.kind = set, owner, layer, kind
}

// Opened reports whether the file is open.
func (f *SharedFile) Opened() bool { return f.isOpen.Load() }

// Acquire opens the file, unless it is open, and keeps it open until Release. Errors: [ErrCorrupt];
// [ErrGone] when the file was removed.
func (f *SharedFile) Acquire(ctx context.Context) (*File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		opened, err := f.openNow(ctx)
		if err != nil {
			return nil, err
		}
		f.open = opened
		f.isOpen.Store(true)
		f.set.add(f)
	}
	f.users++
	f.recently = true
	return f.open, nil
}

func (f *SharedFile) openNow(ctx context.Context) (*File, error) {
	s := f.set.env
	handle, err := s.Files.Open(ctx, f.kind.FileName(f.Layer))
	if errors.Is(err, file.ErrNotFound) {
		return nil, s.Damage.Missing(ctx, f.kind.FileName(f.Layer), f.Layer)
	}
	if err != nil {
		return nil, fmt.Errorf("open layer %s: %w", f.Layer, err)
	}
	opened, err := OpenFile(ctx, s, f.Layer, handle, f.kind.magic())
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return opened, nil
}

// Release ends one Acquire.
func (f *SharedFile) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
}

// Close closes the file unless it is in use.
func (f *SharedFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users > 0 || f.open == nil {
		return nil
	}
	f.set.remove(f)
	return f.closeOpen()
}

func (f *SharedFile) closeOpen() error {
	open := f.open
	f.open = nil
	f.isOpen.Store(false)
	return open.Handle.Close()
}

// add puts an opened file into the ring, and closes others to keep to the bound. When all are in
// use, the set exceeds the bound until the next call.
func (o *OpenFiles) add(f *SharedFile) {
	for _, closed := range o.addLocked(f) {
		o.idle(closed.owner)
	}
}

func (o *OpenFiles) addLocked(f *SharedFile) (closed []*SharedFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 2 * len(o.ring) {
		if len(o.ring) < o.max {
			break
		}
		o.hand %= len(o.ring)
		if candidate := o.ring[o.hand]; candidate.giveUp() {
			o.ring = slices.Delete(o.ring, o.hand, o.hand+1)
			closed = append(closed, candidate)
			continue
		}
		o.hand++
	}
	o.ring = append(o.ring, f)
	return closed
}

// giveUp closes the file if it was not used since the last round. It must not wait for f.mu,
// because the holder of f.mu may wait for the ring.
func (f *SharedFile) giveUp() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.users > 0 || f.recently {
		f.recently = false
		return false
	}
	if err := f.closeOpen(); err != nil {
		f.set.env.Log.Warn("failed to close the file of a layer", "layer", f.Layer.String(), "error", err)
	}
	return true
}

func (o *OpenFiles) remove(f *SharedFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ring = slices.DeleteFunc(o.ring, func(candidate *SharedFile) bool { return candidate == f })
}

// Count returns the number of open files.
func (o *OpenFiles) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ring)
}
