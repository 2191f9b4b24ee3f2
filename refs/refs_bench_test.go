package refs_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// openDisk opens a store on the real disk.
func openDisk(b *testing.B) (kv.Store, *refs.Store, refs.RepoID) {
	b.Helper()
	keys, err := kv.OpenPebble(b.TempDir(), kv.PebbleOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := keys.Close(); err != nil {
			b.Error(err)
		}
	})
	store := refs.Open(keys, refs.Options{})
	return keys, store, createRepo(b, keys, store)
}

// fill creates branches.
func fill(b *testing.B, store *refs.Store, repo refs.RepoID, count int) {
	b.Helper()
	if _, err := store.Update(b.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		for i := range count {
			if err := tx.Set(ctx, fmt.Sprintf("refs/heads/feature/branch-%06d", i), nil, id(i+1), object.ZeroID); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// Writers move branches of one repository, every move synced to the disk.
func BenchmarkUpdate(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			_, store, repo := openDisk(b)
			fill(b, store, repo, writers)
			b.ReportAllocs()
			b.ResetTimer()
			var done atomic.Int64
			var wg sync.WaitGroup
			for writer := range writers {
				wg.Go(func() {
					name := fmt.Sprintf("refs/heads/feature/branch-%06d", writer)
					for n := done.Add(1); n <= int64(b.N); n = done.Add(1) {
						if _, err := store.Update(
							b.Context(), repo, refs.Change{Actor: "bench", Cause: "commit"}, setter(name, int(n)),
						); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// One reader lists 5,000 refs: again, after a commit, and without the decoded set.
func BenchmarkAdvertise(b *testing.B) {
	const count = 5000
	list := func(b *testing.B, store *refs.Store, repo refs.RepoID) {
		b.Helper()
		snapshot, err := store.Snapshot(b.Context(), repo)
		if err != nil {
			b.Fatal(err)
		}
		seen := 0
		for _, err := range snapshot.In(b.Context(), refs.Main, "") {
			if err != nil {
				b.Fatal(err)
			}
			seen++
		}
		if seen != count {
			b.Fatalf("%d refs", seen)
		}
		if err := snapshot.WaitDurable(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := snapshot.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("unchanged", func(b *testing.B) {
		_, store, repo := openDisk(b)
		fill(b, store, repo, count)
		list(b, store, repo)
		b.ReportAllocs()
		for b.Loop() {
			list(b, store, repo)
		}
	})
	b.Run("moved", func(b *testing.B) {
		_, store, repo := openDisk(b)
		fill(b, store, repo, count)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			b.StopTimer()
			n++
			set(b, store, repo, fmt.Sprintf("refs/heads/feature/branch-%06d", n*7%count), n)
			b.StartTimer()
			list(b, store, repo)
		}
	})
	b.Run("decoded each time", func(b *testing.B) {
		keys, store, repo := openDisk(b)
		fill(b, store, repo, count)
		b.ReportAllocs()
		for b.Loop() {
			list(b, refs.Open(keys, refs.Options{}), repo)
		}
	})
	b.Run("paged", func(b *testing.B) {
		keys, store, repo := openDisk(b)
		fill(b, store, repo, count)
		paged := refs.Open(keys, refs.Options{CacheBytes: 1})
		b.ReportAllocs()
		for b.Loop() {
			list(b, paged, repo)
		}
	})
}

// BenchmarkBranches reads the first page of branches of a repository that moved.
func BenchmarkBranches(b *testing.B) {
	_, store, repo := openDisk(b)
	fill(b, store, repo, 5000)
	b.ReportAllocs()
	for b.Loop() {
		snapshot, err := store.Snapshot(b.Context(), repo)
		if err != nil {
			b.Fatal(err)
		}
		if page, err := snapshot.Branches(b.Context(), refs.Main, refs.Creation{}, 20); err != nil || len(page) != 20 {
			b.Fatal(len(page), err)
		}
		if err := snapshot.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
