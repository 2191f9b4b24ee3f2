package kv_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

var errFault = errors.New("injected fault")

// faults fails one operation of a kind: the one that is counted down to.
type faults struct {
	kind func(errorfs.OpKind) bool
	left atomic.Int64
}

// MaybeError implements errorfs.Injector.
func (f *faults) MaybeError(op errorfs.Op) error {
	if f.kind(op.Kind) && f.left.Add(-1) == 0 {
		return errFault
	}
	return nil
}

// String implements errorfs.Injector.
func (f *faults) String() string { return "one fault" }

func isSync(kind errorfs.OpKind) bool {
	return kind == errorfs.OpFileSync || kind == errorfs.OpFileSyncData
}

func isWrite(kind errorfs.OpKind) bool {
	switch kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpRename, errorfs.OpReuseForWrite:
		return true
	default:
		return false
	}
}

// TestFaults makes every sync, and then every write of a file or its name, fail once. The store
// then either goes on, or it ends the process and answers nothing more. All acknowledged writes
// must survive a power failure.
func TestFaults(t *testing.T) {
	t.Parallel()
	step := int64(1)
	if testing.Short() {
		step = 3
	}
	for name, kind := range map[string]func(errorfs.OpKind) bool{"sync": isSync, "write": isWrite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for at := int64(1); ; at += step {
				injected := &faults{kind: kind}
				injected.left.Store(at)
				if fatal := runFaulty(t, injected); fatal {
					failed++
				}
				if injected.left.Load() > 0 { // there are not as many
					break
				}
			}
			if failed == 0 {
				t.Error("no fault ended a process")
			}
		})
	}
}

// runFaulty writes to a store until all is written or the process would have ended, cuts the power
// and checks the acknowledged writes. It reports whether the process would have ended.
func runFaulty(t *testing.T, injected *faults) bool {
	t.Helper()
	fs := vfs.NewCrashableMem()
	died := make(chan struct{})
	acknowledged := make(chan int)
	var last atomic.Int64
	store, err := kv.OpenPebble("db", kv.PebbleOptions{
		FS: errorfs.Wrap(fs, injected), MemoryBytes: 8 << 20, Logger: quiet(),
		OnFatal: func(error) { close(died) },
	})
	if err == nil {
		// A store that has failed may keep its callers for ever, as a process that has ended does: leave
		// them behind.
		go func() {
			acknowledged <- writeFaulty(t, store, &last)
		}()
		select {
		case <-acknowledged:
		case <-died:
			if _, err := store.Get(t.Context(), []byte("key")); !errors.Is(err, kv.ErrFailed) {
				t.Errorf("a failed store answers %v", err)
			}
			go func() { <-acknowledged }()
		}
	}
	after := openMem(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	defer func() {
		if err := after.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range int(last.Load()) {
		want := fmt.Sprint("value ", i)
		if got, err := after.Get(t.Context(), fmt.Appendf(nil, "key/%d", i)); err != nil || string(got[:len(want)]) != want {
			t.Errorf("key %d: %.20q, %v", i, got, err)
		}
	}
	select {
	case <-died:
		return true
	default:
		return false
	}
}

// writeFaulty writes enough to flush and compact, and counts the acknowledged writes in last.
func writeFaulty(t *testing.T, store *kv.Pebble, last *atomic.Int64) int {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it may be left behind, and then has nothing to say
	for i := range 35 {
		batch := kv.NewBatch()
		value := make([]byte, 40_000)
		copy(value, fmt.Sprint("value ", i))
		batch.Put(fmt.Appendf(nil, "key/%d", i), value)
		commit, err := store.Apply(ctx, batch)
		if err == nil {
			err = commit.Wait(ctx)
		}
		if errors.Is(err, kv.ErrFailed) {
			return i
		}
		if err != nil {
			t.Errorf("commit %d: %v", i, err)
			return i
		}
		last.Store(int64(i + 1))
	}
	if err := store.Close(); err != nil && !errors.Is(err, errFault) && !errors.Is(err, kv.ErrFailed) {
		t.Errorf("close: %v", err)
	}
	return 35
}
