package odb_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// forkPool forks a pool with tips, and returns the fork.
func forkPool(h *odbtest.Pool, tips ...object.ID) *odbtest.Pool {
	h.Helper()
	ctx := h.Context()
	v, err := h.Store.View(ctx, h.ID)
	h.Must(err)
	defer func() { h.Must(v.Close()) }()
	batch := kv.NewBatch()
	fork, err := v.Fork(ctx, batch, tips)
	h.Must(err)
	_, err = h.Keys.Apply(ctx, batch)
	h.Must(err)
	other := *h
	other.ID = fork.Pool()
	return &other
}

// forkOf forks the world's pool, and leaves its visibility set uncomputed.
func (w *world) forkOf(tips ...object.ID) odb.PoolID {
	w.Helper()
	var fork *odb.Fork
	w.Retry(func() *kv.Batch {
		for {
			b, v := kv.NewBatch(), w.View()
			next, err := v.Fork(w.Context(), b, tips)
			w.Must(v.Close())
			if errors.Is(err, kv.ErrConflict) {
				continue
			}
			w.Must(err)
			fork = next
			return b
		}
	})
	return fork.Pool()
}

// twoLines returns a repository with a branch main and a branch secret that share some history, and
// annotated tags on both.
func twoLines(tb testing.TB) (g *odbtest.Repository, public, secret object.ID) {
	tb.Helper()
	g = odbtest.NewRepository(tb)
	g.Seed(oracle.History{Seed: 7, Commits: 30})
	g.Git("branch", "-f", "secret", "HEAD~10")
	g.Git("symbolic-ref", "HEAD", "refs/heads/secret")
	for i := range 8 {
		blob := g.Write("blob", bytes.Repeat(fmt.Appendf(nil, "secret %d\n", i), 40))
		tree := g.Input(fmt.Appendf(nil, "100644 blob %s\tsecret\n", blob), "mktree")
		commit := g.Git("commit-tree", "-p", "refs/heads/secret", "-m", fmt.Sprint("secret ", i),
			string(bytes.TrimSpace(tree)))
		g.Git("update-ref", "refs/heads/secret", commit)
	}
	g.Git("tag", "-a", "-m", "hidden", "hidden", "refs/heads/secret")
	g.Git("tag", "-a", "-m", "shown", "shown", "refs/heads/main")
	return g, g.Tips("refs/tags/shown")[0], g.Tips("refs/tags/hidden")[0]
}

// useBitmaps lets fetches use bitmaps however few commits they ask for.
const useBitmaps = -1 // as CoverCount

// fills are ways to store a repository in a pool.
var fills = map[string]func(h *odbtest.Pool, g *odbtest.Repository){
	"one segment": func(h *odbtest.Pool, g *odbtest.Repository) { h.PushSegment(odbtest.PackAll(g.Repository)) },
	"hot objects": func(h *odbtest.Pool, g *odbtest.Repository) { h.Write(g, g.All()) },
	"a segment and hot objects": func(h *odbtest.Pool, g *odbtest.Repository) {
		h.PushSegment(g.Input([]byte("refs/heads/main~12"), "pack-objects", "--revs", "--stdout", "-q"))
		h.Write(g, g.All())
	},
	"one segment with bitmaps": func(h *odbtest.Pool, g *odbtest.Repository) {
		h.PushSegment(odbtest.PackAll(g.Repository))
		h.Must(packgen.BuildBitmaps(h.Context(), h.Store, h.ID, g.Tips(), nil))
		h.Fsck()
	},
	"two segments with duplicates": func(h *odbtest.Pool, g *odbtest.Repository) {
		for _, tip := range []string{"refs/heads/main", "refs/heads/secret"} {
			h.PushSegment(g.Input([]byte(tip), "pack-objects", "--revs", "--stdout", "-q"))
		}
		h.Write(g, g.All())
	},
}

func TestForkReadsWhatItsTipsReach(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, odb.Options{CoverCount: useBitmaps})
			fill(h, g)
			h.Fsck()
			fork := forkPool(h, public)
			checkReadable(t, g, fork, public)
			fork.Store.AwaitVisibility()
			checkReadable(t, g, fork, public) // now as it was written down
			fork.Fsck()

			again := forkPool(fork, public)
			again.Store.AwaitVisibility()
			checkReadable(t, g, again, public)
			whole := forkPool(h, public, secret)
			checkReadable(t, g, whole, public, secret)
			whole.Store.AwaitVisibility()
			if count, err := whole.Store.BorrowedLayerCount(t.Context(), whole.ID); err != nil || count != 0 {
				t.Errorf("%d layers of a fork that may read everything are not its own, %v", count, err)
			}
			checkReadable(t, g, whole, public, secret)
			whole.Fsck()
		})
	}
}

// checkReadable asks for every object of g, or every third, by every way that an ID can be asked
// for.
func checkReadable(t *testing.T, g *odbtest.Repository, h *odbtest.Pool, tips ...object.ID) {
	t.Helper()
	ctx := t.Context()
	reached := make(map[object.ID]bool)
	for _, id := range g.IDs(odbtest.Lines("", tips), "rev-list", "--objects", "--stdin", "--no-object-names") {
		reached[id] = true
	}
	v := h.View()
	for i, id := range append(g.All(), object.ID{1, 2, 3}) {
		if testing.Short() && i%3 != 0 {
			continue
		}
		unknown := func(what string, err error) {
			t.Helper()
			if reached[id] && err != nil || !reached[id] && !errors.Is(err, odb.ErrNotFound) {
				t.Errorf("%s of %s, reached %v: %v", what, id, reached[id], err)
			}
		}
		if has, err := v.Has(ctx, id); err != nil || has != reached[id] {
			t.Errorf("Has(%s) = %v, %v", id, has, err)
		}
		info, err := v.Stat(ctx, id)
		unknown("Stat", err)
		_, _, err = v.Read(ctx, id)
		unknown("Read", err)
		_, err = v.Entry(ctx, id)
		unknown("Entry", err)
		if opened, err := v.Open(ctx, id); err == nil {
			odbtest.Must(t, opened.Close())
			unknown("Open", nil)
		} else {
			unknown("Open", err)
		}
		if found, err := v.Resolve(ctx, id.String()[:12]); err != nil || slices.Contains(found, id) != reached[id] {
			t.Errorf("Resolve(%s) = %v, %v", id, found, err)
		}
		if i%7 == 0 {
			_, err = packgen.Plan(ctx, v, packgen.Request{Wants: []object.ID{id}}, nil)
			unknown("Plan of a want", err)
			_, err = packgen.Plan(ctx, v, packgen.Request{Wants: tips[:1], Haves: []object.ID{id}}, nil)
			unknown("Plan of a have", err)
		}
		if info.Type == object.TypeCommit || !reached[id] {
			_, err = v.Graph(ctx, id)
			unknown("Graph", err)
			for _, walkErr := range revwalk.Walk(ctx, v, revwalk.WalkOptions{Tips: []object.ID{id}}) {
				err = walkErr
				break
			}
			unknown("Walk", err)
			_, err = revwalk.MergeBases(ctx, v, tips[0], id)
			unknown("MergeBases", err)
		}
	}
	for _, request := range []packgen.Request{{Wants: tips, OFSDelta: true}, {Wants: tips, OFSDelta: true, Thin: true}} {
		odbtest.CheckPack(t, g, v, request)
	}
}

// A fork writes the same number of keys whatever the source holds, one more for each layer of it.
func TestForkCost(t *testing.T) {
	t.Parallel()
	costs := make(map[int]string)
	for _, commits := range []int{2, 200} {
		h := odbtest.NewPool(t, odb.Options{})
		g := odbtest.NewRepository(t)
		g.Seed(oracle.History{Seed: 3, Commits: commits})
		fills["one segment"](h, g)
		last := g.Tips("refs/heads/main")[0]
		hot := odbtest.NewRepository(t)
		blob := hot.Write("blob", []byte("hot"))
		h.Write(hot, []object.ID{mustID(t, blob)})
		v := h.View()
		batch := kv.NewBatch()
		_, err := v.Fork(t.Context(), batch, []object.ID{last})
		h.Must(err)
		costs[commits] = fmt.Sprintf("%d operations of %d bytes", batch.Count(), batch.Size())
	}
	if costs[2] != costs[200] {
		t.Errorf("a small repository costs %s, a larger one %s", costs[2], costs[200])
	}
}

// An object that a fork cannot read is stored again when it is pushed. Before, nothing can build on
// it.
func TestForkTakesUnreadableObjectsAgain(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		for size, count := range map[string]int{"as hot objects": 0, "as a segment": 1} {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				h := odbtest.NewPool(t, odb.Options{CoverCount: useBitmaps, Limits: odb.Limits{HotCount: count}})
				fill(h, g)
				fork := forkPool(h, public)
				since := func(revisions string, args ...string) []byte {
					return g.Input([]byte(revisions), append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...)
				}
				_, err := fork.Push(since("refs/heads/secret\n^refs/heads/secret~2\n", "--thin"), ingest.Options{})
				if _, missing := errors.AsType[*ingest.MissingError](err); !missing && !ingest.IsBadPack(err) {
					t.Errorf("a pack on top of what may not be read is taken: %v", err)
				}
				if has, err := fork.View().Has(t.Context(), secret); err != nil || has {
					t.Errorf("Has = %v, %v after a refused pack", has, err)
				}
				_, err = fork.Push(since("refs/tags/hidden\n^refs/heads/main\n", "--thin"), ingest.Options{})
				h.Must(err)
				checkReadable(t, g, fork, public, secret)
				fork.Fsck()
				fork.Write(g, g.All())
				_, err = repack.Compact(t.Context(), fork.Store, fork.ID, repack.CompactOptions{All: true})
				h.Must(err)
				pruneTo(fork, public, secret)
				checkReadable(t, g, fork, public, secret)
				fork.Fsck()
			})
		}
	}
}

// pruneTo prunes a pool to the objects that tips reach.
func pruneTo(h *odbtest.Pool, tips ...object.ID) {
	h.Helper()
	ctx := h.Context()
	prune, err := repack.PlanPrune(ctx, h.Store, h.ID, odbtest.PruneTo(0, tips...))
	h.Must(err)
	if prune == nil {
		return
	}
	batch := kv.NewBatch()
	h.Must(prune.Stage(ctx, batch, nil))
	_, err = h.Keys.Apply(ctx, batch)
	h.Must(err)
	prune.Settled(ctx)
	h.Must(prune.Close())
	_, err = h.Store.Sweep(ctx, 0)
	h.Must(err)
}

// Deltas that two pools make of each other's objects do not build on themselves.
func TestForkDeltasOfDuplicates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	long := bytes.Repeat([]byte("a line of text that repeats\n"), 100)
	version := func(n int) []byte { return append(fmt.Appendf(nil, "version %d\n", n), long...) }
	d := w.Draft()
	hidden := d.Write(object.TypeBlob, version(1), object.ZeroID)
	shown := d.Write(object.TypeBlob, version(2), hidden)
	d.Commit()
	w.Pool, w.Objects = w.forkOf(shown), map[object.ID]odbtest.Content{shown: {Type: object.TypeBlob, Data: version(2)}}
	w.CheckAll()
	d = w.Draft()
	d.Write(object.TypeBlob, version(3), shown)
	third := d.Write(object.TypeBlob, version(4), shown)
	d.Commit()
	d = w.Draft()
	d.Write(object.TypeBlob, version(1), third)
	d.Write(object.TypeBlob, version(1), shown)
	d.Commit()
	w.CheckAll()
	w.Reopen()
	w.CheckAll()
}

// A version that a fork may not read, and that its next write brings back, is not stored as a delta
// against itself, though it is the base of the version before.
func TestForkBringsBackAHiddenVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	long := bytes.Repeat([]byte("a line of text that repeats\n"), 100)
	d := w.Draft()
	hidden := d.Write(object.TypeBlob, append([]byte("1\n"), long...), object.ZeroID)
	shown := d.Write(object.TypeBlob, append([]byte("2\n"), long...), hidden)
	d.Commit()
	w.Pool = w.forkOf(shown)
	d = w.Draft()
	d.Write(object.TypeBlob, append([]byte("1\n"), long...), shown)
	d.Commit()
	w.CheckAll()
	w.Reopen()
	w.Compact(repack.CompactOptions{All: true})
	w.CheckAll()
	report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
	if err != nil || report.ProblemCount+report.WarningCount > 0 {
		t.Errorf("fsck: %v, %v, %v", err, report.Problems, report.Warnings)
	}
}

// A fork exists when its batch is committed, and the batch requires the manifest of the source.
func TestForkConflicts(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := odbtest.NewPool(t, odb.Options{})
	fills["hot objects"](h, g)
	ctx := t.Context()
	early := h.View()
	first, second := kv.NewBatch(), kv.NewBatch()
	for _, b := range []*kv.Batch{first, second} {
		_, err := early.Fork(ctx, b, []object.ID{public})
		h.Must(err)
	}
	_, err := h.Keys.Apply(ctx, first)
	h.Must(err)
	if _, err := h.Keys.Apply(ctx, second); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("a second fork on the same manifest: %v", err)
	}
	if _, err := early.Fork(ctx, kv.NewBatch(), []object.ID{public}); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("a fork by an old view: %v", err)
	}
	h.Store.AwaitVisibility()
	h.Store.AwaitSettled()
	// Nothing was written to the source's new hot layer, so that the next fork freezes nothing.
	before := h.View()
	again := forkPool(h, public)
	again.Store.AwaitVisibility()
	if _, err := before.Fork(ctx, kv.NewBatch(), nil); err != nil {
		t.Errorf("a fork of a source that stood still: %v", err)
	}
	checkReadable(t, g, again, public)
	empty := forkPool(h)
	if has, err := empty.View().Has(ctx, public); err != nil || has {
		t.Errorf("an empty fork has %v, %v", has, err)
	}
	empty.Fsck()
}

// TestForksShareOpenFiles reads through several forks, each with a visibility set of its own. They
// use the files that the first one opened.
func TestForksShareOpenFiles(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	h.BuildFilters()
	var first int
	for i := range 5 {
		fork := forkPool(h, public)
		checkReadable(t, g, fork, public)
		n := fork.Store.Stats().OpenFileCount
		if i == 0 {
			first = n
		}
		if n != first || n == 0 {
			t.Errorf("%d open files after fork %d, %d after the first", n, i+1, first)
		}
	}
}

// Layers stay until the last pool that uses them is deleted.
func TestForkOutlivesItsSource(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	h := odbtest.NewPool(t, odb.Options{})
	fills["a segment and hot objects"](h, g)
	fork := forkPool(h, public)
	fork.Store.AwaitVisibility()
	dropPool(t, h)
	checkReadable(t, g, fork, public)
	fork.Fsck()
	last := forkPool(fork, public)
	last.Store.AwaitVisibility()
	dropPool(t, fork)
	checkReadable(t, g, last, public)
	last.Fsck()
	if _, err := last.View().Stat(t.Context(), secret); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("the secret: %v", err)
	}
}

func dropPool(t *testing.T, h *odbtest.Pool) {
	t.Helper()
	batch := kv.NewBatch()
	h.Store.DropPool(batch, h.ID)
	_, err := h.Keys.Apply(t.Context(), batch)
	h.Must(err)
	for range 2 {
		_, err = h.Store.Sweep(t.Context(), 0)
		h.Must(err)
	}
	if _, err := h.Store.View(t.Context(), h.ID); !errors.Is(err, odb.ErrNoPool) {
		t.Errorf("the pool is still there: %v", err)
	}
}
