package refs_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// moving calls before with the number of each snapshot, before that is made.
type moving struct {
	kv.Store
	before func(count int32)
	count  atomic.Int32
}

func (s *moving) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	if s.before != nil {
		s.before(s.count.Add(1))
	}
	return s.Store.Snapshot(ctx)
}

// TestFsckOutlastsSnapshots checks a repository whose snapshots expire again and again: it is the
// same check while the repository stands still, begins anew when it moves, and gives up when it
// never stands still.
func TestFsckOutlastsSnapshots(t *testing.T) {
	t.Parallel()
	plain := openKV(t)
	store := refs.Open(plain, refs.Options{})
	repo := createRepo(t, plain, store)
	for i := range 100 {
		set(t, store, repo, fmt.Sprint("refs/heads/b", i%30), i+1, fmt.Sprint("refs/tags/t", i), i+1)
	}
	keys := &moving{Store: hasty{plain, new(atomic.Int32)}}
	check := refs.Open(keys, refs.Options{})
	compare := func(t *testing.T) {
		t.Helper()
		got, err := check.Fsck(t.Context(), repo)
		if err != nil || got.ProblemCount > 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		if want, err := store.Fsck(t.Context(), repo); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v; want %+v, %v", got, want, err)
		}
	}
	compare(t)
	next := 0
	move := func() {
		next++
		set(t, store, repo, "refs/heads/moving", next)
	}
	keys.before = func(count int32) {
		if count == 3 {
			move()
		}
	}
	if got, err := check.Fsck(t.Context(), repo); err != nil || got.ProblemCount > 0 || got.RefCount != 131 {
		t.Errorf("it has moved once: %+v, %v", got, err)
	}
	keys.before = func(count int32) {
		if count == 3 { // not the head, but the rows of the journal
			if _, err := store.TrimJournal(t.Context(), repo, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}
	}
	keys.count.Store(0)
	compare(t)
	keys.before = func(int32) { move() }
	if got, err := check.Fsck(t.Context(), repo); !errors.Is(err, refs.ErrBusy) {
		t.Errorf("it moves on and on: %+v, %v", got, err)
	}
}
