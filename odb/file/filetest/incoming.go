package filetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"packhorse/odb/file"
)

// incoming returns the Incoming that a store is.
func incoming(t *testing.T, store file.Store) file.Incoming {
	t.Helper()
	in, ok := store.(file.Incoming)
	if !ok {
		t.Fatalf("%T is not file.Incoming", store)
	}
	return in
}

// places returns the names that List shows, in order, with "*" behind those that are settled.
func places(t *testing.T, store file.Store) string {
	t.Helper()
	return strings.Join(names(t, func(yield func(file.Info, error) bool) {
		for info, err := range store.List(t.Context()) {
			if info.Settled {
				info.Name += "*"
			}
			if !yield(info, err) {
				return
			}
		}
	}), " ")
}

// leftovers returns the names that Leftovers shows, in order.
func leftovers(t *testing.T, store file.Store) string {
	t.Helper()
	return strings.Join(names(t, incoming(t, store).Leftovers(t.Context())), " ")
}

// testSettle settles a sealed file twice, and what cannot be settled.
func testSettle(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	seal(t, store, "sealed", []byte("data"))
	for range 2 {
		settle(t, store, "sealed")
		want(t, store, "sealed", []byte("data"))
		if got := places(t, store); got != "sealed*" {
			t.Errorf("list: %s", got)
		}
	}
	begin(t, store, "unsealed", []byte("data"))
	for name, cause := range map[string]error{
		"none": file.ErrNotFound, "unsealed": file.ErrNotFound, "../a": file.ErrName, "": file.ErrName,
	} {
		if err := incoming(t, store).Settle(t.Context(), name); !errors.Is(err, cause) {
			t.Errorf("settle %q: %v", name, err)
		}
	}
}

func testLeftovers(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	for _, name := range []string{"one", "two", "three", "four"} {
		seal(t, store, name, []byte(name))
	}
	begin(t, store, "unsealed", []byte("data"))
	settle(t, store, "one")
	settle(t, store, "two")
	if err := store.Delete(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if got := places(t, store); got != "four one* three" {
		t.Errorf("list: %s", got)
	}
	if got := leftovers(t, store); got != "four three" {
		t.Errorf("leftovers: %s", got)
	}
}

// testOtherLeftovers checks that servers settle each other's files and have leftovers of their own
// only.
func testOtherLeftovers(t *testing.T, h Harness) {
	t.Helper()
	store, other := h.two(t)
	seal(t, store, "mine", []byte("m"))
	seal(t, other, "theirs", []byte("t"))
	if got := leftovers(t, store); got != "mine" {
		t.Errorf("leftovers: %s", got)
	}
	settle(t, store, "theirs")
	if got := leftovers(t, other); got != "" {
		t.Errorf("leftovers of the other server: %s", got)
	}
	if got := places(t, other); got != "mine theirs*" {
		t.Errorf("list: %s", got)
	}
}

// testReadWhileMoving opens files continuously while they are settled.
func testReadWhileMoving(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	data := content(1, 100)
	for i := range 30 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		seal(t, store, name, data)
		moved := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for {
					want(t, store, name, data)
					select {
					case <-moved:
						return
					default:
					}
				}
			})
		}
		var movers sync.WaitGroup
		for range 2 {
			movers.Go(func() {
				if err := incoming(t, store).Settle(t.Context(), name); err != nil {
					t.Error(err)
				}
			})
		}
		movers.Wait()
		close(moved)
		readers.Wait()
	}
}

// testCrashSettle settles and deletes the files of a crashed store, in any state.
func testCrashSettle(t *testing.T, h Harness) {
	t.Helper()
	if h.Crash == nil {
		t.Skip("this store cannot crash")
	}
	store := h.open(t)
	data := content(1, 100)
	for i := range 20 {
		name := "f-" + string(rune('a'+i))
		seal(t, store, name, data)
		settle(t, store, name)
		store = h.Crash(t, store)
		want(t, store, name, data)
		settle(t, store, name)
		if got := leftovers(t, store); got != "" {
			t.Fatalf("%s is left over", got)
		}
		if i%2 == 0 {
			if err := store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			store = h.Crash(t, store)
			want(t, store, name, nil)
		}
	}
}

func testIncomingContext(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	seal(t, store, "a", []byte("data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"settle": incoming(t, store).Settle(ctx, "a"), "leftovers": first(incoming(t, store).Leftovers(ctx)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := places(t, store); got != "a" {
		t.Errorf("list: %s", got)
	}
}

func testIncomingClosed(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	seal(t, store, "a", []byte("data"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"settle":    incoming(t, store).Settle(t.Context(), "a"),
		"leftovers": first(incoming(t, store).Leftovers(t.Context())),
	} {
		if !errors.Is(err, file.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
