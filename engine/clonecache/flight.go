package clonecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/rescue"
	"packhorse/pack/invariants"
)

const (
	// flightMark ends the names of files that are being written.
	flightMark = "~"
	// textBytesMax bounds the lines that are kept for readers that come late.
	textBytesMax = 64 << 10
)

// errFile says that the cache's own file failed, which is no fault of the pack.
var errFile = errors.New("clonecache: failed to access the file")

// phase is what the requests of a flight wait for.
type phase uint8

const (
	reserved   phase = iota // the decision of the reservation's holder
	generating              // the bytes of the pack
	declined                // nothing: each generates the pack for itself
	released                // nothing: one of them gets the next reservation
)

// flight is a pack from the reservation of its key to its last reader.
type flight struct {
	cache *Cache
	key   Key
	path  string
	began time.Time // when the key was reserved
	sums  summer    // of the written bytes; for the generation alone

	// users are the holder of the reservation or the generation, and the other requests; the last one
	// closes the file. Guarded by Cache.mu.
	users int
	// cancel gives the generation up; nil before it begins. Guarded by Cache.mu.
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below
	phase   phase
	file    vfs.File      // nil until something was written
	size    int64         // bytes written
	text    string        // lines for the client
	ended   bool          // the generation
	err     error         // how it ended
	changed chan struct{} // closed and replaced when any of these changes
}

// join waits for the decision of the reservation's holder, and returns the pack if it is generated.
// It returns false if the holder has not decided, and the caller is to look the key up again. The
// caller is a user of the flight, which it leaves when it gets no pack.
func (f *flight) join(ctx context.Context, tell func(string)) (pack *Pack, decided bool, err error) {
	told := 0
	s := f.state()
	for s.phase == reserved && err == nil {
		told = s.tell(tell, told)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.changed:
			s = f.state()
		}
	}
	if s.phase == generating {
		f.cache.count(&f.cache.stats.Joined)
		return &Pack{cache: f.cache, flight: f, told: told}, true, nil
	}
	f.cache.leave(f)
	return nil, s.phase == declined, err
}

// leave ends one use of a flight. A generation that nobody else uses is given up.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.users--
	if invariants.Enabled {
		invariants.Check(f.users >= 0, "clonecache: %s has %d users", f.key, f.users)
	}
	switch {
	case f.users == 1 && f.cancel != nil && c.flights[f.key] == f:
		f.mu.Lock()
		ended := f.ended
		f.mu.Unlock()
		if !ended {
			delete(c.flights, f.key)
			f.cancel()
		}
	case f.users == 0 && f.file != nil:
		if err := f.file.Close(); err != nil {
			c.log.Debug("failed to close a cached pack", "error", err)
		}
	}
}

// run generates the pack, and keeps it if that pays.
func (f *flight) run(ctx context.Context, generate Generate) {
	c := f.cache
	err := f.guard(ctx, generate)
	took := time.Since(f.began)
	if err != nil {
		c.ground(f) // before the error is reported: later requests start over
	}
	f.change(func() { f.ended, f.err = true, err })

	t := &tail{size: f.size, sums: f.sums.sums}
	kept := err == nil && took >= c.costMin && f.file != nil && t.size <= c.EntryBytesMax() && f.store(t)
	c.mu.Lock()
	c.growing -= f.size
	if invariants.Enabled {
		invariants.Check(c.growing >= 0, "clonecache: packs are %d bytes so far", c.growing)
	}
	if c.flights[f.key] == f {
		delete(c.flights, f.key)
		if kept && c.fs.Rename(f.path, c.path(f.key.String())) == nil {
			c.keep(&entry{key: f.key, fileSize: t.size + int64(len(t.sums)*sumSize+footerSize), tail: t})
			c.makeRoom()
		} else {
			kept = false
		}
	} else {
		kept = false
	}
	c.mu.Unlock()
	if !kept && f.file != nil {
		if err := c.fs.Remove(f.path); err != nil {
			c.log.Debug("failed to remove an incomplete cached pack", "error", err)
		}
	}
	c.leave(f)
}

// ground removes a flight from the cache, so that no request joins it any more.
func (c *Cache) ground(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[f.key] == f {
		delete(c.flights, f.key)
	}
}

// guard generates the pack, and turns a panic into an error.
func (f *flight) guard(ctx context.Context, generate Generate) error {
	return rescue.Do(func() error { return generate(ctx, f, f.tell) })
}

// store writes the tail behind the pack.
func (f *flight) store(t *tail) bool {
	_, err := f.file.Write(t.encode(f.key))
	if err != nil {
		f.cache.log.Warn("failed to cache a pack", "error", err)
	}
	return err == nil
}

// change makes a change and wakes the readers.
func (f *flight) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *flight) tell(text string) {
	f.change(func() {
		if len(f.text)+len(text) <= textBytesMax {
			f.text += text
		}
	})
}

// Write implements [io.Writer] for the generation.
func (f *flight) Write(p []byte) (int, error) {
	if f.file == nil {
		file, err := f.create()
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errFile, err)
		}
		f.mu.Lock()
		f.file = file
		f.mu.Unlock()
	}
	f.sums.write(p)
	if err := f.append(p); err != nil {
		return 0, fmt.Errorf("%w: %w", errFile, err)
	}
	f.change(func() { f.size += int64(len(p)) })

	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	c.growing += int64(len(p))
	c.makeRoom()
	return len(p), nil
}

// append writes a copy of p to the file: a [vfs.File] may change its argument, while others may
// read p.
func (f *flight) append(p []byte) error {
	buffer := blockBuffers.Get().(*[blockSize]byte)
	defer blockBuffers.Put(buffer)
	for len(p) > 0 {
		n := copy(buffer[:], p)
		if _, err := f.file.Write(buffer[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// create makes the file, and the folder if it has been deleted.
func (f *flight) create() (vfs.File, error) {
	c := f.cache
	file, err := c.fs.Create(f.path, vfs.WriteCategoryUnspecified)
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.fs.MkdirAll(c.dir, 0o700); err != nil {
			return nil, err
		}
		file, err = c.fs.Create(f.path, vfs.WriteCategoryUnspecified)
	}
	return file, err
}

// flightState is the state of a flight at one instant, for its requests.
type flightState struct {
	phase   phase
	file    vfs.File
	size    int64
	text    string
	ended   bool
	err     error
	changed chan struct{}
}

func (f *flight) state() flightState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return flightState{f.phase, f.file, f.size, f.text, f.ended, f.err, f.changed}
}

// tell passes the lines behind the first told bytes, if tell is not nil, and returns how many bytes
// have been told then.
func (s *flightState) tell(tell func(string), told int) int {
	if tell != nil && told < len(s.text) {
		tell(s.text[told:])
	}
	return len(s.text)
}

// send writes the pack to w as it grows, and tells its lines except the first told bytes of them.
// It returns the number of bytes written.
func (f *flight) send(ctx context.Context, w io.Writer, tell func(string), told int) (sent int64, err error) {
	buffer := blockBuffers.Get().(*[blockSize]byte)
	defer blockBuffers.Put(buffer)
	for {
		s := f.state()
		if s.err != nil {
			return sent, s.err
		}
		told = s.tell(tell, told)
		for sent < s.size {
			if err := ctx.Err(); err != nil {
				return sent, err
			}
			piece := buffer[:min(blockSize, s.size-sent)]
			if err := readFull(s.file, piece, sent); err != nil {
				return sent, fmt.Errorf("%w: %w", errFile, err)
			}
			n, err := w.Write(piece)
			sent += int64(n)
			if err != nil {
				return sent, err
			}
		}
		if s.ended {
			return sent, nil
		}
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case <-s.changed:
		}
	}
}
