package refs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Two branches are made in one transaction. Another one finds that its old value is wrong.
func Example() {
	ctx := context.Background()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{
		FS: vfs.NewMem(), MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := keys.Close(); err != nil {
			log.Fatal(err)
		}
	}()
	store := refs.Open(keys, refs.Options{})

	// A repository is made by a batch, which may hold more than that.
	repo, batch := refs.NewRepoID(), kv.NewBatch()
	if err := store.Create(batch, repo, refs.Change{Actor: "ada", Cause: "create"}); err != nil {
		log.Fatal(err)
	}
	if _, err := keys.Apply(ctx, batch); err != nil {
		log.Fatal(err)
	}

	// The IDs would be those of commits, which tx.Batch stores in the same step.
	first, second := object.ID{1}, object.ID{2}
	change := refs.Change{Actor: "ada", Cause: "push"}
	result, err := store.Update(ctx, repo, change, func(ctx context.Context, tx *refs.Tx) error {
		for _, name := range []string{"refs/heads/main", "refs/heads/topic"} {
			absent := object.ZeroID
			if err := tx.Set(ctx, name, &absent, first, object.ZeroID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, update := range result.Updates {
		fmt.Println(update.Sequence, update.Actor, update.Cause, update.Ref)
	}

	_, err = store.Update(ctx, repo, refs.Change{Actor: "bob"}, func(ctx context.Context, tx *refs.Tx) error {
		return tx.Set(ctx, "refs/heads/main", &second, second, object.ZeroID)
	})
	if stale, ok := errors.AsType[*refs.StaleError](err); ok {
		fmt.Println(stale.Name, "is where ada has put it:", stale.Actual == first)
	}
	// Output:
	// 2 ada push refs/heads/main
	// 2 ada push refs/heads/topic
	// refs/heads/main is where ada has put it: true
}
