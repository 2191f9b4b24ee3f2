package packgen

import (
	"bytes"
	"errors"
	"testing"
)

// FailingWriter takes some bytes and then calls Fail in each write.
type FailingWriter struct {
	Left int // bytes
	Fail func() error
}

func (w *FailingWriter) Write(p []byte) (int, error) {
	if w.Left -= len(p); w.Left < 0 {
		return 0, w.Fail()
	}
	return len(p), nil
}

var errDestination = errors.New("no more")

// A buffer of the pool belongs to one stream, however earlier streams ended. The test does not run
// in parallel: others would take a shared buffer first.
func TestStreamsHaveTheirOwnBuffers(t *testing.T) {
	for _, known := range [][]byte{nil, make([]byte, 20)} {
		for n := range 6 {
			for _, fail := range []func() error{
				func() error { return errDestination },
				func() error { panic(errDestination) },
			} {
				w := &FailingWriter{Left: n * streamBufferSize, Fail: fail}
				writeBroken(t, newPackStream(t.Context(), w, known))
			}
			var packs [4]bytes.Buffer
			var streams [len(packs)]*packStream
			for i := range streams {
				streams[i] = newPackStream(t.Context(), &packs[i], nil)
			}
			for range 5 { // of a buffer's length and a half each
				for i, s := range streams {
					if _, err := s.Write(bytes.Repeat([]byte{byte(i)}, streamBufferSize/2*3)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, s := range streams {
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				content := packs[i].Bytes()[:streamBufferSize/2*15]
				if !bytes.Equal(content, bytes.Repeat([]byte{byte(i)}, len(content))) {
					t.Fatalf("after a failure of write %d, stream %d has bytes of another one", n, i)
				}
			}
		}
	}
}

// writeBroken writes until the destination fails, and stops the stream as a pack does.
func writeBroken(t *testing.T, s *packStream) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil && p != errDestination { //nolint:errorlint // the value itself
			panic(p)
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	for range 10 {
		if _, err := s.Write(make([]byte, streamBufferSize)); err != nil {
			return
		}
	}
	if err := s.end(); err == nil {
		t.Error("a broken destination went unnoticed")
	}
}
