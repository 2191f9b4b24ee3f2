package odb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// A damaged or missing visibility set makes nothing readable, whichever release has stored it.
func TestForkDamaged(t *testing.T) {
	t.Parallel()
	flip := func(data []byte) { data[len(data)/2] ^= 1 }
	for name, damage := range map[string]func(fork *odbtest.Pool){
		"changed": func(fork *odbtest.Pool) {
			rows := visibilityRows(fork)
			flip(rows[0].Value)
			b := kv.NewBatch()
			b.Put(rows[0].Key, rows[0].Value)
			fork.Apply(b)
		},
		"gone": func(fork *odbtest.Pool) {
			rows := visibilityRows(fork)
			b := kv.NewBatch()
			b.Delete(rows[0].Key)
			fork.Apply(b)
		},
		"changed file": func(fork *odbtest.Pool) { overwrite(fork, visibilityFile(fork), flip) },
		"file gone": func(fork *odbtest.Pool) {
			fork.Must(fork.Files.Delete(fork.Context(), visibilityFile(fork)))
		},
	} {
		for _, computed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, computed %v", name, computed), func(t *testing.T) {
				t.Parallel()
				g, public, secret := twoLines(t)
				h := odbtest.NewPool(t, odb.Options{})
				fills["one segment"](h, g)
				fork := forkPool(h, public)
				if computed {
					checkReadable(t, g, fork, public)
					fork.Store.AwaitVisibility()
				}
				damage(fork)
				again := opened(fork)
				for _, id := range []object.ID{public, secret, {1}} {
					if has, err := again.View().Has(t.Context(), id); has || !errors.Is(err, odb.ErrCorrupt) {
						t.Errorf("Has = %v, %v", has, err)
					}
				}
				report, err := again.Store.Fsck(t.Context(), again.ID, odb.FsckOptions{})
				if err != nil || report.ProblemCount == 0 {
					t.Errorf("fsck finds %d problems, %v", report.ProblemCount, err)
				}
			})
		}
	}
}

// Older releases stored visibility sets as files. They are read, replaced by rows when a walk has
// computed the set, and swept.
func TestVisibilityFiles(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for _, computed := range []bool{false, true} {
		t.Run(fmt.Sprint("computed ", computed), func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, odb.Options{})
			fills["one segment"](h, g)
			fork := forkPool(h, public)
			if computed {
				checkReadable(t, g, fork, public)
				fork.Store.AwaitVisibility()
			}
			name := visibilityFile(fork)
			again := opened(fork)
			again.Fsck()
			checkReadable(t, g, again, public)
			again.Store.AwaitVisibility()
			checkReadable(t, g, opened(fork), public)
			if has, err := again.View().Has(t.Context(), secret); has || err != nil {
				t.Errorf("a hidden commit: %v, %v", has, err)
			}
			_, err := h.Store.Sweep(t.Context(), 0) // the views of the other one are open
			h.Must(err)
			f, err := h.Files.Open(t.Context(), name)
			switch {
			case computed: // nothing has replaced it
				h.Must(err)
				h.Must(f.Close())
			case !errors.Is(err, file.ErrNotFound):
				t.Errorf("the file of the tips: %v", err)
			case len(visibilityRows(fork)) == 0:
				t.Error("the computed set was not stored")
			}
			again.Fsck()
		})
	}
}

// A visibility set may take several rows, which are deleted with its fork.
func TestVisibilityRows(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	tips := []object.ID{public}
	for i := range 20_000 {
		tips = append(tips, object.ID{byte(i >> 8), byte(i), 1})
	}
	fork := forkPool(h, tips...)
	if rows := visibilityRows(fork); len(rows) < 2 {
		t.Errorf("it takes %d rows", len(rows))
	}
	v, err := opened(fork).Store.View(t.Context(), fork.ID)
	h.Must(err)
	for _, tip := range []object.ID{public, tips[len(tips)-1]} {
		if has, err := v.Has(t.Context(), tip); !has || err != nil {
			t.Errorf("Has of a tip = %v, %v", has, err)
		}
	}
	h.Must(v.Close())
	rows, err := h.Store.VisibilityRows(t.Context(), fork.ID)
	h.Must(err)
	b := kv.NewBatch()
	h.Store.DropPool(b, fork.ID)
	h.Apply(b)
	_, err = h.Store.Sweep(t.Context(), 0)
	h.Must(err)
	for _, err := range h.Keys.Scan(t.Context(), rows) {
		t.Fatalf("a row has stayed, or %v", err)
	}
}

// opened is a fork in a store of its own over the same stores, with empty caches.
func opened(fork *odbtest.Pool) *odbtest.Pool {
	fork.Helper()
	again := onKeys(fork, fork.Keys, odb.Options{Reach: fork.Store.Options().Reach})
	fork.Cleanup(func() { fork.Must(again.Store.Close(context.Background())) })
	return again
}

// visibilityRows returns the rows of the visibility set of a fork.
func visibilityRows(fork *odbtest.Pool) (rows []kv.Pair) {
	fork.Helper()
	keys, err := fork.Store.VisibilityRows(fork.Context(), fork.ID)
	fork.Must(err)
	for pair, err := range fork.Keys.Scan(fork.Context(), keys) {
		fork.Must(err)
		rows = append(rows, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	return rows
}

// visibilityFile puts the visibility set of a fork into a file, and returns its name.
func visibilityFile(fork *odbtest.Pool) string {
	fork.Helper()
	name, err := fork.Store.StoreVisibilityFile(fork.Context(), fork.ID)
	fork.Must(err)
	fork.Store.AwaitSettled()
	return name
}

// overwrite replaces a file by an edited copy.
func overwrite(h *odbtest.Pool, name string, edit func(data []byte)) {
	h.Helper()
	ctx := h.Context()
	f, err := h.Files.Open(ctx, name)
	h.Must(err)
	data := make([]byte, f.Size())
	_, err = f.ReadAt(ctx, data, 0)
	h.Must(err)
	h.Must(f.Close())
	edit(data)
	h.Must(h.Files.Delete(ctx, name))
	w, err := h.Files.Create(ctx, name)
	h.Must(err)
	_, err = w.Write(data)
	h.Must(err)
	h.Must(w.Seal(ctx))
}
