package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

// entry is a file that the cache knows.
type entry struct {
	store *Store
	name  string

	ready  chan struct{} // closed when the next three are set
	err    error         // why the file could not be opened
	size   int64
	blocks blockMap

	whole   atomic.Bool  // all blocks have come; may lag behind
	used    atomic.Int64 // the store's clock at the last use
	dirty   atomic.Bool  // the map on the disk is another one
	deleted atomic.Bool  // the store has no such file any more

	// The store's mu guards these:
	users   int           // open files
	fetches int           // requests under way
	bytes   int64         // on the disk, or being written
	leaving chan struct{} // closed when an eviction ends; nil while there is none

	// mu is shared by those who read and write blocks, and taken before the store's.
	mu     sync.RWMutex // guards the fields below
	local  vfs.File     // nil when closed; opened when it is needed
	opened int64        // how often it was opened: each time it may be another file

	waiting sync.Mutex // guards pending
	pending map[int64]*arrival
}

func newEntry(s *Store, name string) *entry {
	e := &entry{store: s, name: name, ready: make(chan struct{}), pending: make(map[int64]*arrival)}
	e.touch()
	return e
}

// know sets the size and ends the wait for it.
func (e *entry) know(size int64) {
	e.size, e.blocks = size, newBlockMap(size)
	close(e.ready)
}

// touch notes a use.
func (e *entry) touch() { e.used.Store(e.store.clock.Add(1)) }

// enter returns the entry of a name, with one user more. The caller waits until it is ready.
func (s *Store) enter(ctx context.Context, name string) (*entry, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, file.ErrClosed
		}
		e := s.entries[name]
		if e != nil && e.leaving != nil {
			left := e.leaving
			s.mu.Unlock()
			select {
			case <-left:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if e == nil {
			e = newEntry(s, name)
			e.fetches = 1
			s.entries[name] = e
			f := &fetch{entry: e, last: -1}
			rescue.Go(&s.running, f.load, f.loadFailed)
		}
		e.users++
		many := len(s.entries) > s.filesMax
		s.mu.Unlock()
		e.touch()
		if !many {
			return e, nil
		}
		err := rescue.Do(func() error {
			s.makeRoom(e, 0)
			return nil
		})
		if err != nil {
			s.leave(e)
			return nil, err
		}
		return e, nil
	}
}

// leave ends one use of an entry.
func (s *Store) leave(e *entry) {
	s.mu.Lock()
	e.users--
	s.mu.Unlock()
	s.rest(e)
}

// rest closes the local file of an entry that nobody uses, unless its map has to be written first,
// and gives back the room of one that was deleted.
func (s *Store) rest(e *entry) {
	s.mu.Lock()
	idle := e.users == 0 && e.fetches == 0
	if idle && e.deleted.Load() {
		s.bytes -= e.bytes
		e.bytes = 0
	}
	s.mu.Unlock()
	if idle && (e.deleted.Load() || !e.dirty.Load()) {
		e.closeLocal()
	}
}

// closeLocal closes the local file, which is opened again when it is needed.
func (e *entry) closeLocal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.local == nil {
		return
	}
	if err := e.local.Close(); err != nil {
		e.store.log.Warn("cache: failed to close a file", "file", e.name, "error", err)
	}
	e.local = nil
}

// forgetFile removes a file that its store has lost.
func (s *Store) forgetFile(name string) {
	s.mu.Lock()
	e := s.entries[name]
	if e == nil {
		s.mu.Unlock()
		return
	}
	delete(s.entries, name)
	e.deleted.Store(true)
	_ = s.fs.Remove(s.path(name)) // it may never have been there
	s.mu.Unlock()
	s.rest(e)
}

// path returns the path of the copy of a file.
func (s *Store) path(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	return s.fs.PathJoin(s.dir, fmt.Sprintf("%02x", byte(h.Sum32())), name)
}

// openLocal opens the local file unless it is open. Blocks that the file is too short to have are
// lost: somebody has deleted it.
func (e *entry) openLocal() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.local != nil {
		return nil
	}
	local, size, err := e.store.openFile(e.store.path(e.name))
	if err != nil {
		return err
	}
	e.local = local
	e.opened++
	if e.deleted.Load() { // the file lives on without a name
		_ = e.store.fs.Remove(e.store.path(e.name))
	}
	if size < e.blocks.end() {
		e.loseLocked(0, e.blocks.count-1)
	}
	return nil
}

// openFile opens or makes a file, in a folder that may be missing, and returns its size.
func (s *Store) openFile(path string) (vfs.File, int64, error) {
	open := func() (vfs.File, error) {
		return s.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified, vfs.RandomReadsOption)
	}
	local, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.fs.MkdirAll(s.fs.PathDir(path), 0o700); err != nil {
			return nil, 0, err
		}
		local, err = open()
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := local.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, local.Close())
	}
	return local, info.Size(), nil
}

// lose discards the blocks from first to last.
func (e *entry) lose(first, last int64) {
	e.mu.Lock() // no reader is between its look at the map and the file
	defer e.mu.Unlock()
	e.loseLocked(first, last)
}

// loseLocked discards blocks under e.mu, so that the room which they took is given back once.
func (e *entry) loseLocked(first, last int64) {
	if lost := e.blocks.clear(first, last); lost > 0 {
		e.changed()
		e.store.release(e, lost)
	}
}

// changed notes that the map has changed.
func (e *entry) changed() {
	e.whole.Store(e.blocks.complete())
	e.dirty.Store(true)
}

// readLocal reads from offset on as far as blocks are there, and returns how much that is; 0 if the
// first one is not.
func (e *entry) readLocal(p []byte, offset int64) (int, error) {
	for {
		e.mu.RLock()
		p = p[:e.blocks.present(offset, int64(len(p)))]
		if len(p) == 0 || e.local != nil {
			break
		}
		e.mu.RUnlock()
		if err := e.openLocal(); err != nil {
			return 0, err
		}
	}
	defer e.mu.RUnlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := e.local.ReadAt(p, offset)
	if n < len(p) {
		return 0, fmt.Errorf("read %d bytes of the copy of %s: %w", len(p), e.name, err)
	}
	return n, nil
}

// write writes a piece of a block and returns which opened file it went to.
func (e *entry) write(p []byte, offset int64) (opened int64, err error) {
	e.mu.RLock()
	for e.local == nil {
		e.mu.RUnlock()
		if err := e.openLocal(); err != nil {
			return 0, err
		}
		e.mu.RLock()
	}
	defer e.mu.RUnlock()
	_, err = e.local.WriteAt(p, offset)
	return e.opened, err
}

// keep notes that a block is there, unless the file it went to is not the open one any more.
func (e *entry) keep(block, opened int64) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.local == nil || e.opened != opened {
		return false
	}
	e.blocks.set(block)
	e.changed()
	return true
}
