package filetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb/file"
)

// testCrash cuts the power at random points of random lives of files. A sealed file must be there
// and complete, and its name taken. An unsealed file must be gone, or complete if the crash came
// during Seal.
func testCrash(t *testing.T, h Harness) {
	t.Helper()
	if h.Crash == nil {
		t.Skip("this store cannot crash")
	}
	random := rand.New(rand.NewPCG(21, 22))
	store := h.open(t)
	sealed := make(map[string][]byte)
	for life := range 15 {
		for i := range random.IntN(12) {
			name := fmt.Sprintf("f-%d-%d", life, i)
			data := content(random.Uint64(), random.IntN(600_000))
			w := begin(t, store, name, data)
			if random.IntN(3) == 0 {
				continue // left unsealed
			}
			if err := w.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			sealed[name] = data
		}
		for name := range sealed {
			switch random.IntN(6) {
			case 0:
				settle(t, store, name)
			case 1:
				if err := store.Delete(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				delete(sealed, name)
			}
		}
		if _, err := store.Scratch(t.Context()); err != nil {
			t.Fatal(err)
		}
		store = h.Crash(t, store)
		checkSealed(t, store, sealed)
	}
}

// checkSealed compares the files of a store with the expected ones.
func checkSealed(t *testing.T, store file.Store, sealed map[string][]byte) {
	t.Helper()
	var listed []string
	for info, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, info.Name)
		if info.Size != int64(len(sealed[info.Name])) {
			t.Errorf("%s has %d bytes, want %d", info.Name, info.Size, len(sealed[info.Name]))
		}
	}
	for name, data := range sealed {
		want(t, store, name, data)
		if _, err := store.Create(t.Context(), name); !errors.Is(err, file.ErrExists) {
			t.Errorf("create %s: %v", name, err)
		}
	}
	slices.Sort(listed)
	if unique := slices.Compact(slices.Clone(listed)); len(unique) != len(listed) || len(listed) != len(sealed) {
		t.Errorf("listed %d files, %d of them different, want %d", len(listed), len(unique), len(sealed))
	}
}
