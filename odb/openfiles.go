package odb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
)

// openFiles is the bounded set of sectioned files that are open: descriptors and fan-outs, shared by all views. A file that nobody uses
// stays open until its place is needed.
type openFiles struct {
	env  *fileEnv
	max  int
	idle func(LayerID) // called when a file was closed to make room

	mu   sync.Mutex // guards ring and hand
	ring []*sharedFile
	hand int
}

// sharedFile is a file that is opened when it is asked for and closed when others need its place.
type sharedFile struct {
	set    *openFiles
	owner  LayerID // the segment; the file may be that of a companion
	layer  LayerID
	kind   layerKind
	isOpen atomic.Bool

	mu       sync.Mutex // guards the fields below
	open     *sectionFile
	users    int
	recently bool
}

// acquire opens the file, unless it is open, and keeps it open until release. Errors: [ErrCorrupt], also when the file is not there.
func (f *sharedFile) acquire(ctx context.Context) (*sectionFile, error) {
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

func (f *sharedFile) openNow(ctx context.Context) (*sectionFile, error) {
	s := f.set.env
	handle, err := s.files.Open(ctx, f.kind.fileName(f.layer))
	if errors.Is(err, file.ErrNotFound) {
		return nil, s.damage.met(&CorruptError{Layer: f.layer, File: f.kind.fileName(f.layer), Why: "it is missing"})
	}
	if err != nil {
		return nil, fmt.Errorf("open layer %s: %w", f.layer, err)
	}
	opened, err := openSections(ctx, s, f.layer, handle, f.kind.magic())
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return opened, nil
}

// release ends one acquire.
func (f *sharedFile) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
}

// close closes the file unless somebody uses it.
func (f *sharedFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users > 0 || f.open == nil {
		return nil
	}
	f.set.remove(f)
	return f.closeOpen()
}

func (f *sharedFile) closeOpen() error {
	open := f.open
	f.open = nil
	f.isOpen.Store(false)
	return open.file.Close()
}

// add puts a file that was opened into the ring, and closes others to keep to the bound. When all are in use the bound is exceeded until
// the next time.
func (o *openFiles) add(f *sharedFile) {
	for _, closed := range o.addLocked(f) {
		o.idle(closed.owner)
	}
}

func (o *openFiles) addLocked(f *sharedFile) (closed []*sharedFile) {
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

// giveUp closes the file if it was not used since the last time around. It must not wait for f.mu: whoever holds that may wait for
// the ring.
func (f *sharedFile) giveUp() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.users > 0 || f.recently {
		f.recently = false
		return false
	}
	if err := f.closeOpen(); err != nil {
		f.set.env.log.Warn("close a layer's file", "layer", f.layer.String(), "error", err)
	}
	return true
}

func (o *openFiles) remove(f *sharedFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ring = slices.DeleteFunc(o.ring, func(candidate *sharedFile) bool { return candidate == f })
}

func (o *openFiles) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ring)
}
