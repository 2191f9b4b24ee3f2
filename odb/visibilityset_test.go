package odb_test

import (
	"errors"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// A damaged or missing visibility set makes nothing readable.
func TestForkDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(h *odbtest.Pool, file string){
		"changed": func(h *odbtest.Pool, file string) { overwrite(h, file, func(data []byte) { data[len(data)/2] ^= 1 }) },
		"gone":    func(h *odbtest.Pool, file string) { h.Must(h.Files.Delete(h.Context(), file)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, public, secret := twoLines(t)
			h := odbtest.NewPool(t, odb.Options{})
			fills["one segment"](h, g)
			fork := forkPool(h, public)
			fork.Store.AwaitVisibility()
			h.Store.AwaitSettled()
			damage(h, visibilityFile(fork))
			again := *fork
			var err error
			again.Store, err = odbtest.OpenOn(t.Context(), h.Keys, h.Files, odb.Options{})
			h.Must(err)
			defer func() { h.Must(again.Store.Close(t.Context())) }()
			for _, id := range []object.ID{public, secret, {1}} {
				v, err := again.Store.View(t.Context(), again.ID)
				h.Must(err)
				if has, err := v.Has(t.Context(), id); has || !errors.Is(err, odb.ErrCorrupt) {
					t.Errorf("Has = %v, %v", has, err)
				}
				h.Must(v.Close())
			}
			report, err := again.Store.Fsck(t.Context(), again.ID, odb.FsckOptions{})
			if err != nil || report.ProblemCount == 0 {
				t.Errorf("fsck finds %d problems, %v", report.ProblemCount, err)
			}
		})
	}
}

// visibilityFile returns the name of the file with the visibility set of the fork.
func visibilityFile(h *odbtest.Pool) string {
	h.Helper()
	name, err := h.Store.VisibilityFile(h.Context(), h.ID)
	h.Must(err)
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
