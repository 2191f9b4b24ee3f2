package packgen

import (
	"bytes"
	"errors"
	"testing"
)

// failingWriter fails or panics at its nth write.
type failingWriter struct {
	n      int
	panics bool
}

var errDestination = errors.New("no more")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n--; w.n > 0 {
		return len(p), nil
	}
	if w.panics {
		panic(errDestination)
	}
	return 0, errDestination
}

// A buffer of the pool belongs to one stream, however earlier streams ended.
func TestStreamsHaveTheirOwnBuffers(t *testing.T) {
	for _, known := range [][]byte{nil, make([]byte, 20)} {
		for n := range 6 {
			for _, panics := range []bool{false, true} {
				broken := newPackStream(t.Context(), &failingWriter{n: n + 1, panics: panics}, known)
				writeBroken(t, broken)
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
