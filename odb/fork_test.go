package odb_test

import (
	"bytes"
	"context"
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

// forkOf forks the pool of h, and returns a host of the fork over the same stores.
func (h *ingestHost) forkOf(tips ...object.ID) *ingestHost {
	h.tb.Helper()
	ctx := h.tb.Context()
	v, err := h.store.View(ctx, h.pool)
	h.must(err)
	defer func() { h.must(v.Close()) }()
	batch := kv.NewBatch()
	fork, err := v.Fork(ctx, batch, tips)
	h.must(err)
	defer func() { h.must(fork.Close()) }()
	_, err = h.keys.Apply(ctx, batch)
	h.must(err)
	fork.Settled(ctx)
	other := *h
	other.pool = fork.Pool()
	return &other
}

// forkOf forks the world's pool, and leaves its visibility set uncomputed.
func (w *world) forkOf(tips ...object.ID) odb.PoolID {
	w.Helper()
	var fork *odb.Fork
	w.retry(func() *kv.Batch {
		for {
			if fork != nil {
				w.must(fork.Close())
				fork = nil
			}
			b, v := kv.NewBatch(), w.view()
			next, err := v.Fork(w.Context(), b, tips)
			w.must(v.Close())
			if errors.Is(err, kv.ErrConflict) {
				continue
			}
			w.must(err)
			fork = next
			return b
		}
	})
	fork.Settled(w.Context())
	w.must(fork.Close())
	return fork.Pool()
}

// twoLines returns a repository with a branch main and a branch secret that share some history, and
// annotated tags on both.
func twoLines(tb testing.TB) (g *repository, public, secret object.ID) {
	tb.Helper()
	g = newRepository(tb)
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
	return g, g.tips("refs/tags/shown")[0], g.tips("refs/tags/hidden")[0]
}

// fills are the ways in which a pool comes to hold a repository.
var fills = map[string]func(h *ingestHost, g *repository){
	"one segment": func(h *ingestHost, g *repository) { h.pushSegment(packAll(g.Repository)) },
	"hot objects": func(h *ingestHost, g *repository) { h.write(g, g.all()) },
	"a segment and hot objects": func(h *ingestHost, g *repository) {
		h.pushSegment(g.Input([]byte("refs/heads/main~12"), "pack-objects", "--revs", "--stdout", "-q"))
		h.write(g, g.all())
	},
	"one segment with bitmaps": func(h *ingestHost, g *repository) {
		h.pushSegment(packAll(g.Repository))
		h.useBitmaps(g, "all")
	},
	"two segments with twins": func(h *ingestHost, g *repository) {
		for _, tip := range []string{"refs/heads/main", "refs/heads/secret"} {
			h.pushSegment(g.Input([]byte(tip), "pack-objects", "--revs", "--stdout", "-q"))
		}
		h.write(g, g.all())
	},
}

// pushSegment is push for packs that are small but shall be segments.
func (h *ingestHost) pushSegment(packed []byte) {
	h.tb.Helper()
	bulk := *h
	var err error
	bulk.store, err = odbtest.OpenOn(h.tb.Context(), h.keys, h.files, odb.Options{Limits: odb.Limits{HotCount: 1}})
	h.must(err)
	_, err = bulk.push(packed, ingest.Options{})
	h.must(err)
	bulk.store.AwaitLoans()
	h.tb.Cleanup(func() { h.must(bulk.store.Close(context.Background())) }) //nolint:usetesting // the test's own has ended
}

func TestForkReadsWhatItsTipsReach(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newIngestHost(t, odb.Options{})
			fill(h, g)
			h.fsck()
			fork := h.forkOf(public)
			checkReadable(t, g, fork, public)
			fork.store.AwaitLoans()
			checkReadable(t, g, fork, public) // now as it was written down
			fork.fsck()

			again := fork.forkOf(public)
			again.store.AwaitLoans()
			checkReadable(t, g, again, public)
			whole := h.forkOf(public, secret)
			checkReadable(t, g, whole, public, secret)
			whole.store.AwaitLoans()
			if count, err := whole.store.BorrowedLayerCount(t.Context(), whole.pool); err != nil || count != 0 {
				t.Errorf("%d layers of a fork that may read everything are not its own, %v", count, err)
			}
			checkReadable(t, g, whole, public, secret)
			whole.fsck()
		})
	}
}

// checkReadable asks for every object of g by every way that an ID can be asked for.
func checkReadable(t *testing.T, g *repository, h *ingestHost, tips ...object.ID) {
	t.Helper()
	ctx := t.Context()
	reached := make(map[object.ID]bool)
	for _, id := range g.ids(lines("", tips), "rev-list", "--objects", "--stdin", "--no-object-names") {
		reached[id] = true
	}
	v := h.view()
	for i, id := range append(g.all(), object.ID{1, 2, 3}) {
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
			must(t, opened.Close())
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
		checkPack(t, g, v, request)
	}
}

// A fork writes the same number of keys whatever the source holds, one more for each layer of it.
func TestForkCost(t *testing.T) {
	t.Parallel()
	costs := make(map[int]string)
	for _, commits := range []int{2, 200} {
		h := newIngestHost(t, odb.Options{})
		g := newRepository(t)
		g.Seed(oracle.History{Seed: 3, Commits: commits})
		fills["one segment"](h, g)
		last := g.tips("refs/heads/main")[0]
		hot := newRepository(t)
		blob := hot.Write("blob", []byte("hot"))
		h.write(hot, []object.ID{parseID(t, blob)})
		v := h.view()
		batch := kv.NewBatch()
		fork, err := v.Fork(t.Context(), batch, []object.ID{last})
		h.must(err)
		info, err := h.files.Open(t.Context(), forkFile(t, h))
		h.must(err)
		costs[commits] = fmt.Sprintf("%d operations of %d bytes, file of %d bytes", batch.Count(), batch.Size(), info.Size())
		h.must(info.Close())
		h.must(fork.Close())
	}
	if costs[2] != costs[200] {
		t.Errorf("a small repository costs %s, a larger one %s", costs[2], costs[200])
	}
}

// forkFile returns the name of the one file with the visibility set of a fork.
func forkFile(t *testing.T, h *ingestHost) string {
	t.Helper()
	for info, err := range h.files.Leftovers(t.Context()) {
		must(t, err)
		return info.Name
	}
	t.Fatal("the fork left no file")
	return ""
}

func parseID(t *testing.T, text string) object.ID {
	t.Helper()
	id, err := object.ParseID(text)
	must(t, err)
	return id
}

// What is not readable is taken again when it is pushed, and cannot be built upon before.
func TestForkTakesUnreadableObjectsAgain(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		for size, count := range map[string]int{"as hot objects": 0, "as a segment": 1} {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: count}})
				fill(h, g)
				fork := h.forkOf(public)
				since := func(revisions string, args ...string) []byte {
					return g.Input([]byte(revisions), append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...)
				}
				_, err := fork.push(since("refs/heads/secret\n^refs/heads/secret~2\n", "--thin"), ingest.Options{})
				if _, missing := errors.AsType[*ingest.MissingError](err); !missing && !ingest.IsBadPack(err) {
					t.Errorf("a pack on top of what may not be read is taken: %v", err)
				}
				if has, err := fork.view().Has(t.Context(), secret); err != nil || has {
					t.Errorf("Has = %v, %v after a refused pack", has, err)
				}
				_, err = fork.push(since("refs/tags/hidden\n^refs/heads/main\n", "--thin"), ingest.Options{})
				h.must(err)
				checkReadable(t, g, fork, public, secret)
				fork.fsck()
				fork.write(g, g.all())
				_, err = repack.Compact(t.Context(), fork.store, fork.pool, repack.CompactOptions{All: true})
				h.must(err)
				fork.dropTo(public, secret)
				checkReadable(t, g, fork, public, secret)
				fork.fsck()
			})
		}
	}
}

// dropTo removes what tips do not reach.
func (h *ingestHost) dropTo(tips ...object.ID) {
	h.tb.Helper()
	ctx := h.tb.Context()
	drop, err := repack.PlanPrune(ctx, h.store, h.pool, dropOptions(0, tips...))
	h.must(err)
	if drop == nil {
		return
	}
	batch := kv.NewBatch()
	h.must(drop.Stage(ctx, batch, nil))
	_, err = h.keys.Apply(ctx, batch)
	h.must(err)
	drop.Settled(ctx)
	h.must(drop.Close())
	_, err = h.store.Sweep(ctx, 0)
	h.must(err)
}

// Deltas that two pools make of each other's objects do not build on themselves.
func TestForkDeltasOfTwins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	long := bytes.Repeat([]byte("a line of text that repeats\n"), 100)
	version := func(n int) []byte { return append(fmt.Appendf(nil, "version %d\n", n), long...) }
	d := w.draft()
	hidden := d.write(object.TypeBlob, version(1), object.ZeroID)
	shown := d.write(object.TypeBlob, version(2), hidden)
	d.commit()
	w.pool, w.objects = w.forkOf(shown), map[object.ID]content{shown: {object.TypeBlob, version(2)}}
	w.checkAll()
	d = w.draft()
	d.write(object.TypeBlob, version(3), shown)
	third := d.write(object.TypeBlob, version(4), shown)
	d.commit()
	d = w.draft()
	d.write(object.TypeBlob, version(1), third)
	d.write(object.TypeBlob, version(1), shown)
	d.commit()
	w.checkAll()
	w.reopen()
	w.checkAll()
}

// A fork stands or falls with its batch, which needs the source as it was.
func TestForkConflicts(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := newIngestHost(t, odb.Options{})
	fills["hot objects"](h, g)
	ctx := t.Context()
	early := h.view()
	first, second := kv.NewBatch(), kv.NewBatch()
	one, err := early.Fork(ctx, first, []object.ID{public})
	h.must(err)
	two, err := early.Fork(ctx, second, []object.ID{public})
	h.must(err)
	_, err = h.keys.Apply(ctx, first)
	h.must(err)
	one.Settled(ctx)
	if _, err := h.keys.Apply(ctx, second); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("a second fork on the same manifest: %v", err)
	}
	h.must(two.Close())
	if _, err := early.Fork(ctx, kv.NewBatch(), []object.ID{public}); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("a fork by an old view: %v", err)
	}
	h.store.AwaitLoans()
	h.store.AwaitSettled()
	// Nothing was written to the source's new hot layer, so that the next fork freezes nothing.
	before := h.view()
	again := h.forkOf(public)
	again.store.AwaitLoans()
	if _, err := before.Fork(ctx, kv.NewBatch(), nil); err != nil {
		t.Errorf("a fork of a source that stood still: %v", err)
	}
	checkReadable(t, g, again, public)
	empty := h.forkOf()
	if has, err := empty.view().Has(ctx, public); err != nil || has {
		t.Errorf("an empty fork has %v, %v", has, err)
	}
	empty.fsck()
}

// Layers stay until their last user has gone.
func TestForkOutlivesItsSource(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	h := newIngestHost(t, odb.Options{})
	fills["a segment and hot objects"](h, g)
	fork := h.forkOf(public)
	fork.store.AwaitLoans()
	dropPool(t, h)
	checkReadable(t, g, fork, public)
	fork.fsck()
	last := fork.forkOf(public)
	last.store.AwaitLoans()
	dropPool(t, fork)
	checkReadable(t, g, last, public)
	last.fsck()
	if _, err := last.view().Stat(t.Context(), secret); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("the secret: %v", err)
	}
}

func dropPool(t *testing.T, h *ingestHost) {
	t.Helper()
	batch := kv.NewBatch()
	h.store.DropPool(batch, h.pool)
	_, err := h.keys.Apply(t.Context(), batch)
	h.must(err)
	for range 2 {
		_, err = h.store.Sweep(t.Context(), 0)
		h.must(err)
	}
	if _, err := h.store.View(t.Context(), h.pool); !errors.Is(err, odb.ErrNoPool) {
		t.Errorf("the pool is still there: %v", err)
	}
}
