package odb_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestFaultsWhileWriting makes every operation of the file store fail once while a large commit is
// written: nothing of it is visible then, nothing is left behind after a restart, and the next try
// works.
func TestFaultsWhileWriting(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	data := odbtest.Noise(random, 1<<20+10)
	step := int32(1)
	if testing.Short() {
		step = 5
	}
	for index := int32(0); ; index += step {
		fault := errorfs.OnIndex(1 << 30) // not yet
		w := newFaultyWorld(t, fault)
		fault.Store(index)
		err := w.writeLarge(data)
		fired := fault.Load() < 0
		if err != nil && !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("fault %d: %v", index, err)
		}
		fault.Store(1 << 30)
		w.Reopen()
		committed := err == nil
		w.With(func(v *odb.View) {
			for id, c := range w.Objects {
				if ok, err := v.Has(t.Context(), id); err != nil || ok != committed {
					t.Fatalf("fault %d: Has = %v, %v, want %v", index, ok, err, committed)
				}
				if committed {
					w.Check(v, id, c)
				}
			}
		})
		want := 0
		if committed {
			want = 2 // a segment and its auxiliary file
		}
		if n := w.FileCount(); n != want {
			t.Fatalf("fault %d: %d files, want %d", index, n, want)
		}
		w.Must(w.writeLarge(data))
		w.CheckAll()
		if !fired {
			t.Logf("%d operations", index)
			if index < 5 {
				t.Errorf("only %d operations", index)
			}
			return
		}
	}
}

// newFaultyWorld is a world whose file store meets faults.
func newFaultyWorld(t *testing.T, fault errorfs.Injector) *world {
	t.Helper()
	w := &world{World: &odbtest.World{TB: t, FS: vfs.NewMem()}}
	w.OpenFiles = func() file.Store {
		files, err := file.OpenDir("files", file.DirOptions{FS: errorfs.Wrap(w.FS, fault)})
		w.Must(err)
		return files
	}
	w.Begin()
	return w
}

// writeLarge commits a blob, a tree and a commit as a segment, or fails and forgets them.
func (w *world) writeLarge(data []byte) (err error) {
	v := w.View()
	q := v.NewQuarantine(w.Context())
	w.Must(v.Close())
	defer func() {
		closed := q.Close()
		if err == nil {
			err = closed
		}
	}()
	d := &odbtest.Draft{World: w.World, Quarantine: q, Objects: w.Objects}
	blob, _ := object.Hash(object.TypeBlob, data)
	d.Expect(blob, object.TypeBlob, data)
	tree := odbtest.TreeOf(odbtest.FileEntry("a", blob))
	treeID, _ := object.Hash(object.TypeTree, tree)
	for _, c := range []odbtest.Content{
		{Type: object.TypeBlob, Data: data},
		{Type: object.TypeTree, Data: tree},
		{Type: object.TypeCommit, Data: odbtest.CommitOf(treeID, 1)},
	} {
		id, err := q.Write(w.Context(), c.Type, c.Data, object.ZeroID)
		if err != nil {
			return err
		}
		d.Expect(id, c.Type, c.Data)
	}
	b := kv.NewBatch()
	if err := q.Stage(w.Context(), b); err != nil {
		return err
	}
	w.Apply(b)
	q.Settled(w.Context())
	return nil
}
