package odb_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// replaceLayers has another server over the stores of a world compact the pool and sweep without a
// grace, below the views that the world's own store has open.
func (w *world) replaceLayers() {
	w.Helper()
	w.Store.AwaitSettled()
	other, err := odbtest.OpenOn(w.Context(), w.Keys, w.Files, w.Options)
	w.Must(err)
	_, err = repack.Compact(w.Context(), other, w.Pool, repack.CompactOptions{All: true})
	w.Must(err)
	swept, err := other.Sweep(w.Context(), 0)
	w.Must(err)
	if swept.FileCount+swept.LayerCount == 0 {
		w.Fatal("no layer was removed")
	}
	w.Must(other.Close(w.Context()))
}

// twoSegments returns a world whose pool has two segments, the second one with a commit, and no hot
// objects. Its store has opened none of the files.
func twoSegments(t *testing.T) (w *world, tip object.ID) {
	t.Helper()
	w = newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	d := w.Draft()
	large := odbtest.FileEntry("a", d.WriteFrom(odbtest.Noise(random, 2<<20)))
	d.Commit()
	d = w.Draft()
	d.WriteFrom(odbtest.Text(random, 2<<20))
	tree := d.Write(object.TypeTree, odbtest.TreeOf(large), object.ZeroID)
	tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1), object.ZeroID)
	d.Commit()
	_, err := repack.Compact(t.Context(), w.Store, w.Pool, repack.CompactOptions{})
	w.Must(err)
	w.Reopen()
	return w, tip
}

// hotOnly returns a world whose pool has a hot layer alone, with a commit. No other server knows
// that of the world.
func hotOnly(t *testing.T) (w *world, tip object.ID) {
	t.Helper()
	w = newWorld(t, odb.Options{Epochs: odb.NewEpochs()})
	d := w.Draft()
	blob := d.Write(object.TypeBlob, []byte("content"), object.ZeroID)
	tree := d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("a", blob)), object.ZeroID)
	tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1), object.ZeroID)
	d.Commit()
	w.Reopen()
	return w, tip
}

// TestGoneLayers reads a view whose layers another server has replaced and removed: lookups and
// reads of objects go on with the layers that took their place, whatever comes first, what needs
// the old layers themselves fails as [odb.ErrGone], and nothing is told as damage.
func TestGoneLayers(t *testing.T) {
	t.Parallel()
	reads := map[string]func(w *world, v *odb.View, id object.ID) error{
		"Has": func(w *world, v *odb.View, id object.ID) error {
			ok, err := v.Has(w.Context(), id)
			if err == nil && !ok {
				w.Errorf("%s is not there", id)
			}
			return err
		},
		"Stat": func(w *world, v *odb.View, id object.ID) error {
			_, err := v.Stat(w.Context(), id)
			return err
		},
		"Read": func(w *world, v *odb.View, id object.ID) error {
			_, _, err := v.Read(w.Context(), id)
			return err
		},
		"Open": func(w *world, v *odb.View, id object.ID) error {
			o, err := v.Open(w.Context(), id)
			if err != nil {
				return err
			}
			_, err = o.WriteTo(io.Discard)
			return errors.Join(err, o.Close())
		},
		"Resolve": func(w *world, v *odb.View, id object.ID) error {
			found, err := v.Resolve(w.Context(), id.String()[:30])
			if err == nil && len(found) != 1 {
				w.Errorf("%s is found %d times", id, len(found))
			}
			return err
		},
		"Linked": func(w *world, v *odb.View, id object.ID) error {
			_, _, err := v.Linked().Read(w.Context(), id)
			return err
		},
		"Share": func(w *world, v *odb.View, id object.ID) error {
			shared := v.Share()
			_, _, err := shared.Read(w.Context(), id)
			return errors.Join(err, shared.Close())
		},
	}
	for name, read := range reads {
		for kind, newWorld := range map[string]func(t *testing.T) (w *world, tip object.ID){
			"segments": twoSegments, "hot": hotOnly,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				testGoneLayers(t, newWorld, read)
			})
		}
	}
}

func testGoneLayers(
	t *testing.T, newWorld func(t *testing.T) (*world, object.ID), read func(*world, *odb.View, object.ID) error,
) {
	t.Helper()
	w, tip := newWorld(t)
	v := w.View()
	w.replaceLayers()
	for id := range w.Objects {
		if err := read(w, v, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if row, err := v.Graph(t.Context(), tip); err != nil || row.Tree.IsZero() {
		t.Errorf("graph row %+v, %v", row, err)
	}
	for id, want := range w.Objects {
		w.Check(v, id, want)
	}
	if _, err := v.Find(t.Context(), tip); !errors.Is(err, odb.ErrGone) || errors.Is(err, odb.ErrCorrupt) {
		t.Errorf("Find: %v", err)
	}
	_, err := packgen.Plan(t.Context(), v, packgen.Request{Wants: []object.ID{tip}}, nil)
	if !errors.Is(err, odb.ErrGone) || errors.Is(err, odb.ErrCorrupt) {
		t.Errorf("a pack: %v", err)
	}
	w.Must(v.Close())
	w.Sound(tip)
	if n := w.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads met damage", n)
	}
}

// remoteFiles is a file store whose open files cannot be read on once they were deleted.
type remoteFiles struct{ file.Store }

func (s remoteFiles) Open(ctx context.Context, name string) (file.File, error) {
	f, err := s.Store.Open(ctx, name)
	return remoteFile{File: f, name: name, store: s.Store}, err
}

type remoteFile struct {
	file.File
	name  string
	store file.Store
}

func (f remoteFile) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	now, err := f.store.Open(ctx, f.name)
	if err != nil {
		return 0, err
	}
	n, err := now.ReadAt(ctx, p, offset)
	return n, errors.Join(err, now.Close())
}

// TestGoneOpenFiles removes files below a view that has them open.
func TestGoneOpenFiles(t *testing.T) {
	t.Parallel()
	w, tip := twoSegments(t)
	w.Must(w.Store.Close(t.Context()))
	w.Files, w.Options.CacheBytes = remoteFiles{w.Files}, 1
	var err error
	w.Store, err = odbtest.OpenOn(t.Context(), w.Keys, w.Files, w.Options)
	w.Must(err)
	v := w.View()
	for id, want := range w.Objects {
		w.Check(v, id, want)
	}
	w.replaceLayers()
	if _, err := v.Find(t.Context(), tip); !errors.Is(err, odb.ErrGone) {
		t.Errorf("Find: %v", err)
	}
	for id, want := range w.Objects {
		w.Check(v, id, want)
	}
	w.Must(v.Close())
	if n := w.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads met damage", n)
	}
}

// TestMissingFileOfTheManifest removes a file that the manifest names: that is damage, and counted.
func TestMissingFileOfTheManifest(t *testing.T) {
	t.Parallel()
	w, tip := twoSegments(t)
	for info, err := range w.Files.List(t.Context()) {
		w.Must(err)
		w.Must(w.Files.Delete(t.Context(), info.Name))
	}
	w.With(func(v *odb.View) {
		if _, _, err := v.Read(t.Context(), tip); !errors.Is(err, odb.ErrCorrupt) || errors.Is(err, odb.ErrGone) {
			t.Errorf("read: %v", err)
		}
	})
	if w.Store.Stats().CorruptCount == 0 {
		t.Error("the damage is not counted")
	}
}

// TestGonePool reads a view of a pool that another server has removed.
func TestGonePool(t *testing.T) {
	t.Parallel()
	w, tip := twoSegments(t)
	v := w.View()
	other, err := odbtest.OpenOn(t.Context(), w.Keys, w.Files, w.Options)
	w.Must(err)
	w.Retry(func() *kv.Batch {
		b := kv.NewBatch()
		other.DropPool(b, w.Pool)
		return b
	})
	_, err = other.Sweep(t.Context(), 0)
	w.Must(err)
	w.Must(other.Close(t.Context()))
	if _, _, err := v.Read(t.Context(), tip); !errors.Is(err, odb.ErrNoPool) || errors.Is(err, odb.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	w.Must(v.Close())
	if n := w.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads met damage", n)
	}
}
