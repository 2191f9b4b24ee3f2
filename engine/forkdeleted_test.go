package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
)

// beforeRead is a store in which something happens before one of its reads.
type beforeRead struct {
	kv.Store
	left atomic.Int64 // reads until do is called
	do   func()
}

func (s *beforeRead) step() {
	if s.left.Add(-1) == 0 {
		s.do()
	}
}

func (s *beforeRead) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.step()
	return s.Store.Get(ctx, key)
}

func (s *beforeRead) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.step()
	return s.Store.Read(ctx, set)
}

func (s *beforeRead) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	s.step()
	return s.Store.Scan(ctx, options)
}

func (s *beforeRead) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.step()
	return s.Store.Snapshot(ctx)
}

// A repository that is deleted, and removed for good, before any read of its fork is not found.
func TestForkOfDeleted(t *testing.T) {
	t.Parallel()
	keys := &beforeRead{}
	host := enginetest.OpenBehind(t, engine.Config{}, func(stored kv.Store) kv.Store {
		keys.Store = stored
		return keys
	})
	for _, swept := range []bool{false, true} {
		missing := 0
		for read := int64(1); ; read++ {
			name := fmt.Sprintf("%d-%t", read, swept)
			_, err := host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: name})
			must(t, err)
			source, err := host.Repository(t.Context(), acme.Org, name)
			must(t, err)
			_, err = upload(source, acme, main, change{path: "a", content: "a"})
			must(t, err)
			keys.do = func() {
				_, err := host.DeleteRepository(t.Context(), acme, name)
				must(t, err)
				if !swept {
					return
				}
				for done, err := range host.Maintain(t.Context(), engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1}) {
					must(t, errors.Join(err, done.Err))
				}
			}
			keys.left.Store(read)
			_, err = host.CreateRepository(t.Context(), acme,
				engine.CreateRequest{Name: "fork-" + name, Base: &engine.Base{Name: name}})
			if keys.left.Swap(0) > 0 { // the fork needs fewer reads
				must(t, err)
				break
			}
			if errors.Is(err, engine.ErrNotFound) {
				missing++
			} else if err != nil {
				t.Errorf("deleted before read %d, swept: %t: %v", read, swept, err)
			}
		}
		if missing < 5 {
			t.Errorf("swept: %t: only %d reads found nothing", swept, missing)
		}
	}
}
