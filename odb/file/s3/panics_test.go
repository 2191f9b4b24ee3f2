package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"packhorse/odb/file"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
)

// trapped puts a trap into the requests of a store: before they are sent, or when they are
// answered.
func trapped(store *s3.Store, trap *odbtest.Trap, answered bool) {
	s3.Through(store, func(next s3.RoundTrip) s3.RoundTrip {
		return func(r *http.Request) (*http.Response, error) {
			if !answered {
				trap.Step()
				return next(r)
			}
			answer, err := next(r)
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(answer.Body)
			if err = errors.Join(err, answer.Body.Close()); err != nil {
				return nil, err
			}
			answer.Body = io.NopCloser(bytes.NewReader(text))
			trap.Step()
			return answer, nil
		}
	})
}

// wantTrapped checks that err is the panic of a trap.
func wantTrapped(t *testing.T, err error) {
	t.Helper()
	if p, ok := errors.AsType[*rescue.PanicError](err); !ok || p.Value != odbtest.Trapped {
		t.Errorf("got %v", err)
	}
}

// TestPanics makes each request panic in turn, before it is sent and when it is answered: that is
// the error of the write, of which nothing is left, and the same write succeeds at once afterwards.
func TestPanics(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for size, requests := range map[int]int64{1000: 1, 17 << 20: 4} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(size, answered), func(t *testing.T) {
				t.Parallel()
				for n := range requests {
					trapWrite(t, server, size, n+1, answered)
				}
			})
		}
	}
}

// trapWrite writes a file with a panic at request n, then without one.
func trapWrite(t *testing.T, server *s3test.Server, size int, n int64, answered bool) {
	t.Helper()
	options := server.Options(t)
	store := s3test.Open(t, options)
	var trap odbtest.Trap
	trapped(store, &trap, answered)
	data := sample(1, size)
	trap.Set(n)
	err := rescue.Do(func() error { return write(t, store, "f", data) })
	if !trap.Take() {
		t.Fatalf("there is no request %d", n)
	}
	wantTrapped(t, err)
	if _, err := store.Open(t.Context(), "f"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("after a panic at request %d: %v", n, err)
	}
	if got := list(t, options.Dir); len(got) != 1 {
		t.Errorf("after a panic at request %d, left in the local folder: %q", n, got)
	}
	if err := write(t, store, "f", data); err != nil {
		t.Errorf("after a panic at request %d: %v", n, err)
	}
	if got, err := read(t, store, "f"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after a panic at request %d: %d bytes, or others, %v", n, len(got), err)
	}
	if err := store.Close(); err != nil { // waits
		t.Error(err)
	}
	want := 0
	if answered && size > 1000 && n == 1 { // the answer with the ID of the upload
		want = 1
	}
	// While one part panics, the other one may arrive behind the end of the upload.
	if got := uploads(t, server, options, store, "f"); got != want && n != 2 && n != 3 {
		t.Errorf("after a panic at request %d: %d uploads are left", n, got)
	}
}

// TestPanicBehind has a part panic that is sent while its file grows: it is logged, no longer
// counts as under way, and Seal sends it.
func TestPanicBehind(t *testing.T) {
	t.Parallel()
	options := s3test.Start(t).Options(t)
	var log bytes.Buffer // written before the goroutine ends that is waited for
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	store := s3test.Open(t, options)
	var trap odbtest.Trap
	trapped(store, &trap, false)
	w, err := store.Create(t.Context(), "grown")
	if err != nil {
		t.Fatal(err)
	}
	data := sample(1, 4*16<<20+1000)
	trap.Set(2) // behind the one that begins the upload
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if got := s3.Behind(w); got != 0 {
		t.Errorf("%d goroutines count, and none is left", got)
	}
	if !trap.Take() || !strings.Contains(log.String(), "panic: "+odbtest.Trapped) {
		t.Errorf("logged %q", log.String())
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, store, "grown"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, %v", len(got), err)
	}
}

// TestPanicOfTidying has the request panic that removes what an aborted writer has sent: its
// intent ends with that, so that a collector removes the rest.
func TestPanicOfTidying(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	store := s3test.Open(t, server.Options(t))
	var trap odbtest.Trap
	trapped(store, &trap, false)
	intent := &journaled{journal: &journal{}, upload: errors.New("refused"), ended: make(chan error, 1)}
	w, err := store.CreateIntended(t.Context(), "f", intent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(sample(1, 17<<20)); err != nil {
		t.Fatal(err)
	}
	trap.Set(2) // behind the one that begins the upload
	if err := w.Seal(t.Context()); !errors.Is(err, intent.upload) {
		t.Errorf("got %v", err)
	}
	wantTrapped(t, <-intent.ended)
	if err := write(t, store, "f", []byte("again")); err != nil {
		t.Error(err)
	}
}
