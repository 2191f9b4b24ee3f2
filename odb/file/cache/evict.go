package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"

	"packhorse/pack/invariants"
)

// reserve takes room for bytes of an entry, and makes room if there is none. It reports false if
// the cache is full of files that cannot leave.
func (s *Store) reserve(e *entry, bytes int64) bool {
	if s.take(e, bytes) {
		return true
	}
	s.makeRoom(e, bytes)
	return s.take(e, bytes)
}

// take takes room for bytes of an entry if there is some.
func (s *Store) take(e *entry, bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+bytes > s.bytesMax {
		return false
	}
	s.bytes += bytes
	e.bytes += bytes
	return true
}

// release gives back room of an entry.
func (s *Store) release(e *entry, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= bytes
	e.bytes -= bytes
	if invariants.Enabled {
		invariants.Check(e.bytes >= 0 && s.bytes >= e.bytes,
			"cache: %s takes %d of %d bytes", e.name, e.bytes, s.bytes)
	}
}

// makeRoom lets files leave until there is room for so many bytes and for all files that are known.
// The file that needs the room stays. Files that nobody has open leave first, and a little more of
// them than needed. Then those leave that are open and were not read for longest: their readers
// copy again what they need.
func (s *Store) makeRoom(needs *entry, bytes int64) {
	s.evicting.Lock()
	defer s.evicting.Unlock()
	s.mu.Lock()
	over := s.bytes + bytes - s.bytesMax
	files := len(s.entries) - s.filesMax
	s.mu.Unlock()
	if over <= 0 && files <= 0 {
		return
	}
	freed, left := s.evict(needs, over+s.bytesMax/64, files+s.filesMax/64, false)
	if freed < over {
		_, _ = s.evict(needs, over-freed, files-left, true)
	}
}

// Shrink lets files leave until so many bytes are free or none is left, and returns how many are:
// first those that nobody has open, of either kind those that were not read for longest.
func (s *Store) Shrink(bytes int64) (freed int64) {
	s.evicting.Lock()
	defer s.evicting.Unlock()
	freed, _ = s.evict(nil, bytes, 0, false)
	if freed < bytes {
		more, _ := s.evict(nil, bytes-freed, 0, true)
		freed += more
	}
	return freed
}

// evict lets files leave in the order of their last use, until so many bytes are free and so many
// files have left. Of files that are open, only the blocks leave. The caller holds s.evicting.
func (s *Store) evict(needs *entry, bytes int64, files int, open bool) (freed int64, left int) {
	for _, e := range s.oldest(needs, open) {
		if freed >= bytes && (left >= files || open) {
			return freed, left
		}
		size, ok := s.evictOne(e, open)
		if !ok {
			continue
		}
		freed += size
		left++
	}
	return freed, left
}

// oldest returns the entries that can leave, in the order of their last use.
func (s *Store) oldest(needs *entry, open bool) []*entry {
	type aged struct {
		entry *entry
		used  int64
	}
	var found []aged
	s.mu.Lock()
	for _, e := range s.entries {
		if e != needs && e.fetches == 0 && (e.users > 0) == open && (!open || e.bytes > 0) {
			found = append(found, aged{e, e.used.Load()})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(found, func(a, b aged) int { return cmp.Compare(a.used, b.used) })
	entries := make([]*entry, len(found))
	for i := range found {
		entries[i] = found[i].entry
	}
	return entries
}

// evictOne lets a file leave, unless its use has changed. Who opens it meanwhile waits.
func (s *Store) evictOne(e *entry, open bool) (freed int64, ok bool) {
	s.mu.Lock()
	if s.entries[e.name] != e || e.fetches > 0 || (e.users > 0) != open {
		s.mu.Unlock()
		return 0, false
	}
	e.leaving = make(chan struct{})
	s.mu.Unlock()
	defer func() { // also after a panic
		s.mu.Lock()
		defer s.mu.Unlock()
		close(e.leaving)
		e.leaving = nil
	}()

	e.drop()

	s.mu.Lock()
	defer s.mu.Unlock()
	freed = e.bytes
	s.bytes -= freed
	e.bytes = 0
	if e.users == 0 && s.entries[e.name] == e {
		delete(s.entries, e.name)
	}
	s.evictions.Add(1)
	return freed, true
}

// drop removes the copy of a file. No request for it is under way.
func (e *entry) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.local != nil {
		if err := e.local.Close(); err != nil {
			e.store.log.Warn("cache: failed to close a file", "file", e.name, "error", err)
		}
		e.local = nil
	}
	if e.deleted.Load() {
		return // and may have been made anew
	}
	if err := e.store.fs.Remove(e.store.path(e.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.store.log.Warn("cache: failed to remove a file", "file", e.name, "error", err)
	}
	select {
	case <-e.ready:
		_ = e.blocks.clear(0, e.blocks.count-1)
		e.whole.Store(false)
		e.dirty.Store(false)
	default: // it could not be opened
	}
}
