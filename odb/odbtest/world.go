package odbtest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// World is a pool in stores on a file system that can crash, and a model of what the pool must
// hold. Its methods end the test when they fail.
type World struct {
	testing.TB
	FS *vfs.MemFS
	// Options are those of the next Open.
	Options odb.Options
	// OpenFiles, if given, opens the file store instead of [file.OpenDir].
	OpenFiles func() file.Store

	Keys  kv.Store
	Files file.Store
	Store *odb.Store
	Pool  odb.PoolID
	// Objects are the committed objects.
	Objects map[object.ID]Content
}

// Content is an object.
type Content struct {
	Type object.Type
	Data []byte
}

// NewWorld returns a World with an empty pool. Its stores are closed when the test ends.
func NewWorld(tb testing.TB, options odb.Options) *World {
	tb.Helper()
	w := &World{TB: tb, FS: vfs.NewCrashableMem(), Options: options}
	w.Begin()
	return w
}

// Begin opens the stores of a World that the caller made, makes its pool, and closes the stores
// when the test ends.
func (w *World) Begin() {
	w.Helper()
	w.Objects = make(map[object.ID]Content)
	w.Open()
	b := kv.NewBatch()
	w.Pool = w.Store.CreatePool(b)
	w.Apply(b)
	w.Cleanup(w.Close)
}

// Open opens the stores.
func (w *World) Open() {
	w.Helper()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: w.FS, MemoryBytes: 8 << 20})
	w.Must(err)
	w.Keys = keys
	if w.OpenFiles != nil {
		w.Files = w.OpenFiles()
	} else {
		w.Files, err = file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(w.FS)})
		w.Must(err)
	}
	w.Store, err = OpenOn(w.Context(), w.Keys, w.Files, w.Options)
	w.Must(err)
}

// Close closes the stores and checks that no view is open. All readers and writers must have ended;
// it waits for the work of the store itself.
func (w *World) Close() {
	w.Helper()
	w.Shut()
	if n := w.Store.Stats().ViewCount; n != 0 {
		w.Errorf("the store is closed with %d views open", n)
	}
}

// Shut is Close while views may be open.
func (w *World) Shut() {
	w.Helper()
	w.Must(w.Store.Close(context.Background()))
	w.Must(w.Files.Close())
	w.Must(w.Keys.Close())
}

// Reopen closes the stores and opens them again.
func (w *World) Reopen() {
	w.Helper()
	w.Close()
	w.Open()
}

// Crash opens the stores on what a power failure leaves of their files.
func (w *World) Crash(random *rand.Rand) {
	w.Helper()
	after := w.FS.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	w.Shut()
	w.FS = after
	w.Open()
}

// Must ends the test if err is not nil.
func (w *World) Must(err error) {
	w.Helper()
	Must(w.TB, err)
}

// Apply commits a batch and waits for its sync.
func (w *World) Apply(b *kv.Batch) {
	w.Helper()
	done, err := w.Keys.Apply(context.Background(), b)
	w.Must(err)
	w.Must(done.Wait(context.Background()))
}

// Retry applies the batch that build returns, and a new one whenever another change of the pool
// came first, as callers of the store do: the store itself changes manifests too.
func (w *World) Retry(build func() *kv.Batch) {
	w.Helper()
	for {
		done, err := w.Keys.Apply(context.Background(), build())
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		w.Must(err)
		w.Must(done.Wait(context.Background()))
		return
	}
}

// View opens the pool for reading. The caller closes the view.
func (w *World) View() *odb.View {
	w.Helper()
	v, err := w.Store.View(w.Context(), w.Pool)
	w.Must(err)
	return v
}

// With calls act with a view and closes it afterwards.
func (w *World) With(act func(v *odb.View)) {
	w.Helper()
	v := w.View()
	act(v)
	w.Must(v.Close())
}

// Check reads an object of a view in every way.
func (w *World) Check(v *odb.View, id object.ID, want Content) {
	w.Helper()
	ctx := w.Context()
	if ok, err := v.Has(ctx, id); err != nil || !ok {
		w.Fatalf("Has(%s) = %v, %v", id, ok, err)
	}
	info, err := v.Stat(ctx, id)
	if err != nil || info.Type != want.Type || info.Size != int64(len(want.Data)) {
		w.Fatalf("Stat(%s) = %v, %v, want a %s of %d bytes", id, info, err, want.Type, len(want.Data))
	}
	if len(want.Data) <= 32<<20 {
		kind, data, err := v.Read(ctx, id)
		if err != nil || kind != want.Type || !bytes.Equal(data, want.Data) {
			w.Fatalf("Read(%s) = %s of %d bytes, %v, want a %s of %d", id, kind, len(data), err, want.Type, len(want.Data))
		}
	}
	o, err := v.Open(ctx, id)
	if err != nil {
		w.Fatalf("Open(%s): %v", id, err)
	}
	var all bytes.Buffer
	if n, err := o.WriteTo(&all); err != nil || n != int64(len(want.Data)) || !bytes.Equal(all.Bytes(), want.Data) {
		w.Fatalf("WriteTo of %s = %d, %v, want %d bytes", id, n, err, len(want.Data))
	}
	w.Must(o.Close())
}

// CheckAll reads all committed objects.
func (w *World) CheckAll() {
	w.Helper()
	w.With(func(v *odb.View) {
		for id, want := range w.Objects {
			w.Check(v, id, want)
		}
	})
}

// Sound checks the pool with fsck from some tips, and reads all committed objects.
func (w *World) Sound(tips ...object.ID) {
	w.Helper()
	report, err := w.Store.Fsck(w.Context(), w.Pool, odb.FsckOptions{Tips: tips})
	w.Must(err)
	if report.ProblemCount > 0 {
		w.Fatalf("fsck: %v", report.Problems)
	}
	w.CheckAll()
}

// Warnings returns the warnings of fsck, sorted.
func (w *World) Warnings() []string {
	w.Helper()
	report, err := w.Store.Fsck(w.Context(), w.Pool, odb.FsckOptions{})
	w.Must(err)
	if int(report.WarningCount) != len(report.Warnings) {
		w.Errorf("%d warnings, %d told", report.WarningCount, len(report.Warnings))
	}
	lines := make([]string, 0, len(report.Warnings))
	for _, warning := range report.Warnings {
		lines = append(lines, warning.String())
	}
	slices.Sort(lines)
	return lines
}

// FileCount returns how many files the file store has.
func (w *World) FileCount() int {
	w.Helper()
	count := 0
	for _, err := range w.Files.List(w.Context()) {
		w.Must(err)
		count++
	}
	return count
}

// Compact compacts the pool, and deletes the files that this makes obsolete.
func (w *World) Compact(options repack.CompactOptions) repack.Compacted {
	w.Helper()
	done, err := repack.Compact(w.Context(), w.Store, w.Pool, options)
	w.Must(err)
	_, err = w.Store.Sweep(w.Context(), 0)
	w.Must(err)
	return done
}

// Prune prunes the objects that some tips do not reach. kept are those that must stay. It ends the
// test if there is nothing to prune.
func (w *World) Prune(kept map[object.ID]Content, options repack.PruneOptions) {
	w.Helper()
	p, err := repack.PlanPrune(w.Context(), w.Store, w.Pool, options)
	w.Must(err)
	if p == nil {
		w.Fatal("there is nothing to prune")
	}
	w.Must(p.Look(w.Context()))
	b := kv.NewBatch()
	w.Must(p.Stage(w.Context(), b, nil))
	w.Apply(b)
	p.Settled(w.Context())
	w.Must(p.Close())
	_, err = w.Store.Sweep(w.Context(), 0)
	w.Must(err)
	w.Objects = kept
}

// PruneTo returns the options of a prune that keeps what tips reach. shareMin is
// [repack.PruneOptions.ShareMin].
func PruneTo(shareMin float64, tips ...object.ID) repack.PruneOptions {
	return repack.PruneOptions{ShareMin: shareMin, Roots: func(context.Context) (_, old []object.ID, err error) {
		return tips, nil, nil
	}}
}

// Draft is a quarantine and the objects that it must hold. Whoever has a World makes drafts; their
// methods end its test when they fail.
type Draft struct {
	*World
	Quarantine *odb.Quarantine
	Objects    map[object.ID]Content
}

// Draft returns a draft on the pool as it is now.
func (w *World) Draft() *Draft {
	w.Helper()
	v := w.View()
	d := &Draft{World: w, Quarantine: v.NewQuarantine(w.Context()), Objects: make(map[object.ID]Content)}
	w.Must(v.Close())
	return d
}

// Write writes an object.
func (d *Draft) Write(t object.Type, data []byte, predecessor object.ID) object.ID {
	d.Helper()
	id, err := d.Quarantine.Write(d.Context(), t, data, predecessor)
	d.Must(err)
	return d.Expect(id, t, data)
}

// WriteFrom writes a blob as a stream.
func (d *Draft) WriteFrom(data []byte) object.ID {
	d.Helper()
	id, err := d.Quarantine.WriteBlobFrom(d.Context(), bytes.NewReader(data), int64(len(data)))
	d.Must(err)
	return d.Expect(id, object.TypeBlob, data)
}

// Expect notes an object that the quarantine holds, and returns its ID, which must be right.
func (d *Draft) Expect(id object.ID, t object.Type, data []byte) object.ID {
	d.Helper()
	if want, err := object.Hash(t, data); err != nil || id != want {
		d.Fatalf("id %s, want %s (%v)", id, want, err)
	}
	d.Objects[id] = Content{Type: t, Data: bytes.Clone(data)}
	return id
}

// Stage returns a batch that commits the draft.
func (d *Draft) Stage() *kv.Batch {
	d.Helper()
	d.Must(d.Quarantine.Refresh(d.Context()))
	b := kv.NewBatch()
	d.Must(d.Quarantine.Stage(d.Context(), b))
	return b
}

// Commit commits the draft and closes it.
func (d *Draft) Commit() {
	d.Helper()
	d.Retry(d.Stage)
	d.Quarantine.Settled(d.Context())
	d.Must(d.Quarantine.Close())
	maps.Copy(d.World.Objects, d.Objects)
}

// Discard closes the draft.
func (d *Draft) Discard() {
	d.Helper()
	d.Must(d.Quarantine.Close())
}
