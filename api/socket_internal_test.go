package api

import (
	"errors"
	"io"
	"net"
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
