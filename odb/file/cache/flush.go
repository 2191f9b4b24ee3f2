package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"packhorse/odb/file"
)

// flushAlways writes maps until the store is closed.
func (s *Store) flushAlways(context.Context) error {
	ticker := time.NewTicker(flushTime)
	defer ticker.Stop()
	for {
		select {
		case <-s.closing:
			return nil
		case <-ticker.C:
			s.flush()
			s.makeRoom(nil, 0)
		}
	}
}

// flush writes the maps that have changed.
func (s *Store) flush() {
	var changed []*entry
	s.mu.Lock()
	for _, e := range s.entries {
		if e.dirty.Load() {
			changed = append(changed, e)
		}
	}
	s.mu.Unlock()
	for _, e := range changed {
		if err := e.writeMap(); err != nil {
			s.log.Warn("cache: failed to write the map of a file", "file", e.name, "error", err)
		}
		s.rest(e)
	}
}

// writeMap writes the map behind the file. The blocks that it names are durable first.
func (e *entry) writeMap() error {
	if !e.dirty.Swap(false) || e.deleted.Load() {
		return nil
	}
	if err := e.openLocal(); err != nil {
		return err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.local == nil {
		return nil // it has left
	}
	text := e.blocks.append(nil, e.name)
	if err := e.local.SyncData(); err != nil {
		return err
	}
	_, err := e.local.WriteAt(text, e.size)
	return err
}

// scan finds what an earlier process has left, and removes what has no map.
func (s *Store) scan() error {
	if err := s.fs.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("open cache: %w", err)
	}
	folders, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("open cache: %w", err)
	}
	type aged struct {
		entry *entry
		time  time.Time
	}
	var found []aged
	for _, folder := range folders {
		if len(folder) != 2 || strings.Trim(folder, "0123456789abcdef") != "" {
			continue // not ours
		}
		names, err := s.fs.List(s.fs.PathJoin(s.dir, folder))
		if err != nil {
			return fmt.Errorf("open cache: %w", err)
		}
		for _, name := range names {
			path := s.fs.PathJoin(s.dir, folder, name)
			if e, written, ok := s.readMap(path, name); ok {
				found = append(found, aged{e, written})
			} else if err := s.fs.Remove(path); err != nil {
				return fmt.Errorf("open cache: %w", err)
			}
		}
	}
	slices.SortFunc(found, func(a, b aged) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.entry.name, b.entry.name))
	})
	for _, f := range found {
		e := f.entry
		e.touch()
		e.bytes = e.blocks.bytes()
		s.bytes += e.bytes
		s.entries[e.name] = e
	}
	return nil
}

// readMap returns the entry of a file that lies at path, and when it was written.
func (s *Store) readMap(path, name string) (e *entry, written time.Time, ok bool) {
	if file.CheckName(name) != nil || path != s.path(name) {
		return nil, written, false
	}
	local, err := s.fs.Open(path)
	if err != nil {
		return nil, written, false
	}
	defer func() { _ = local.Close() }() // it was only read
	info, err := local.Stat()
	if err != nil {
		return nil, written, false
	}
	tail := make([]byte, min(info.Size(), 4<<10))
	if _, err := local.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return nil, written, false
	}
	size, ok := parseTail(tail)
	if !ok || size > info.Size() || info.Size()-size != mapBytes(size) {
		return nil, written, false
	}
	text := make([]byte, mapBytes(size))
	if _, err := local.ReadAt(text, size); err != nil && !errors.Is(err, io.EOF) {
		return nil, written, false
	}
	blocks, ok := parseMap(text, name)
	if !ok {
		return nil, written, false
	}
	e = newEntry(s, name)
	e.size, e.blocks = size, blocks
	e.whole.Store(blocks.complete())
	close(e.ready)
	return e, info.ModTime(), true
}
