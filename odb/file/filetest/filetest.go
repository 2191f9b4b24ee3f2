// Package filetest is the conformance suite of file.Store: every implementation passes [Run], and
// one that is file.Incoming also [RunIncoming].
package filetest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb/file"
)

// Harness makes the stores under test.
type Harness struct {
	// Open returns a new, empty store. The suite closes it.
	Open func(t *testing.T) file.Store
	// Other returns another server's store over the same files, which the suite closes. It is nil if
	// the store has one server only.
	Other func(t *testing.T, store file.Store) file.Store
	// Crash cuts the power of a store that Open or Crash returned and returns the store after the
	// restart, under the same server id. It is optional; without it the guarantees about crashes are
	// not tested.
	Crash func(t *testing.T, store file.Store) file.Store
}

// Run tests every guarantee of file.Store. Files of a store that is file.Incoming are settled at
// times, which must not change what is read.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, map[string]func(*testing.T, Harness){
		"Life":         testLife,
		"Names":        testNames,
		"Unsealed":     testUnsealed,
		"Exists":       testExists,
		"NotFound":     testNotFound,
		"Writer":       testWriter,
		"WriterModel":  testWriterModel,
		"WriterEnd":    testWriterEnd,
		"Scratch":      testScratch,
		"ScratchModel": testScratchModel,
		"Read":         testRead,
		"Cached":       testCached,
		"List":         testList,
		"DeleteOpen":   testDeleteOpen,
		"OtherServer":  testOtherServer,
		"Crash":        testCrash,
		"Context":      testContext,
		"Free":         testFree,
		"Closed":       testClosed,
	})
}

// RunIncoming tests every guarantee of file.Incoming, which the stores of the harness are.
func RunIncoming(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, map[string]func(*testing.T, Harness){
		"Settle":          testSettle,
		"Leftovers":       testLeftovers,
		"OtherLeftovers":  testOtherLeftovers,
		"ReadWhileMoving": testReadWhileMoving,
		"CrashSettle":     testCrashSettle,
		"IncomingContext": testIncomingContext,
		"IncomingClosed":  testIncomingClosed,
	})
}

func run(t *testing.T, h Harness, tests map[string]func(*testing.T, Harness)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// open returns a store that is closed when the test ends.
func (h Harness) open(t *testing.T) file.Store {
	t.Helper()
	store := h.Open(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil && !errors.Is(err, file.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return store
}

// two returns a store and that of another server over the same files, closed when the test ends.
func (h Harness) two(t *testing.T) (store, other file.Store) {
	t.Helper()
	if h.Other == nil {
		t.Skip("this store has one server only")
	}
	store = h.open(t)
	other = h.Other(t, store)
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, other
}

// content returns size bytes that do not repeat, the same for each seed.
func content(seed uint64, size int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	data := make([]byte, size)
	_, _ = random.Read(data)
	return data
}

// begin creates a file with data and leaves it unsealed; a test that ends aborts it.
func begin(t *testing.T, store file.Store, name string, data []byte) file.Writer {
	t.Helper()
	w, err := store.Create(t.Context(), name)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort %s: %v", name, err)
		}
	})
	if n, err := w.Write(data); n != len(data) || err != nil {
		t.Fatalf("write %s: %d, %v", name, n, err)
	}
	return w
}

// seal creates a sealed file with data.
func seal(t *testing.T, store file.Store, name string, data []byte) {
	t.Helper()
	if err := begin(t, store, name, data).Seal(t.Context()); err != nil {
		t.Fatalf("seal %s: %v", name, err)
	}
}

// settle moves a file to its final place, if it is in another one.
func settle(t *testing.T, store file.Store, name string) {
	t.Helper()
	if err := file.Settle(t.Context(), store, name); err != nil {
		t.Fatalf("settle %s: %v", name, err)
	}
}

// want checks the bytes of a file; nil stands for none.
func want(t *testing.T, store file.Store, name string, data []byte) {
	t.Helper()
	got, err := read(t, store, name)
	switch {
	case data == nil && !errors.Is(err, file.ErrNotFound):
		t.Errorf("open %s: %v, want %v", name, err, file.ErrNotFound)
	case data != nil && (err != nil || !bytes.Equal(got, data)):
		t.Errorf("read %s: %d bytes, %v; want %d bytes", name, len(got), err, len(data))
	}
}

// read returns the bytes of a file.
func read(t *testing.T, store file.Store, name string) ([]byte, error) {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()+1))
	if int64(len(data)) != f.Size() {
		t.Errorf("%s: size %d, %d bytes", name, f.Size(), len(data))
	}
	return data, errors.Join(err, f.Close())
}

// missing checks the answer of a Delete to a name that is not there.
func missing(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, file.ErrNotFound) {
		t.Errorf("delete what is not there: %v", err)
	}
}

// names returns the names that a walk shows, in order.
func names(t *testing.T, walk func(func(file.Info, error) bool)) []string {
	t.Helper()
	var list []string
	for info, err := range walk {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, info.Name)
	}
	slices.Sort(list)
	return list
}
