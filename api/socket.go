package api

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// errSlowReader says that a client does not read its answer.
var errSlowReader = errors.New("api: the client reads too slowly")

// socket is a connection below TLS. A write may take as long as the peer keeps reading at the
// minimum rate: a deadline for the whole write would limit the answer's length. It lies below TLS
// because a TLS record cannot be continued after a deadline.
type socket struct {
	net.Conn
	limits  *Limits
	pace    pace       // of writes; used by the writing goroutine
	unacked func() int // bytes that were written and not acknowledged
	closing atomic.Bool
	first   []byte // the byte read to detect input; used by the reading goroutine
}

func newSocket(c net.Conn, limits *Limits) *socket {
	return &socket{
		Conn: c, limits: limits, pace: pace{window: limits.FloorWindow, rate: limits.FloorRate},
		unacked: func() int { return unackedOf(c) },
	}
}

// Read returns the byte read by await first.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.first) > 0 {
		n := copy(p, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

// await waits for the next byte, which remains unread.
func (s *socket) await(deadline time.Time) error {
	if err := s.readBy(deadline); err != nil {
		return err
	}
	var b [1]byte
	n, err := s.Conn.Read(b[:])
	if n == 0 {
		return err
	}
	s.first = b[:n]
	return nil
}

// firstLook is the share of the window after which a write that waits looks for the first time how
// much the kernel holds.
const firstLook = 60

// Write writes all of p, or makes the connection unusable. While its buffer is full, the kernel
// takes nothing before a third of that is free, which is a megabyte or more: a client may read for
// minutes until then. So what the client acknowledges counts, not what the kernel takes.
func (s *socket) Write(p []byte) (int, error) {
	written, held := 0, 0
	for looks := 0; ; looks++ {
		start := time.Now()
		limit := s.limits.FloorWindow
		switch {
		case s.closing.Load():
			limit = s.limits.LingerWait
		case looks == 0:
			limit /= firstLook
		case looks == 1:
			limit -= limit / firstLook
		}
		if err := s.Conn.SetWriteDeadline(start.Add(limit)); err != nil {
			return written, err
		}
		n, err := s.Conn.Write(p[written:])
		written += n
		moved, late := n, errors.Is(err, os.ErrDeadlineExceeded)
		if late {
			now := s.unacked()
			if looks > 0 {
				moved = max(n, held+n-now)
			}
			held = now
		}
		fast := s.pace.add(time.Since(start), moved)
		switch {
		case err == nil && fast:
			return written, nil
		case !fast:
			return written, errSlowReader
		case !late || s.closing.Load():
			return written, err
		}
	}
}

// SetDeadline, SetReadDeadline and SetWriteDeadline do nothing: only conn and socket set deadlines.
// The layers above, TLS and fasthttp, would set deadlines over whole messages.
func (s *socket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (s *socket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// readBy sets the deadline of reads.
func (s *socket) readBy(t time.Time) error { return s.Conn.SetReadDeadline(t) }

// closeWrite ends the sending direction, if the transport supports it.
func (s *socket) closeWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
