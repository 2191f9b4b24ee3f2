package api

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A reader above the minimum rate gets an answer of any length; a slower one is cut at the end of
// the window in which it was slower.
func TestFloor(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	limits := Limits{FloorWindow: time.Second, FloorRate: 1 << 10}
	every := func(pause time.Duration, bytes int64) func(io.Reader) {
		return func(r io.Reader) {
			for {
				if _, err := io.CopyN(io.Discard, r, bytes); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}
	}
	tests := map[string]struct {
		read func(io.Reader)
		cut  time.Duration // when the reader is; 0 for never
	}{
		"at once":        {every(0, size), 0},
		"above":          {every(100*time.Millisecond, 150), 0},
		"below":          {every(100*time.Millisecond, 50), time.Second},
		"not at all":     {func(io.Reader) {}, time.Second},
		"much, and then": {func(r io.Reader) { _, _ = io.CopyN(io.Discard, r, size/2) }, 2 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				var reading sync.WaitGroup
				reading.Go(func() { test.read(theirs) })
				begun := time.Now()
				n, err := newSocket(ours, &limits).Write(make([]byte, size))
				took := time.Since(begun)
				_ = ours.Close()
				reading.Wait()
				switch {
				case test.cut == 0 && (err != nil || n != size):
					t.Errorf("%d bytes after %v: %v", n, took, err)
				case test.cut != 0 && (!errors.Is(err, errSlowReader) || took != test.cut):
					t.Errorf("%v after %v, want %v after %v", err, took, errSlowReader, test.cut)
				}
			})
		})
	}
}

// fullConn is a connection whose kernel has no room for a while, though its peer acknowledges some
// of what the kernel holds.
type fullConn struct {
	net.Conn
	room     time.Time
	deadline time.Time
}

func (c *fullConn) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *fullConn) Write(p []byte) (int, error) {
	if c.deadline.Before(c.room) {
		time.Sleep(time.Until(c.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Until(c.room))
	return len(p), nil
}

// A client that reads at more than the minimum rate is not cut while the kernel takes nothing for
// longer than the window, and one that does not read is.
func TestFloorBehindAFullBuffer(t *testing.T) {
	t.Parallel()
	limits := Limits{FloorWindow: time.Minute, FloorRate: 1 << 10}
	for name, test := range map[string]struct {
		rate int // at which the peer acknowledges, in bytes a second
		cut  time.Duration
	}{
		"reads":      {10 << 10, 0},
		"just so":    {1<<10 + 30, 0},
		"too slow":   {1000, time.Minute},
		"not at all": {0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				s := newSocket(&fullConn{room: begun.Add(5*time.Minute + time.Second)}, &limits)
				s.unacked = func() int { return 4<<20 - int(time.Since(begun)*time.Duration(test.rate)/time.Second) }
				n, err := s.Write(make([]byte, 100))
				took := time.Since(begun)
				if test.cut == 0 && (n != 100 || err != nil) {
					t.Errorf("%d bytes after %v: %v", n, took, err)
				}
				if test.cut != 0 && (!errors.Is(err, errSlowReader) || took != test.cut) {
					t.Errorf("%v after %v, want %v after %v", err, took, errSlowReader, test.cut)
				}
			})
		})
	}
}

// The kernel tells how much of what was written the peer has not acknowledged.
func TestUnacked(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := newSocket(ours, &Limits{FloorWindow: 100 * time.Millisecond, FloorRate: 1 << 10})
	_, err = s.Write(make([]byte, 64<<20)) // more than the kernel takes
	held := s.unacked()
	if !errors.Is(err, errSlowReader) || held == 0 {
		t.Errorf("%d bytes are held, %v", held, err)
	}
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, theirs)
		read <- err
	}()
	for s.unacked() > 0 { // until the peer has read all
		runtime.Gosched()
	}
	if err := errors.Join(ours.Close(), <-read, theirs.Close(), listener.Close()); err != nil {
		t.Error(err)
	}
}
