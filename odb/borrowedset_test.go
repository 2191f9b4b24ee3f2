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

// FuzzBorrowed holds that the file with the visibility set of a fork is refused or says the same
// when it is encoded again, and that a file of another auxiliary file and one that ends early or
// late are refused.
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
		tips, sets := odb.EncodeBorrowed(id, seed.ids, seed.count, seed.words...)
		f.Add(tips[:len(tips)-4])
		f.Add(sets[:len(sets)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := odb.SealBorrowed(body)
		again, err := odb.DecodeBorrowed(id, data)
		if err != nil {
			return
		}
		if third, err := odb.DecodeBorrowed(id, again); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%x is encoded as %x and then as %x, %v", data, again, third, err)
		}
		if _, err := odb.DecodeBorrowed(segment.LayerID{9}, data); err == nil {
			t.Error("it is taken for that of another auxiliary file")
		}
		for _, cut := range [][]byte{
			body, odb.SealBorrowed(body[:len(body)-1]), odb.SealBorrowed(append(bytes.Clone(body), 0)),
		} {
			if _, err := odb.DecodeBorrowed(id, cut); err == nil {
				t.Errorf("%x is taken for whole", cut)
			}
		}
	})
}

// A damaged or missing visibility set makes nothing readable.
func TestForkDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(h *ingestHost, file string){
		"changed": func(h *ingestHost, file string) { overwrite(h, file, func(data []byte) { data[len(data)/2] ^= 1 }) },
		"gone":    func(h *ingestHost, file string) { h.must(h.files.Delete(h.tb.Context(), file)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, public, secret := twoLines(t)
			h := newIngestHost(t, odb.Options{})
			fills["one segment"](h, g)
			fork := h.forkOf(public)
			fork.store.AwaitLoans()
			h.store.AwaitSettled()
			damage(h, fork.loanFile())
			again := *fork
			var err error
			again.store, err = odbtest.OpenOn(t.Context(), h.keys, h.files, odb.Options{})
			h.must(err)
			defer func() { h.must(again.store.Close(t.Context())) }()
			for _, id := range []object.ID{public, secret, {1}} {
				v, err := again.store.View(t.Context(), again.pool)
				h.must(err)
				if has, err := v.Has(t.Context(), id); has || !errors.Is(err, odb.ErrCorrupt) {
					t.Errorf("Has = %v, %v", has, err)
				}
				h.must(v.Close())
			}
			report, err := again.store.Fsck(t.Context(), again.pool, odb.FsckOptions{})
			if err != nil || report.ProblemCount == 0 {
				t.Errorf("fsck finds %d problems, %v", report.ProblemCount, err)
			}
		})
	}
}

// loanFile returns the name of the file with the visibility set of the fork.
func (h *ingestHost) loanFile() string {
	h.tb.Helper()
	name, err := h.store.LoanFile(h.tb.Context(), h.pool)
	h.must(err)
	return name
}

// overwrite stores another content under the name of a file.
func overwrite(h *ingestHost, name string, edit func(data []byte)) {
	h.tb.Helper()
	ctx := h.tb.Context()
	f, err := h.files.Open(ctx, name)
	h.must(err)
	data := make([]byte, f.Size())
	_, err = f.ReadAt(data, 0)
	h.must(err)
	h.must(f.Close())
	edit(data)
	h.must(h.files.Delete(ctx, name))
	w, err := h.files.Create(ctx, name)
	h.must(err)
	_, err = w.Write(data)
	h.must(err)
	h.must(w.Seal(ctx))
}
