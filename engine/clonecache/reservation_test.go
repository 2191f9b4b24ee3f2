package clonecache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/clonecache"
)

// found is what a request gets that waits for the holder of a reservation.
type found struct {
	bytes.Buffer
	text        string
	reservation *clonecache.Reservation
	err         error
}

// waiters starts requests that wait for the holder of a reservation, and returns what each of them
// gets.
func waiters(t *testing.T, c *clonecache.Cache, key clonecache.Key, count int) <-chan *found {
	t.Helper()
	results := make(chan *found, count)
	for range count {
		go func() {
			f := &found{}
			defer func() { results <- f }()
			tell := func(line string) { f.text += line }
			var p *clonecache.Pack
			p, f.reservation, f.err = c.Lookup(t.Context(), key, tell)
			if p != nil {
				f.err = p.Send(t.Context(), f, tell)
			}
		}()
	}
	await(c, count)
	return results
}

// TestReservation stores the pack while others wait: they hear what the holder tells, and get the
// pack that is generated once.
func TestReservation(t *testing.T) {
	t.Parallel()
	const count = 8
	fs := vfs.NewMem()
	c := open(t, fs, clonecache.Options{CostMin: 1 << 60}) // it is gone as soon as it is generated
	key, p := clonecache.Key{1}, pack(300_000)
	r := reserve(t, c, key)
	r.Tell("planning\n")
	results := waiters(t, c, key, count)
	ended := make(chan struct{})
	holder := r.Store(func(ctx context.Context, w io.Writer, tell func(string)) error {
		defer close(ended)
		return writes(p)()(ctx, w, tell)
	})
	<-ended
	for range count {
		f := <-results
		if f.err != nil || !bytes.Equal(f.Bytes(), p) || f.text != "planning\nwriting\n" {
			t.Errorf("got %d bytes, %q, %v", f.Len(), f.text, f.err)
		}
	}
	r.Release() // has no effect
	var got bytes.Buffer
	text := ""
	err := holder.Send(t.Context(), &got, func(line string) { text += line })
	if err != nil || !bytes.Equal(got.Bytes(), p) || text != "writing\n" {
		t.Errorf("the holder got %d bytes, %q, %v", got.Len(), text, err)
	}
	if s := c.Stats(); s.Generated != 1 || s.Joined != count || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	c.Close()
	if names, err := fs.List(dir); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}

// TestReservationIsReleased has one of those who wait take over, and the others wait on.
func TestReservationIsReleased(t *testing.T) {
	t.Parallel()
	const count = 4
	c := open(t, vfs.NewMem(), clonecache.Options{})
	key, p := clonecache.Key{1}, pack(1000)
	r := reserve(t, c, key)
	results := waiters(t, c, key, count)
	r.Release()
	r.Decline() // has no effect
	for left := count - 1; left > 1; left-- {
		f := <-results
		if f.reservation == nil {
			t.Fatalf("%d bytes and %v in place of a reservation", f.Len(), f.err)
		}
		await(c, left)
		f.reservation.Release()
	}
	f := <-results
	await(c, 1)
	taken := f.reservation.Store(writes(p)())
	if f = <-results; f.err != nil || !bytes.Equal(f.Bytes(), p) {
		t.Errorf("the last one got %d bytes, %v", f.Len(), f.err)
	}
	if err := taken.Send(t.Context(), io.Discard, nil); err != nil {
		t.Error(err)
	}
	if s := c.Stats(); s.Generated != 1 || s.Joined != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReservationIsDeclined lets all who wait go, and reserves the key for the next one.
func TestReservationIsDeclined(t *testing.T) {
	t.Parallel()
	const count = 4
	c := open(t, vfs.NewMem(), clonecache.Options{})
	key := clonecache.Key{1}
	r := reserve(t, c, key)
	results := waiters(t, c, key, count)
	r.Decline()
	for range count {
		if f := <-results; f.reservation != nil || f.Len() > 0 || f.err != nil {
			t.Errorf("a reservation: %v, %d bytes, %v", f.reservation != nil, f.Len(), f.err)
		}
	}
	reserve(t, c, key).Decline()
	if s := c.Stats(); s.Generated != 0 || s.Joined != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestWaiterGoes cancels requests that wait: neither the holder nor another one notices.
func TestWaiterGoes(t *testing.T) {
	t.Parallel()
	c := open(t, vfs.NewMem(), clonecache.Options{})
	key, p := clonecache.Key{1}, pack(1000)
	r := reserve(t, c, key)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if _, reservation, err := c.Lookup(ctx, key, nil); reservation != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("got a reservation: %v, %v", reservation != nil, err)
			}
		})
	}
	await(c, 3)
	cancel()
	group.Wait()
	results := waiters(t, c, key, 1)
	holder := r.Store(writes(p)())
	if f := <-results; f.err != nil || !bytes.Equal(f.Bytes(), p) {
		t.Errorf("the other got %d bytes, %v", f.Len(), f.err)
	}
	if err := holder.Send(t.Context(), io.Discard, nil); err != nil {
		t.Error(err)
	}
}

// TestCloseWaitsForReservation stores a pack in a cache that closes: it fails.
func TestCloseWaitsForReservation(t *testing.T) {
	t.Parallel()
	c := open(t, vfs.NewMem(), clonecache.Options{})
	r := reserve(t, c, clonecache.Key{1})
	var group sync.WaitGroup
	group.Go(c.Close)
	for {
		p, other, err := c.Lookup(t.Context(), clonecache.Key{2}, nil)
		if err != nil || p != nil {
			t.Fatal(p, err)
		}
		if other == nil {
			break // it closes
		}
		other.Release()
	}
	generate := func(ctx context.Context, _ io.Writer, _ func(string)) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := r.Store(generate).Send(t.Context(), io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	group.Wait()
}
