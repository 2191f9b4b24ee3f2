package odb_test

import (
	"bytes"
	"errors"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FuzzBorrowed checks that the file of a visibility set is refused or decodes to the same when it
// is encoded again, and that the file of another ID and one that ends early or late are refused.
func FuzzBorrowed(f *testing.F) {
	id := segment.LayerID{1, 2, 3}
	for _, seed := range []struct {
		ids   []object.ID
		count int
		words []uint64
	}{
		{},
		{ids: []object.ID{{2}, {1}, {2}}, count: 3, words: []uint64{5}},
		{ids: []object.ID{{9}}, count: 65, words: []uint64{1 << 63, 1}},
		{count: 200, words: []uint64{7}},
	} {
		tips, sets := odb.EncodeVisibility(id, seed.ids, seed.count, seed.words...)
		f.Add(tips[:len(tips)-4])
		f.Add(sets[:len(sets)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := odb.SealVisibility(body)
		again, err := odb.DecodeVisibility(id, data)
		if err != nil {
			return
		}
		if third, err := odb.DecodeVisibility(id, again); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%x is encoded as %x and then as %x, %v", data, again, third, err)
		}
		if _, err := odb.DecodeVisibility(segment.LayerID{9}, data); err == nil {
			t.Error("it is taken for that of another auxiliary file")
		}
		for _, cut := range [][]byte{
			body, odb.SealVisibility(body[:len(body)-1]), odb.SealVisibility(append(bytes.Clone(body), 0)),
		} {
			if _, err := odb.DecodeVisibility(id, cut); err == nil {
				t.Errorf("%x is taken for whole", cut)
			}
		}
	})
}

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
	_, err = f.ReadAt(data, 0)
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
