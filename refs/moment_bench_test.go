package refs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"packhorse/pack/object"
	"packhorse/refs"
)

// BenchmarkMoments reads 5,000 branches as they are now and as they were before each of them was
// moved four times and a tenth of them was deleted: one branch, all of them, the first twenty, each
// with a store that keeps no decoded refs and with one that does.
func BenchmarkMoments(b *testing.B) {
	const count, moves = 5000, 4
	keys, store, repo := openDisk(b)
	fill(b, store, repo, count)
	moment := uint64(2)
	for move := range moves + 1 {
		if _, err := store.Update(b.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
			for i := range count {
				name, err := fmt.Sprintf("refs/heads/feature/branch-%06d", i), error(nil)
				switch {
				case move < moves:
					err = tx.Set(ctx, name, nil, id(count+i*moves+move+1), object.ZeroID)
				case i%10 == 7:
					err = tx.Delete(ctx, name, nil)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	const name = "refs/heads/feature/branch-002500"
	lookup := func(snapshot *refs.Snapshot) error {
		_, err := snapshot.Lookup(b.Context(), name)
		return err
	}
	all := func(snapshot *refs.Snapshot) error {
		seen := 0
		for _, err := range snapshot.In(b.Context(), refs.Main, "") {
			if err != nil {
				return err
			}
			seen++
		}
		if seen != snapshot.Count() {
			return fmt.Errorf("%d of %d refs", seen, snapshot.Count())
		}
		return nil
	}
	branches := func(snapshot *refs.Snapshot) error {
		page, err := snapshot.Branches(b.Context(), refs.Main, refs.Creation{}, 20)
		if err == nil && len(page) != 20 {
			err = fmt.Errorf("%d branches", len(page))
		}
		return err
	}
	now := func(store *refs.Store, names ...string) (*refs.Snapshot, error) {
		return store.Snapshot(b.Context(), repo, names...)
	}
	then := func(store *refs.Store, names ...string) (*refs.Snapshot, error) {
		return store.SnapshotAt(b.Context(), repo, moment, names...)
	}
	for _, cached := range []bool{false, true} {
		for _, read := range []struct {
			name  string
			do    func(*refs.Snapshot) error
			names []string
		}{{"lookup", lookup, []string{name}}, {"all", all, nil}, {"branches", branches, nil}} {
			for _, when := range []struct {
				name string
				open func(*refs.Store, ...string) (*refs.Snapshot, error)
			}{{"now", now}, {"moment", then}} {
				b.Run(fmt.Sprintf("%s/cached=%t/%s", read.name, cached, when.name), func(b *testing.B) {
					store := refs.Open(keys, refs.Options{})
					once := func() error {
						snapshot, err := when.open(store, read.names...)
						if err != nil {
							return err
						}
						if err := read.do(snapshot); err != nil {
							return err
						}
						return snapshot.Close()
					}
					if cached {
						if snapshot, err := when.open(store); err != nil || all(snapshot) != nil {
							b.Fatal(err)
						}
					}
					b.ReportAllocs()
					for b.Loop() {
						if !cached {
							store = refs.Open(keys, refs.Options{})
						}
						if err := once(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
	b.Run("sequence", func(b *testing.B) {
		at := time.Now().Add(-time.Millisecond)
		for b.Loop() {
			if _, err := store.SequenceAt(b.Context(), repo, at); err != nil {
				b.Fatal(err)
			}
		}
	})
}
