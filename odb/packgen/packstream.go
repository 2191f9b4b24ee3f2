package packgen

import (
	"context"
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"hash"
	"io"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// packStream writes a pack to its destination in pieces of 256 KiB, while another goroutine
// computes the checksum of the written pieces. It is for one goroutine, which writes nothing more
// after an error and calls stop at the end.
type packStream struct {
	ctx    context.Context //nolint:containedctx // of the turn in which the pack is written; dst is waited for outside it
	dst    io.Writer
	offset int64  // bytes of the pack so far, buffered ones included
	buffer []byte // not written yet

	// The summing goroutine takes written pieces from sums and returns them to spare. known, if set,
	// is the checksum, and nothing is summed.
	sums   chan []byte
	spare  chan []byte
	summer *rescue.Group
	broken context.Context // ends when it has panicked
	sum    hash.Hash
	known  []byte
}

const (
	streamBufferSize  = 256 << 10
	streamBufferCount = 3
)

// streamBuffers are pooled: a pack of a few objects would allocate more for them than for the rest.
var streamBuffers = sync.Pool{New: func() any { return new([streamBufferSize]byte) }}

func newStreamBuffer() []byte { return streamBuffers.Get().(*[streamBufferSize]byte)[:0] }

// putStreamBuffer returns a buffer to the pool; nil is none.
func putStreamBuffer(buffer []byte) {
	if buffer != nil {
		streamBuffers.Put((*[streamBufferSize]byte)(buffer[:streamBufferSize]))
	}
}

// newPackStream returns a stream that ends with the checksum known, or computes it if known is nil.
func newPackStream(ctx context.Context, dst io.Writer, known []byte) *packStream {
	s := &packStream{
		ctx:    ctx,
		dst:    dst,
		buffer: newStreamBuffer(),
		sums:   make(chan []byte, streamBufferCount),
		spare:  make(chan []byte, streamBufferCount),
		sum:    sha1.New(), //nolint:gosec // as above
		known:  known,
	}
	for range streamBufferCount - 1 {
		s.spare <- nil // taken from the pool on demand
	}
	sums := s.sums
	s.summer, s.broken = rescue.WithContext(context.Background())
	s.summer.Go(func() error {
		for piece := range sums {
			s.sum.Write(piece)
			s.spare <- piece[:0]
		}
		return nil
	})
	return s
}

// stop ends the summing goroutine and the use of the stream's buffers. It returns an error if that
// goroutine has panicked: then there is no sum.
func (s *packStream) stop() error {
	if s.sums == nil {
		return nil
	}
	close(s.sums)
	s.sums = nil
	if err := s.summer.Wait(); err != nil {
		return err
	}
	close(s.spare)
	putStreamBuffer(s.buffer)
	s.buffer = nil
	for buffer := range s.spare {
		putStreamBuffer(buffer)
	}
	return nil
}

// space returns n bytes, at most streamBufferSize, for the caller to fill in place. commit gets the
// number of bytes that it filled.
func (s *packStream) space(n int) ([]byte, error) {
	if n > cap(s.buffer)-len(s.buffer) {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	return s.buffer[len(s.buffer) : len(s.buffer)+n], nil
}

func (s *packStream) commit(n int) {
	s.buffer = s.buffer[:len(s.buffer)+n]
	s.offset += int64(n)
}

// Write implements [io.Writer].
func (s *packStream) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		room := cap(s.buffer) - len(s.buffer)
		if room == 0 {
			room = streamBufferSize
		}
		n := min(len(p)-written, room)
		space, err := s.space(n)
		if err != nil {
			return written, err
		}
		copy(space, p[written:])
		s.commit(n)
		written += n
	}
	return written, nil
}

// flush writes the buffer.
func (s *packStream) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	if s.known != nil {
		_, err := s.send(s.buffer)
		s.buffer = s.buffer[:0]
		return err
	}
	piece := s.buffer
	s.buffer = nil // the summing goroutine has it, too
	select {
	case s.sums <- piece:
	case <-s.broken.Done():
		return context.Cause(s.broken)
	}
	_, err := s.send(piece)
	select {
	case s.buffer = <-s.spare:
	case <-s.broken.Done():
		return context.Cause(s.broken)
	}
	if s.buffer == nil {
		s.buffer = newStreamBuffer()
	}
	return err
}

// send writes p to the destination, which may have to wait for its client.
func (s *packStream) send(p []byte) (n int, err error) {
	err = fair.Rest(s.ctx, func() (err error) {
		n, err = s.dst.Write(p)
		return err
	})
	return n, err
}

// end writes the trailer.
func (s *packStream) end() error {
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	trailer := s.known
	if trailer == nil {
		trailer = s.sum.Sum(nil)
	}
	n, err := s.send(trailer)
	s.offset += int64(n)
	return err
}
