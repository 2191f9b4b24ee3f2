package diff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"packhorse/engine/diff"
	"packhorse/pack/object"
)

// countedSlots gives slots and memory to everyone, and signals when a slot was given back.
type countedSlots struct {
	mu       sync.Mutex
	held     int
	returned chan struct{}
}

func (c *countedSlots) Slot(ctx context.Context) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.held--
		c.mu.Unlock()
		select {
		case c.returned <- struct{}{}:
		default:
		}
	}), nil
}

func (c *countedSlots) Reserve(ctx context.Context, _ int64) (func(), error) {
	return func() {}, ctx.Err()
}

// twoTrees stores two trees of count files that have other contents in each.
func twoTrees(m *memory, count int) (before, after object.ID) {
	m.tb.Helper()
	var trees [2]object.ID
	for version := range trees {
		files := map[string]string{}
		for i := range count {
			files[fmt.Sprintf("d%04d/f%02d", i/100, i%100)] = fmt.Sprintf("file %d of folder %d\nin version %d\n", i%100, i/100,
				version)
		}
		trees[version] = m.tree(files)
	}
	return trees[0], trees[1]
}

func TestCompareManyFiles(t *testing.T) {
	t.Parallel()
	count := 20_000
	if testing.Short() {
		count = 2_000
	}
	m := newMemory(t)
	before, after := twoTrees(m, count)
	compare := func(ctx context.Context, slots *countedSlots) (*diff.Comparison, error) {
		return diff.Compare(ctx, m, before, after, diff.CompareOptions{}, slots)
	}
	nothing := func() error { return nil }

	t.Run("all of it, in order", func(t *testing.T) {
		t.Parallel()
		c, err := compare(t.Context(), &countedSlots{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		files, last := 0, ""
		for f, err := range c.Files(nothing) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Path() <= last || f.Additions != 1 || f.Deletions != 1 ||
				!bytes.HasPrefix(f.Raw, []byte("diff --git a/"+f.Path())) {
				t.Fatalf("behind %s came %s: %s", last, f.Path(), f.Raw)
			}
			files, last = files+1, f.Path()
		}
		if files != count {
			t.Errorf("%d files, want %d", files, count)
		}
	})
	// The work pauses while nobody reads, and releases its slot. It resumes with the reader, and
	// ends when the reader leaves.
	t.Run("a reader who waits, and goes", func(t *testing.T) {
		t.Parallel()
		slots := &countedSlots{returned: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c, err := compare(ctx, slots)
		if err != nil {
			t.Fatal(err)
		}
		<-slots.returned
		read := 0
		var ended error
		for _, err := range c.Files(nothing) {
			if ended = err; err != nil {
				break
			}
			if read++; read == 200 {
				cancel()
			}
		}
		if !errors.Is(ended, context.Canceled) || read >= count/2 {
			t.Errorf("after %d files: %v", read, ended)
		}
		c.Close()
		if slots.held != 0 {
			t.Errorf("%d slots are still held", slots.held)
		}
	})
	t.Run("a client who is gone at once", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if c, err := compare(ctx, &countedSlots{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", c, err)
		}
	})
}

// unlimited grants all slots and memory, also after a cancellation, and signals when a slot was
// given back.
type unlimited struct{ returned chan struct{} }

func (u unlimited) Slot(context.Context) (func(), error) {
	return func() {
		select {
		case u.returned <- struct{}{}:
		default:
		}
	}, nil
}

func (u unlimited) Reserve(context.Context, int64) (func(), error) { return func() {}, nil }

// TestComparisonEndsWhilePaused closes comparisons whose walk pauses, because nobody takes the
// compared files.
func TestComparisonEndsWhilePaused(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	before, after := twoTrees(m, 500)
	for range 20 {
		slots := unlimited{make(chan struct{}, 1)}
		c, err := diff.Compare(t.Context(), m, before, after, diff.CompareOptions{}, slots)
		if err != nil {
			t.Fatal(err)
		}
		<-slots.returned
		c.Close()
	}
}
