package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack"
	"packhorse/pack/object"
)

// countedSlots gives slots and memory to everyone, and tells when a slot was given back.
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

// twoTrees pushes a commit whose parent has other contents in all of count files, and returns its id.
func twoTrees(t *testing.T, repo *engine.Repository, count int) object.ID {
	t.Helper()
	var packed bytes.Buffer
	trees := make([]object.ID, 2)
	type stored struct {
		kind object.Type
		data []byte
	}
	var objects []stored
	add := func(kind object.Type, data []byte) object.ID {
		id, err := object.Hash(kind, data)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, stored{kind, data})
		return id
	}
	for version := range trees {
		var root []object.TreeEntry
		for folder := range count / 100 {
			var entries []object.TreeEntry
			for i := range 100 {
				id := add(object.TypeBlob, fmt.Appendf(nil, "file %d of folder %d\nin version %d\n", i, folder, version))
				entries = append(entries, object.TreeEntry{Mode: object.ModeBlob, Name: fmt.Sprintf("f%02d", i), ID: id})
			}
			root = append(root, object.TreeEntry{Mode: object.ModeTree, Name: fmt.Sprintf("d%04d", folder), ID: add(object.TypeTree, object.AppendTree(nil, entries))})
		}
		trees[version] = add(object.TypeTree, object.AppendTree(nil, root))
	}
	const person = "A <a@example.com> 1700000000 +0000"
	parent := add(object.TypeCommit, fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\nm\n", trees[0], person, person))
	tip := add(object.TypeCommit, fmt.Appendf(nil, "tree %s\nparent %s\nauthor %s\ncommitter %s\n\nm\n", trees[1], parent, person, person))
	w := pack.NewWriter(&packed, uint32(len(objects)), pack.WriterOptions{})
	for _, o := range objects {
		if _, err := w.WriteWhole(o.kind, o.data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	push, err := repo.Receive(context.Background(), engine.Actor{Org: enginetest.Org, Subject: "test"}, engine.PushRequest{
		Commands: []engine.Command{{Name: "refs/heads/main", New: tip}}, Pack: &packed,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	result, err := push.Finish(context.Background(), nil)
	if err = errors.Join(err, result.Unpack); err != nil {
		t.Fatal(err)
	}
	return tip
}

func TestDiffOfManyFiles(t *testing.T) {
	t.Parallel()
	count := 20_000
	if testing.Short() {
		count = 2_000
	}
	repo := enginetest.Create(t, enginetest.Open(t), "wide")
	request := engine.CommitDiffRequest{Commit: twoTrees(t, repo, count).String()}
	nothing := func() error { return nil }

	t.Run("all of it, in order", func(t *testing.T) {
		t.Parallel()
		d, err := repo.CommitDiff(context.Background(), request, &countedSlots{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		files, last := 0, ""
		for f, err := range d.Files(nothing) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Path() <= last || f.Additions != 1 || f.Deletions != 1 || !bytes.HasPrefix(f.Raw, []byte("diff --git a/"+f.Path())) {
				t.Fatalf("behind %s came %s: %s", last, f.Path(), f.Raw)
			}
			files, last = files+1, f.Path()
		}
		if files != count {
			t.Errorf("%d files, want %d", files, count)
		}
	})
	// The work pauses while nobody reads, and gives its slot to others; it goes on when somebody does, and ends when its reader leaves.
	t.Run("a reader who waits, and goes", func(t *testing.T) {
		t.Parallel()
		slots := &countedSlots{returned: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		d, err := repo.CommitDiff(ctx, request, slots)
		if err != nil {
			t.Fatal(err)
		}
		<-slots.returned
		read := 0
		var ended error
		for _, err := range d.Files(nothing) {
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
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if slots.held != 0 {
			t.Errorf("%d slots are still held", slots.held)
		}
	})
	t.Run("a client who is gone at once", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if d, err := repo.CommitDiff(ctx, request, &countedSlots{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", d, err)
		}
	})
}
