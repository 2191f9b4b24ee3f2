package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
)

// losing is a store on which batches fail with conflicts, without other writers. Rows that ask
// other servers to yield are put: they decide nothing.
type losing struct {
	kv.Store

	left atomic.Int64 // batches that will lose
}

// Apply implements kv.Store.
func (l *losing) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if !asksToYield(batch) && l.left.Add(-1) >= 0 {
		return nil, kv.ErrConflict
	}
	return l.Store.Apply(ctx, batch)
}

func asksToYield(batch *kv.Batch) bool {
	for op := range batch.Operations() {
		if op.Kind == kv.OperationPut && op.Key[0] == 'a' {
			return true
		}
	}
	return false
}

// newLosing is a writable on a store that loses races.
func newLosing(t *testing.T) (*writable, *losing) {
	t.Helper()
	store := &losing{}
	host := enginetest.OpenBehind(t, engine.Config{SecretKey: secretKey}, func(keys kv.Store) kv.Store {
		store.Store = keys
		return store
	})
	return newWritableOn(t, host), store
}

// TestLostRaces makes every write lose races for its repository: it retries internally, up to 16
// times in all, and then answers with the time for the next try.
func TestLostRaces(t *testing.T) {
	t.Parallel()
	const triesMax = 16
	for name, test := range writings {
		if strings.HasSuffix(name, "/base") || strings.HasSuffix(name, "/pull-upstream") {
			continue // the one writes nothing here; the other a state that a sync beside it writes too
		}
		t.Run(strings.TrimPrefix(name, "/api/v1"), func(t *testing.T) {
			t.Parallel()
			w, store := newLosing(t)
			c := w.prepared(test, "n", "")
			store.left.Store(triesMax)
			got := w.do(c, nil)
			if got.status != http.StatusServiceUnavailable || got.retry == "" {
				t.Errorf("all races lost: status %d, Retry-After %q: %s", got.status, got.retry, got.body)
			}
			isCommit := strings.HasSuffix(name, "-pack") || strings.HasSuffix(name, "-commit")
			if isCommit && !strings.Contains(string(got.body), `"status":"unavailable"`) {
				t.Errorf("all races lost: %s", got.body)
			}
			store.left.Store(triesMax - 1)
			w.do(c, nil).done(t)
		})
	}
}
