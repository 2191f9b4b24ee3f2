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
	pace    pace // of writes; used by the writing goroutine
	closing atomic.Bool
	first   []byte // the byte read to detect input; used by the reading goroutine
}

func newSocket(c net.Conn, limits *Limits) *socket {
	return &socket{Conn: c, limits: limits, pace: pace{window: limits.FloorWindow, rate: limits.FloorRate}}
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

// Write writes all of p, or makes the connection unusable.
func (s *socket) Write(p []byte) (int, error) {
	written := 0
	for {
		start := time.Now()
		window := s.limits.FloorWindow
		if s.closing.Load() {
			window = s.limits.LingerWait
		}
		if err := s.Conn.SetWriteDeadline(start.Add(window)); err != nil {
			return written, err
		}
		n, err := s.Conn.Write(p[written:])
		written += n
		fast := s.pace.add(time.Since(start), n)
		switch {
		case err == nil && fast:
			return written, nil
		case !fast:
			return written, errSlowReader
		case !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || s.closing.Load():
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
