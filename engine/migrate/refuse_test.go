package migrate_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/cluster"
	"packhorse/engine/enginetest"
	"packhorse/engine/identity"
	"packhorse/engine/migrate"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// put writes a row.
func (s *stores) put(key, value string) {
	s.Helper()
	b := kv.NewBatch()
	b.Put([]byte(key), []byte(value))
	commit, err := s.keys.Apply(s.Context(), b)
	s.must(err)
	s.must(commit.Wait(s.Context()))
}

// mark gives a store a mark.
func (s *stores) mark(id string, mark identity.Mark) {
	s.Helper()
	s.put(string(identity.Key()), string(identity.Row{ID: id, Mark: mark}.Encode()))
}

// id returns the ID of a store.
func (s *stores) id() string {
	s.Helper()
	row, err := identity.Read(s.Context(), s.keys)
	s.must(err)
	return row.ID
}

const otherID = "0123456789abcdef0123456789abcdef"

// TestRefuses migrates what must not be migrated. The target is changed in nothing.
func TestRefuses(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it copies a filled store")
	arriving := identity.Mark{State: identity.Arriving, Migration: "one", Run: "r", Place: "elsewhere"}
	tests := map[string]struct {
		prepare func(from, to *stores)
		want    string
		cause   error // nil: any
	}{
		"no source": {
			func(from, _ *stores) {
				b := kv.NewBatch()
				b.DeleteRange([]byte{0}, []byte{0xff})
				_, err := from.keys.Apply(from.Context(), b)
				from.must(err)
			}, "source holds no store", nil,
		},
		"a source that is a target itself": {
			func(from, _ *stores) { from.mark(from.id(), arriving) }, "source: it holds an unfinished", identity.ErrUnfinished,
		},
		"a source that was moved elsewhere": {
			func(from, to *stores) {
				from.mark(from.id(), identity.Mark{State: identity.Left, Migration: "two", Place: "third"})
				to.mark(from.id(), arriving)
			}, "were moved to third", identity.ErrMoved,
		},
		"a target with a store": {
			func(_, to *stores) { to.fill() }, "target is not empty: it holds store", nil,
		},
		"a target with a row": {
			func(_, to *stores) { to.put("R1", "record") }, `target is not empty: it holds a row of table "R"`, nil,
		},
		"a target with a file": {
			func(_, to *stores) {
				w, err := to.files.Create(to.Context(), "name")
				to.must(err)
				to.must(w.Seal(to.Context()))
			}, "target is not empty: it holds file name", nil,
		},
		"a target of another store": {
			func(_, to *stores) { to.mark(otherID, arriving) }, "another store, " + otherID + " from elsewhere", nil,
		},
		"a bucket of another store": {
			func(*stores, *stores) {}, "the bucket is refused", errForeign,
		},
		"a target with a mark of a later version": {
			func(_, to *stores) { to.put("I", strings.Repeat("i", identity.Size)+`{"state":"later"}`) }, "no known state",
			kv.ErrCorrupt,
		},
	}
	filled := newStores(t)
	filled.fill()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := openStores(t, filled.fs.CrashClone(vfs.CrashCloneCfg{})), newStores(t)
			t.Cleanup(from.shut)
			test.prepare(from, to)
			target := to.end("target")
			if errors.Is(test.cause, errForeign) {
				target.Claim = func(context.Context, string, string) (string, error) { return "", errForeign }
			}
			before, source := to.everything(false), from.everything(false)
			_, err := migrate.Run(t.Context(), from.end("source"), target, migrate.Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) || test.cause != nil && !errors.Is(err, test.cause) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if !maps.Equal(before, to.everything(false)) || !maps.Equal(source, from.everything(false)) {
				t.Error("a store has changed")
			}
		})
	}
}

var errForeign = errors.New("the bucket is refused")

// TestServers migrates a store that servers use: one that lives is named, also when it was frozen
// at the begin. One that died is passed over, and its row is not copied.
func TestServers(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	member, err := cluster.Join(t.Context(), cluster.Config{Keys: from.keys, URL: "http://one", Beat: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// No beat that is late decides: the first one that is seen ends the watch.
	_, err = migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{Watch: time.Hour})
	if err == nil || !strings.Contains(err.Error(), member.ID()+" http://one") {
		t.Errorf("with a server: %v", err)
	}
	from.must(member.Leave(t.Context()))

	row := string([]byte{cluster.Table, 's'}) + strings.Repeat("i", 16)
	from.put(row, `{"beat":1,"url":"http://frozen"}`)
	target := to.end("target")
	target.Files = &hookedFiles{Store: to.files, created: func() { from.put(row, `{"beat":2,"url":"http://frozen"}`) }}
	_, err = migrate.Run(t.Context(), from.end("source"), target, migrate.Options{Watch: time.Nanosecond})
	if err == nil || !strings.Contains(err.Error(), "http://frozen") {
		t.Errorf("with a server that was frozen: %v", err)
	}
	if from.state() != identity.Leaving || to.state() != identity.Arriving {
		t.Errorf("the source is %q, the target %q", from.state(), to.state())
	}
	report, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{Watch: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	wantMoved(from, to, report)
	if servers, err := cluster.List(t.Context(), to.keys); err != nil || len(servers) > 0 {
		t.Errorf("servers of the target: %v, %v", servers, err)
	}
}

// TestServerStarts has a server start while a migration begins. Before the source is marked, the
// migration sees the row of the server; afterwards, the server sees the mark, although it looked at
// the store before.
func TestServerStarts(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	row := string([]byte{cluster.Table, 's'}) + strings.Repeat("i", 16)
	source := from.end("source")
	source.Keys = &hookedKeys{Store: from.keys, at: 1, written: func() { from.put(row, `{"beat":1,"url":"http://new"}`) }}
	report, err := migrate.Run(t.Context(), source, to.end("target"), migrate.Options{})
	if err == nil || !strings.Contains(err.Error(), "http://new") || report.FileCount > 0 {
		t.Errorf("a server starts before the mark: %v, after %d files", err, report.FileCount)
	}

	for state, want := range map[identity.State]error{identity.Leaving: nil, identity.Left: identity.ErrMoved} {
		from := newStores(t)
		from.fill()
		id := from.id()
		config := sharing()
		config.Files = from.files
		// The first batch of a host is that of its row.
		config.KV = &hookedKeys{Store: from.keys, at: 1, written: func() {
			from.mark(id, identity.Mark{State: state, Place: "elsewhere"})
		}}
		host, err := engine.Open(t.Context(), config)
		if !errors.Is(err, want) {
			t.Errorf("a server starts while the store is %s: %v", state, err)
		}
		if host != nil {
			from.must(host.Close(t.Context()))
			if from.state() != "" {
				t.Errorf("the mark is %q after the start of a server", from.state())
			}
		}
	}
}

// hookedFiles calls a function before the first file is created.
type hookedFiles struct {
	file.Store
	created func()
	once    sync.Once
}

func (h *hookedFiles) Create(ctx context.Context, name string) (file.Writer, error) {
	h.once.Do(h.created)
	return h.Store.Create(ctx, name)
}

// TestOpenedMeanwhile opens the source while it is copied, and writes: the migration does not end,
// and the next one brings the write.
func TestOpenedMeanwhile(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	target := to.end("target")
	target.Files = &hookedFiles{Store: to.files, created: func() {
		from.host(engine.Config{}, func(host *engine.Host) { enginetest.Create(from, host, "meanwhile") })
	}}
	_, err := migrate.Run(t.Context(), from.end("source"), target, migrate.Options{})
	if err == nil || !strings.Contains(err.Error(), "source was opened meanwhile") {
		t.Errorf("got %v", err)
	}
	from.host(engine.Config{}, from.wantFilled)
	report, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantMoved(from, to, report)
	to.host(sharing(), func(host *engine.Host) {
		if _, err := host.Repository(t.Context(), enginetest.Org, "meanwhile"); err != nil {
			t.Error(err)
		}
	})
}

// TestTwoRuns has a second process run the migration before the first one writes rows: the first
// one ends without harm.
func TestTwoRuns(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	target := to.end("target")
	var report migrate.Report
	target.Keys = &hookedKeys{Store: to.keys, at: 2, written: func() {
		var err error
		report, err = migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{})
		from.must(err)
	}}
	_, err := migrate.Run(t.Context(), from.end("source"), target, migrate.Options{})
	if err == nil {
		t.Error("both runs have ended the migration")
	}
	wantMoved(from, to, report)
	to.host(sharing(), to.wantFilled)
}

// hookedKeys calls a function before the batch with that number.
type hookedKeys struct {
	kv.Store
	at      int64
	written func()
	batches atomic.Int64
}

func (h *hookedKeys) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if h.batches.Add(1) == h.at {
		h.written()
	}
	return h.Store.Apply(ctx, batch)
}

// TestDamage damages a file of the source, which ends the migration with its name, and then a copy,
// which is made again.
func TestDamage(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	var name string
	for info, err := range from.files.List(t.Context()) {
		from.must(err)
		if strings.HasSuffix(info.Name, ".segment") {
			name = info.Name
		}
	}
	from.flip(name)
	_, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{})
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged file: %v", err)
	}
	from.flip(name) // it is right again

	var count int64
	for name := range from.everything(true) {
		if strings.HasPrefix(name, "file ") {
			count++
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = migrate.Run(ctx, from.end("source"), to.end("target"), migrate.Options{Progress: func(r migrate.Report) {
		if r.FileCount == count {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	to.flip(name)
	report, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantMoved(from, to, report)
	if report.FileCount != count || report.CopiedCount != 1 {
		t.Errorf("%d of %d files were copied", report.CopiedCount, report.FileCount)
	}
}

// flip flips a bit in a stored file.
func (s *stores) flip(name string) {
	s.Helper()
	f, err := s.files.Open(s.Context(), name)
	s.must(err)
	content := make([]byte, f.Size())
	_, err = f.ReadAt(s.Context(), content, 0)
	s.must(errors.Join(err, f.Close()))
	s.must(s.files.Delete(s.Context(), name))
	content[len(content)/2] ^= 1
	w, err := s.files.Create(s.Context(), name)
	s.must(err)
	_, err = w.Write(content)
	s.must(err)
	s.must(w.Seal(s.Context()))
}
