package odb

import (
	"context"
	"slices"
	"sync"
)

// turns is a bounded number of places for work. Waiting keys take turns: one caller of each key,
// however many of a key wait.
type turns struct {
	placesMax, perKeyMax int

	mu      sync.Mutex // guards the fields below
	taken   map[string]int
	count   int
	keys    []string // that wait, the next one first
	waiting map[string][]chan struct{}
}

// newTurns returns as many places, of which a key has perKeyMax at most.
func newTurns(placesMax, perKeyMax int) *turns {
	return &turns{
		placesMax: placesMax, perKeyMax: perKeyMax, taken: make(map[string]int), waiting: make(map[string][]chan struct{}),
	}
}

// take waits for a place, and returns the function that gives it back. Errors: that of ctx.
func (t *turns) take(ctx context.Context, key string) (release func(), err error) {
	place := make(chan struct{})
	t.mu.Lock()
	if len(t.waiting[key]) == 0 {
		t.keys = append(t.keys, key)
	}
	t.waiting[key] = append(t.waiting[key], place)
	t.grant()
	t.mu.Unlock()
	release = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.give(key)
	}
	select {
	case <-place:
		return release, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting[key], place); i >= 0 {
		t.remove(key, i)
	} else { // a place was granted at the same time
		t.give(key)
	}
	return nil, ctx.Err()
}

// give takes a place back. mu is held.
func (t *turns) give(key string) {
	t.count--
	if t.taken[key]--; t.taken[key] == 0 {
		delete(t.taken, key)
	}
	t.grant()
}

// grant gives free places to the next waiting callers. mu is held.
func (t *turns) grant() {
	for t.count < t.placesMax {
		next := slices.IndexFunc(t.keys, func(key string) bool { return t.taken[key] < t.perKeyMax })
		if next < 0 {
			return
		}
		key := t.keys[next]
		place := t.waiting[key][0]
		t.remove(key, 0)
		if i := slices.Index(t.keys, key); i >= 0 { // the others go first
			t.keys = append(slices.Delete(t.keys, i, i+1), key)
		}
		t.taken[key]++
		t.count++
		close(place)
	}
}

// remove removes a waiting caller. mu is held.
func (t *turns) remove(key string, i int) {
	t.waiting[key] = slices.Delete(t.waiting[key], i, i+1)
	if len(t.waiting[key]) == 0 {
		delete(t.waiting, key)
		t.keys = slices.DeleteFunc(t.keys, func(k string) bool { return k == key })
	}
}
