package reach_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/engine/reach"
	"packhorse/odb/kv"
)

// TestWatch has a store answer, fail, hang, and panic.
func TestWatch(t *testing.T) {
	t.Parallel()
	hang, bug := errors.New("hang"), errors.New("a bug")
	tests := map[string]struct {
		err  error
		away bool
	}{
		"answers": {nil, false},
		"away":    {fmt.Errorf("read: %w", kv.ErrUnavailable), true},
		"damaged": {kv.ErrCorrupt, false},
		"hangs":   {hang, true},
		"panics":  {bug, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Pointer[error]
				w := reach.Begin(func(ctx context.Context) error {
					err := now.Load()
					if err == nil {
						return nil
					}
					if errors.Is(*err, hang) {
						<-ctx.Done()
						return ctx.Err()
					}
					if errors.Is(*err, bug) {
						panic(bug)
					}
					return *err
				})
				defer w.Close()
				synctest.Wait()
				for range 2 {
					if err := w.Err(); err != nil {
						t.Errorf("while the store answers: %v", err)
					}
					now.Store(&test.err)
					time.Sleep(7 * time.Second)
					synctest.Wait()
					if err := w.Err(); errors.Is(err, kv.ErrUnavailable) != test.away {
						t.Errorf("away: %v, want %t", err, test.away)
					}
					now.Store(nil)
					time.Sleep(7 * time.Second)
					synctest.Wait()
				}
			})
		})
	}
}
