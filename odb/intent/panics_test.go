package intent_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
)

// server is one of the processes that share the stores.
type server byte

func (s server) Own(context.Context) (intent.ServerID, error) { return intent.ServerID{byte(s)}, nil }

func (s server) Live(context.Context) (map[intent.ServerID]struct{}, error) {
	return map[intent.ServerID]struct{}{{byte(s)}: {}}, nil
}

var errRefused = errors.New("refused")

// refusing is a store that takes no file, and notes what it is asked to discard.
type refusing struct {
	trap      odbtest.Trap // in Discard
	discarded []string
}

func (*refusing) CreateIntended(ctx context.Context, _ string, of file.Intent) (file.Writer, error) {
	return nil, errors.Join(errRefused, of.Begin(ctx))
}

func (r *refusing) Discard(_ context.Context, name, _ string) error {
	r.trap.Step()
	r.discarded = append(r.discarded, name)
	return nil
}

// world is a store of intents, and a trap in it.
type world struct {
	t    *testing.T
	keys kv.Store
	trap odbtest.Trap
	log  odbtest.Log
}

// run runs test in a bubble of time.
func run(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: vfs.NewMem(), MemoryBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		test(&world{t: t, keys: keys})
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) open(of server, remote file.Remote) *intent.Files {
	return intent.Open(w.trap.Keys(w.keys), nil, remote, of, slog.New(slog.NewTextHandler(&w.log, nil)))
}

// count returns the number of intents.
func (w *world) count() (all int) {
	w.t.Helper()
	counts, err := intent.Count(w.t.Context(), w.keys)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, count := range counts {
		all += count
	}
	return all
}

// TestPanics makes each call of the store panic in turn while an intent is noted and ended, and
// once more when its end is tried again: the writer has it as an error, or it is logged, and no
// intent stays.
func TestPanics(t *testing.T) {
	t.Parallel()
	met := 0
	for n, sprung := int64(1), true; sprung; n++ {
		run(t, func(w *world) {
			files := w.open(1, &refusing{})
			w.trap.Set(n)
			_, err := files.Create(w.t.Context(), "a.segment")
			if !errors.Is(err, errRefused) {
				w.t.Errorf("got %v", err)
			}
			synctest.Wait()
			if sprung = w.trap.Take(); sprung {
				met++
				_, isTold := errors.AsType[*rescue.PanicError](err)
				if !isTold && !strings.Contains(w.log.String(), "panic: "+odbtest.Trapped) {
					w.t.Errorf("a panic in call %d: the error is %v, and this is logged: %s", n, err, w.log.String())
				}
			}
			w.trap.Set(1)
			time.Sleep(time.Hour)
			w.trap.Take()
			if got := w.count(); got > 0 {
				w.t.Errorf("a panic in call %d (it said %v): %d intents are left", n, err, got)
			}
			files.End()
		})
	}
	if met < 2 {
		t.Errorf("%d panics", met)
	}
}

// TestPanicOfCollector has a collector panic at one of three files of a server that has gone: it
// tells, and removes the others at once and that one with the next round.
func TestPanicOfCollector(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		gone := w.open(1, &refusing{})
		names := []string{"a.segment", "b.segment", "c.segment"}
		for _, name := range names {
			gone.Reserve(w.t.Context(), name)
		}
		synctest.Wait()
		gone.End()
		remote := &refusing{}
		files := w.open(2, remote)
		remote.trap.Set(2)
		err := files.Collect(w.t.Context(), 0)
		if _, ok := errors.AsType[*rescue.PanicError](err); !ok || !remote.trap.Take() {
			w.t.Errorf("got %v", err)
		}
		if got := w.count(); got != 1 {
			w.t.Errorf("%d intents are left: %v", got, remote.discarded)
		}
		if err := files.Collect(w.t.Context(), 0); err != nil {
			w.t.Error(err)
		}
		if slices.Sort(remote.discarded); !slices.Equal(remote.discarded, names) || w.count() != 0 {
			w.t.Errorf("%d intents are left, %v were removed", w.count(), remote.discarded)
		}
		files.End()
	})
}
