package cache

import "packhorse/odb/file"

// Flush writes the maps that have changed now.
func Flush(s *Store) { s.flush() }

// CloseAlone closes a cache and leaves the store behind it open.
func CloseAlone(s *Store) error {
	s.remote = unclosed{s.remote}
	return s.Close()
}

type unclosed struct{ file.Store }

func (unclosed) Close() error { return nil }

// Counted returns how many bytes are there by the maps.
func Counted(s *Store) int64 {
	var bytes int64
	for _, e := range s.entries {
		bytes += e.blocks.bytes()
	}
	return bytes
}

// Held counts the slots that are taken, and the uses of files.
func Held(s *Store) int {
	held := len(s.slots)
	for _, e := range s.entries {
		held += e.users + e.fetches
	}
	return held
}
