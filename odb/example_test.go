package odb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// A pool in memory gets a commit with one file. Nobody sees it until the batch is committed.
func Example() {
	ctx := context.Background()
	disk := vfs.NewMem()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{
		FS: disk, MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	files, err := file.OpenDir("files", file.DirOptions{FS: disk})
	check(err)
	store, err := odb.Open(ctx, keys, files, odb.Options{})
	check(err)
	defer func() { check(errors.Join(store.Close(ctx), files.Close(), keys.Close())) }()

	batch := kv.NewBatch()
	pool := store.CreatePool(batch)
	_, err = keys.Apply(ctx, batch)
	check(err)

	// What names an object comes behind it.
	view, err := store.View(ctx, pool)
	check(err)
	defer view.Close()
	q := view.NewQuarantine(ctx)
	defer q.Close()
	blob, err := q.Write(ctx, object.TypeBlob, []byte("hello\n"), object.ZeroID)
	check(err)
	tree, err := q.Write(ctx, object.TypeTree, object.AppendTree(nil, []object.TreeEntry{
		{Mode: object.ModeBlob, Name: "greeting", ID: blob},
	}), object.ZeroID)
	check(err)
	ada := object.Signature{Name: "Ada", Email: "ada@example.com", Seconds: 1_700_000_000, Zone: "+0000"}
	c := object.Commit{Tree: tree, Author: ada, Committer: ada, Message: "greet\n"}
	commit, err := q.Write(ctx, object.TypeCommit, c.Append(nil), object.ZeroID)
	check(err)

	found, err := view.Has(ctx, commit)
	check(err)
	fmt.Println("visible before:", found)

	// A server puts the ref that names the commit into the same batch.
	batch = kv.NewBatch()
	check(q.Stage(ctx, batch))
	done, err := keys.Apply(ctx, batch)
	check(err)
	check(done.Wait(ctx)) // it is durable
	q.Settled(ctx)

	after, err := store.View(ctx, pool)
	check(err)
	defer after.Close()
	found, err = after.Has(ctx, commit)
	check(err)
	fmt.Println("visible after:", found)
	kind, data, err := after.Read(ctx, blob)
	check(err)
	fmt.Printf("%v %v %q\n", kind, blob, data)
	// Output:
	// visible before: false
	// visible after: true
	// blob ce013625030ba8dba906f756967f9e9ca394464a "hello\n"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
