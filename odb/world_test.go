package odb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// world is an object database on a file system in memory, and what it must hold.
type world struct {
	testing.TB
	fs      *vfs.MemFS
	options odb.Options
	// segment.OpenFiles replaces the plain file store.
	openFiles func() file.Store

	keys    kv.Store
	files   file.Store
	store   *odb.Store
	pool    odb.PoolID
	objects map[object.ID]content // committed
	planned int                   // how many of them damagedWorld's commits reach
}

type content struct {
	kind object.Type
	data []byte
}

func newWorld(tb testing.TB, options odb.Options) *world {
	tb.Helper()
	w := &world{TB: tb, fs: vfs.NewCrashableMem(), options: options, objects: make(map[object.ID]content)}
	w.open()
	b := kv.NewBatch()
	w.pool = w.store.CreatePool(b)
	w.apply(b)
	tb.Cleanup(func() { w.close() })
	return w
}

func (w *world) open() {
	w.Helper()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: w.fs, MemoryBytes: 8 << 20})
	w.must(err)
	w.keys = keys
	if w.openFiles != nil {
		w.files = w.openFiles()
	} else {
		w.files, err = file.OpenDir("files", file.DirOptions{FS: w.fs})
		w.must(err)
	}
	w.store, err = odbtest.OpenOn(w.Context(), w.keys, w.files, w.options)
	w.must(err)
}

// close closes the stores. Whoever reads or writes has to have ended, but for the store's own work:
// closing waits for that.
func (w *world) close() {
	w.Helper()
	w.shut()
	if n := w.store.OpenViews(); n != 0 {
		w.Errorf("the store is closed with %d views open", n)
	}
}

func (w *world) shut() {
	w.Helper()
	w.must(w.store.Close(context.Background()))
	w.must(w.files.Close())
	w.must(w.keys.Close())
}

func (w *world) reopen() {
	w.Helper()
	w.close()
	w.open()
}

// crash goes on from what a power failure leaves.
func (w *world) crash(random *rand.Rand) {
	w.Helper()
	after := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	w.shut()
	w.fs = after
	w.open()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) apply(b *kv.Batch) {
	w.Helper()
	done, err := w.keys.Apply(context.Background(), b)
	w.must(err)
	w.must(done.Wait(context.Background()))
}

// retry applies the batch that build returns, and a new one whenever another change of the pool
// came first, as callers of the store do: the store's own work changes manifests too.
func (w *world) retry(build func() *kv.Batch) {
	w.Helper()
	for {
		done, err := w.keys.Apply(context.Background(), build())
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		w.must(err)
		w.must(done.Wait(context.Background()))
		return
	}
}

func (w *world) view() *odb.View {
	w.Helper()
	v, err := w.store.View(w.Context(), w.pool)
	w.must(err)
	return v
}

// with runs act with a view that is closed afterwards.
func (w *world) with(act func(v *odb.View)) {
	w.Helper()
	v := w.view()
	act(v)
	w.must(v.Close())
}

// draft is a quarantine and what it must hold.
type draft struct {
	*world
	q       *odb.Quarantine
	objects map[object.ID]content
}

func (w *world) draft() *draft {
	w.Helper()
	v := w.view()
	d := &draft{world: w, q: v.NewQuarantine(w.Context()), objects: make(map[object.ID]content)}
	w.must(v.Close())
	return d
}

func (d *draft) write(t object.Type, data []byte, predecessor object.ID) object.ID {
	d.Helper()
	id, err := d.q.Write(d.Context(), t, data, predecessor)
	d.must(err)
	return d.expect(id, t, data)
}

func (d *draft) writeFrom(data []byte) object.ID {
	d.Helper()
	id, err := d.q.WriteBlobFrom(d.Context(), bytes.NewReader(data), int64(len(data)))
	d.must(err)
	return d.expect(id, object.TypeBlob, data)
}

func (d *draft) expect(id object.ID, t object.Type, data []byte) object.ID {
	d.Helper()
	if want, err := object.Hash(t, data); err != nil || id != want {
		d.Fatalf("id %s, want %s (%v)", id, want, err)
	}
	d.objects[id] = content{kind: t, data: bytes.Clone(data)}
	return id
}

// stage returns the batch that commits the draft.
func (d *draft) stage() *kv.Batch {
	d.Helper()
	d.must(d.q.Refresh(d.Context()))
	b := kv.NewBatch()
	d.must(d.q.Stage(d.Context(), b))
	return b
}

func (d *draft) commit() {
	d.Helper()
	d.retry(d.stage)
	d.q.Settled(d.Context())
	d.must(d.q.Close())
	maps.Copy(d.world.objects, d.objects)
}

func (d *draft) discard() {
	d.Helper()
	d.must(d.q.Close())
}

// check reads an object in every way.
func (w *world) check(v *odb.View, id object.ID, want content) {
	w.Helper()
	ctx := w.Context()
	if ok, err := v.Has(ctx, id); err != nil || !ok {
		w.Fatalf("Has(%s) = %v, %v", id, ok, err)
	}
	info, err := v.Stat(ctx, id)
	if err != nil || info.Type != want.kind || info.Size != int64(len(want.data)) {
		w.Fatalf("Stat(%s) = %v, %v, want a %s of %d bytes", id, info, err, want.kind, len(want.data))
	}
	if len(want.data) <= 32<<20 {
		kind, data, err := v.Read(ctx, id)
		if err != nil || kind != want.kind || !bytes.Equal(data, want.data) {
			w.Fatalf("Read(%s) = %s of %d bytes, %v, want a %s of %d", id, kind, len(data), err, want.kind, len(want.data))
		}
	}
	o, err := v.Open(ctx, id)
	if err != nil {
		w.Fatalf("Open(%s): %v", id, err)
	}
	var all bytes.Buffer
	if n, err := o.WriteTo(&all); err != nil || n != int64(len(want.data)) || !bytes.Equal(all.Bytes(), want.data) {
		w.Fatalf("WriteTo of %s = %d, %v, want %d bytes", id, n, err, len(want.data))
	}
	w.must(o.Close())
}

func (w *world) checkAll() {
	w.Helper()
	w.with(func(v *odb.View) {
		for id, want := range w.objects {
			w.check(v, id, want)
		}
	})
}

// text returns lines that compress as source code does.
func text(random *rand.Rand, size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		fmt.Fprintf(&b, "func name%d(argument%d int) error { return fail(%q) }\n", random.IntN(500), random.IntN(9),
			fmt.Sprint(random.Uint32()))
	}
	return b.Bytes()[:size]
}

func noise(random *rand.Rand, size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// edited returns text with a line changed here and there.
func edited(random *rand.Rand, old []byte) []byte {
	lines := bytes.SplitAfter(old, []byte("\n"))
	for range 1 + random.IntN(3) {
		lines[random.IntN(len(lines))] = []byte(fmt.Sprintf("changed %d\n", random.Uint64()))
	}
	return bytes.Join(lines, nil)
}

func commitOf(tree object.ID, seconds int, parents ...object.ID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, parent := range parents {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	fmt.Fprintf(&b,
		"author A U Thor <author@example.com> %d +0000\ncommitter A U Thor <author@example.com> %d +0000\n\nmessage\n",
		seconds, seconds)
	return b.Bytes()
}

func treeOf(entries ...object.TreeEntry) []byte { return object.AppendTree(nil, entries) }

func fileEntry(name string, id object.ID) object.TreeEntry {
	return object.TreeEntry{Mode: object.ModeBlob, Name: name, ID: id}
}
