package migrate_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/identity"
	"packhorse/engine/migrate"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// errKilled ends every call of a process that was killed.
var errKilled = errors.New("the process was killed")

// killer kills a process at one of its calls of the stores, before or after the call has its
// effect.
type killer struct {
	left  atomic.Int64 // calls until then
	after bool
}

func (k *killer) killed() bool { return k.left.Load() < 0 }

func (k *killer) call(do func() error) error {
	left := k.left.Add(-1)
	if left == -1 && k.after {
		if err := do(); err != nil {
			return err
		}
	}
	if left < 0 {
		return errKilled
	}
	return do()
}

// end returns an end of a migration whose calls are counted.
func (k *killer) end(s *stores, place string) migrate.Stores {
	return migrate.Stores{Keys: &mortalKeys{s.keys, k}, Files: &mortalFiles{s.files, k}, Place: place}
}

type mortalKeys struct {
	kv.Store
	*killer
}

func (m *mortalKeys) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = m.call(func() error { value, err = m.Store.Get(ctx, key); return err })
	return value, err
}

func (m *mortalKeys) Read(ctx context.Context, set kv.ReadSet) (rows kv.Rows, err error) {
	err = m.call(func() error { rows, err = m.Store.Read(ctx, set); return err })
	return rows, err
}

func (m *mortalKeys) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		if err := m.call(func() error { return nil }); err != nil {
			yield(kv.Pair{}, err)
			return
		}
		m.Store.Scan(ctx, options)(yield)
	}
}

func (m *mortalKeys) Apply(ctx context.Context, batch *kv.Batch) (commit kv.Commit, err error) {
	err = m.call(func() error { commit, err = m.Store.Apply(ctx, batch); return err })
	return &mortalCommit{commit, m.killer}, err
}

type mortalCommit struct {
	kv.Commit
	*killer
}

func (m *mortalCommit) Wait(ctx context.Context) error {
	return m.call(func() error { return m.Commit.Wait(ctx) })
}

type mortalFiles struct {
	file.Store
	*killer
}

func (m *mortalFiles) Open(ctx context.Context, name string) (f file.File, err error) {
	err = m.call(func() error { f, err = m.Store.Open(ctx, name); return err })
	return f, err
}

func (m *mortalFiles) Delete(ctx context.Context, name string) error {
	return m.call(func() error { return m.Store.Delete(ctx, name) })
}

func (m *mortalFiles) List(ctx context.Context) iter.Seq2[file.Info, error] {
	return func(yield func(file.Info, error) bool) {
		if err := m.call(func() error { return nil }); err != nil {
			yield(file.Info{}, err)
			return
		}
		m.Store.List(ctx)(yield)
	}
}

func (m *mortalFiles) Create(ctx context.Context, name string) (w file.Writer, err error) {
	err = m.call(func() error { w, err = m.Store.Create(ctx, name); return err })
	return &mortalWriter{w, m.killer}, err
}

// Settle implements [file.Incoming].
func (m *mortalFiles) Settle(ctx context.Context, name string) error {
	return m.call(func() error { return m.Store.(file.Incoming).Settle(ctx, name) })
}

// Leftovers implements [file.Incoming].
func (m *mortalFiles) Leftovers(ctx context.Context) iter.Seq2[file.Info, error] {
	return m.Store.(file.Incoming).Leftovers(ctx)
}

type mortalWriter struct {
	file.Writer
	*killer
}

func (m *mortalWriter) Write(p []byte) (n int, err error) {
	err = m.call(func() error { n, err = m.Writer.Write(p); return err })
	return n, err
}

func (m *mortalWriter) Seal(ctx context.Context) error {
	return m.call(func() error { return m.Writer.Seal(ctx) })
}

// Abort does nothing in a process that was killed.
func (m *mortalWriter) Abort() error {
	if m.killed() {
		return nil
	}
	return m.Writer.Abort()
}

// TestKilledAnywhere kills a migration, with a power failure, at each of its calls. Never can both
// stores be opened, and what is acknowledged is kept: by the source if that can be opened, which is
// used then in every second case. When the migration is run again, it ends.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it copies a filled store, whose power fails")
	filled := newStores(t)
	filled.fill()
	step := int64(1)
	if testing.Short() {
		step = 7
	}
	states := make(map[[2]identity.State]int)
	var kept, removed int64 // files that earlier runs had copied
	for _, after := range []bool{false, true} {
		for calls := int64(0); ; calls += step {
			from, to := openStores(t, filled.fs.CrashClone(vfs.CrashCloneCfg{})), openStores(t, vfs.NewCrashableMem())
			k := &killer{after: after}
			k.left.Store(calls)
			report, err := migrate.Run(t.Context(), k.end(from, "source"), k.end(to, "target"), migrate.Options{})
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatalf("call %d: %v", calls, err)
			}
			killed := k.killed()
			from, to = from.crash(), to.crash()
			if !killed {
				wantMoved(from, to, report)
				to.host(sharing(), to.wantFilled)
			} else {
				states[[2]identity.State{from.state(), to.state()}]++
				report := goOn(t, from, to, calls%2 == 1)
				kept, removed = kept+report.FileCount-report.CopiedCount, removed+report.RemovedCount
			}
			from.shut()
			to.shut()
			if t.Failed() {
				t.Fatalf("killed at call %d, after it: %t", calls, after)
			}
			if !killed {
				break
			}
		}
	}
	t.Logf("the states of source and target: %v", states)
	for _, want := range [][2]identity.State{
		{"", "empty"},
		{"", identity.Arriving},
		{identity.Leaving, identity.Arriving},
		{identity.Left, identity.Arriving},
		{identity.Left, ""},
	} {
		if states[want] == 0 && !testing.Short() {
			t.Errorf("no call left source and target %q", want)
		}
		delete(states, want)
	}
	if len(states) > 0 {
		t.Errorf("states that must not be: %v", states)
	}
	if kept == 0 || removed == 0 {
		t.Errorf("%d files were not copied again, and %d removed", kept, removed)
	}
}

// goOn looks at the stores that a killed migration has left, and ends it. If the source can be
// opened and used is set, it is used first: files that were copied go, and others come.
func goOn(t *testing.T, from, to *stores, used bool) (report migrate.Report) {
	t.Helper()
	if from.state() == identity.Left && to.state() == "" { // the last call has ended it
		to.host(sharing(), to.wantFilled)
		return report
	}
	if to.state() == identity.Arriving {
		config := sharing()
		config.KV, config.Files = to.keys, to.files
		if _, err := engine.Open(t.Context(), config); !errors.Is(err, identity.ErrUnfinished) {
			t.Errorf("an unfinished target opens: %v", err)
		}
	}
	used = used && from.state() != identity.Left
	if used {
		from.host(engine.Config{}, func(host *engine.Host) {
			from.commitFile(host, "a", "later", large(4))
			enginetest.Create(from, host, "later")
			for done, err := range host.Maintain(t.Context(), engine.MaintainOptions{All: true, ReaderGrace: -1}) {
				from.must(errors.Join(err, done.Err))
			}
			from.wantFilled(host)
		})
	}
	report, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{})
	if err != nil {
		t.Errorf("run again: %v", err)
		return report
	}
	wantMoved(from, to, report)
	to.host(sharing(), func(host *engine.Host) {
		to.wantFilled(host)
		if used {
			to.wantFile(host, "a", "later", large(4))
		}
	})
	return report
}
