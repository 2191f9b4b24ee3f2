package cache

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
)

const (
	// windowBlocks is the number of blocks that one request copies at most: those of a window, which
	// begins at a multiple of it.
	windowBlocks = 8
	windowBytes  = windowBlocks * blockBytes
	// pieceBytes is the size of the pieces in which bytes go to the disk.
	pieceBytes = 256 << 10
	// failedTime is how long nothing is copied after the disk has refused a write.
	failedTime = 10 * time.Second
)

var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// arrival is a block that is being copied.
type arrival struct {
	done chan struct{} // closed when err is set
	err  error         // why it has not come
}

// errNotCopied means that a block can be read but not kept.
var errNotCopied = errors.New("cache: not copied")

// fetch is a request for blocks of a file.
type fetch struct {
	entry      *entry
	next, last int64 // the blocks that have not come
	slot       bool  // it has a slot
	opened     bool  // the entry is ready
}

// copy begins to copy the window of a block, as far as nobody has begun. It returns nil if the
// block is there. If it is not urgent, nothing is done while the store is busy.
func (e *entry) copy(block int64, urgent bool) *arrival {
	e.waiting.Lock()
	if a := e.pending[block]; a != nil {
		e.waiting.Unlock()
		return a
	}
	if e.blocks.has(block) {
		e.waiting.Unlock()
		return nil
	}
	f := &fetch{entry: e, next: block, last: block}
	begin := block / windowBlocks * windowBlocks
	end := min(begin+windowBlocks, e.blocks.count)
	missing := func(block int64) bool { return e.pending[block] == nil && !e.blocks.has(block) }
	for f.next > begin && missing(f.next-1) {
		f.next--
	}
	for f.last < end-1 && missing(f.last+1) {
		f.last++
	}
	f.expect()
	a := e.pending[block]
	e.waiting.Unlock()
	if !e.store.start(f, urgent) {
		f.settle(errNotCopied)
	}
	return a
}

// expect tells all who ask for the blocks that they are coming. The caller holds e.waiting.
func (f *fetch) expect() {
	for block := f.next; block <= f.last; block++ {
		f.entry.pending[block] = &arrival{done: make(chan struct{})}
	}
}

// start runs a fetch. It reports false, and does nothing, if nothing can be kept now, or if the
// fetch is not urgent and three quarters of the slots are taken.
func (s *Store) start(f *fetch, urgent bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || f.entry.leaving != nil || time.Now().UnixNano() < s.failed.Load()+int64(failedTime) {
		return false
	}
	if !urgent {
		if len(s.slots) >= cap(s.slots)*3/4 {
			return false
		}
		select {
		case s.slots <- struct{}{}:
			f.slot = true
		default:
			return false
		}
	}
	f.entry.fetches++
	rescue.Go(&s.running, f.run, f.failed)
	return true
}

// takeSlot waits for a slot.
func (f *fetch) takeSlot() error {
	if f.slot {
		return nil
	}
	s := f.entry.store
	select {
	case s.slots <- struct{}{}:
		f.slot = true
		return nil
	case <-s.ctx.Done():
		return file.ErrClosed
	}
}

// run copies the blocks of a file that is open.
func (f *fetch) run() (err error) {
	defer func() { f.end(err) }()
	if err := f.takeSlot(); err != nil {
		return err
	}
	e, s := f.entry, f.entry.store
	if cost := e.blocks.cost(f.next); s.reserve(e, cost) {
		s.release(e, cost)
	} else {
		return errNotCopied // before a request is sent in vain
	}
	begin, end := f.next*blockBytes, min((f.last+1)*blockBytes, e.size)
	stream, err := s.ranger.OpenStream(s.ctx, e.name, e.size, begin, end-begin)
	if err != nil {
		return err
	}
	s.fetches.Add(1)
	return f.receive(stream, 0)
}

// failed logs a panic. Other errors of run are told to those who wait for blocks.
func (f *fetch) failed(err error) {
	if panicked, ok := errors.AsType[*rescue.PanicError](err); ok {
		f.entry.store.log.Error("cache: failed to copy blocks", "file", f.entry.name, "error", panicked)
	}
}

// load opens a file that the cache does not know, and copies the end of it.
func (f *fetch) load() (err error) {
	defer func() { f.end(err) }()
	if err := f.takeSlot(); err != nil {
		return err
	}
	e, s := f.entry, f.entry.store
	size, tail, err := s.ranger.OpenTail(s.ctx, e.name, windowBytes)
	if err != nil {
		return err
	}
	s.fetches.Add(1)
	begin := max(0, size-windowBytes)
	e.waiting.Lock()
	f.next, f.last = countBlocks(begin), countBlocks(size)-1
	f.expect()
	e.waiting.Unlock()
	e.know(size)
	f.opened = true
	return f.receive(tail, f.next*blockBytes-begin)
}

// loadFailed tells those who wait for the file why it could not be opened.
func (f *fetch) loadFailed(err error) {
	if f.opened {
		f.failed(err)
		return
	}
	e, s := f.entry, f.entry.store
	s.mu.Lock()
	if s.entries[e.name] == e {
		delete(s.entries, e.name)
	}
	s.mu.Unlock()
	e.err = err
	close(e.ready)
}

// receive writes the blocks that r delivers, behind some bytes that are skipped, and closes r.
func (f *fetch) receive(r io.ReadCloser, skip int64) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	piece := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(piece)
	if _, err := io.CopyBuffer(io.Discard, io.LimitReader(r, skip), piece[:]); err != nil {
		return err
	}
	for f.next <= f.last {
		if err := f.fill(r, piece[:]); err != nil {
			return err
		}
		f.arrived(nil)
	}
	return nil
}

// fill writes the next block.
func (f *fetch) fill(r io.Reader, buffer []byte) error {
	e, s := f.entry, f.entry.store
	cost := e.blocks.cost(f.next)
	if !s.reserve(e, cost) {
		return errNotCopied
	}
	kept := false
	defer func() {
		if !kept { // also after a panic
			s.release(e, cost)
		}
	}()
	size := e.blocks.length(f.next)
	var first int64 // the opened file that the first piece went to
	moved := false
	for done := int64(0); done < size; {
		piece := buffer[:min(int64(len(buffer)), size-done)]
		n, err := io.ReadFull(r, piece)
		s.fetched.Add(uint64(n))
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: %s ends early", file.ErrUnavailable, e.name)
			}
			return err
		}
		opened, err := e.write(piece, f.next*blockBytes+done)
		if err != nil {
			s.refused(err)
			return errNotCopied
		}
		if done == 0 {
			first = opened
		}
		moved = moved || opened != first
		done += int64(n)
	}
	if kept = !moved && e.keep(f.next, first); !kept { // the file was removed, and closed in between
		return errNotCopied
	}
	return nil
}

// refused notes that the disk has refused a write.
func (s *Store) refused(err error) {
	if before := s.failed.Swap(time.Now().UnixNano()); time.Since(time.Unix(0, before)) > failedTime {
		s.log.Warn("cache: the disk refuses writes, files are read past the cache", "error", err)
	}
	s.Shrink(s.bytesMax / 100)
}

// arrived ends the wait for the next block.
func (f *fetch) arrived(err error) {
	e := f.entry
	e.waiting.Lock()
	a := e.pending[f.next]
	delete(e.pending, f.next)
	e.waiting.Unlock()
	a.err = err
	close(a.done)
	f.next++
}

// settle ends the wait for the blocks that have not come.
func (f *fetch) settle(err error) {
	for f.next <= f.last {
		f.arrived(err)
	}
}

// end gives back what a fetch has held. Without an error, blocks are missing because of a panic.
func (f *fetch) end(err error) {
	s := f.entry.store
	f.settle(cmp.Or(err, errNotCopied))
	if f.slot {
		<-s.slots
	}
	s.mu.Lock()
	f.entry.fetches--
	s.mu.Unlock()
	s.rest(f.entry)
}
