package packgen_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// largeHistory returns a repository with a pack that is larger than all buffers on its way.
func largeHistory(tb testing.TB) *odbtest.Repository {
	tb.Helper()
	g := odbtest.NewRepository(tb)
	random := rand.New(rand.NewPCG(1, 7))
	var entries []object.TreeEntry
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		id, err := object.ParseID(g.Write("blob", odbtest.Noise(random, 400_000)))
		odbtest.Must(tb, err)
		entries = append(entries, odbtest.FileEntry(name, id))
	}
	tree := g.Write("tree", odbtest.TreeOf(entries...))
	root, err := object.ParseID(tree)
	odbtest.Must(tb, err)
	g.Git("update-ref", "refs/heads/main", g.Write("commit", odbtest.CommitOf(root, 1)))
	return g
}

func TestWriteToStops(t *testing.T) {
	t.Parallel()
	g := largeHistory(t)
	broken := errors.New("the client has gone")
	for name, size := range map[string]int{"at once": 0, "in the middle": 1_000_000, "at the trailer": 3_200_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := odbtest.Clone(t, g.Repository)
			plan, err := packgen.Plan(t.Context(), v, packgen.Request{Wants: g.Tips(), OFSDelta: true}, nil)
			odbtest.Must(t, err)
			defer plan.Close()
			n, err := plan.WriteTo(t.Context(), &packgen.FailingWriter{Left: size, Fail: func() error { return broken }}, nil)
			if !errors.Is(err, broken) {
				t.Errorf("a writer that fails after %d bytes: %d, %v", size, n, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			_, err = plan.WriteTo(ctx, &packgen.FailingWriter{Left: size, Fail: func() error { cancel(); return nil }}, nil)
			if size < 3_000_000 && !errors.Is(err, context.Canceled) {
				t.Errorf("a context that ends after %d bytes: %v", size, err)
			}
			if _, err = plan.WriteTo(t.Context(), io.Discard, nil); err != nil {
				t.Errorf("another time: %v", err)
			}
		})
	}
}

func TestPlanStops(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 51, CommitCount: 60})
	v := odbtest.Clone(t, g.Repository)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	commits := g.Commits()
	_, err := packgen.Plan(ctx, v, packgen.Request{Wants: commits[:1], Haves: commits[20:21]}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("plan with a context that has ended: %v", err)
	}
	for name, request := range map[string]packgen.Request{
		"want": {Wants: []object.ID{{1}}},
		"have": {Wants: commits[:1], Haves: []object.ID{{1}}},
	} {
		if _, err := packgen.Plan(t.Context(), v, request, nil); !errors.Is(err, odb.ErrNotFound) {
			t.Errorf("an unknown %s: %v", name, err)
		}
	}
}

func TestPlanProgress(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 52, CommitCount: 60})
	v := odbtest.Clone(t, g.Repository)
	heard := map[string]int64{}
	listen := func(phase string, done, total int64) {
		if done == total {
			heard[phase] = done
		}
	}
	commits := g.Commits()
	plan, err := packgen.Plan(t.Context(), v, packgen.Request{Wants: commits[:1], Haves: commits[30:31], Thin: true},
		listen)
	odbtest.Must(t, err)
	defer plan.Close()
	_, err = plan.WriteTo(t.Context(), io.Discard, listen)
	odbtest.Must(t, err)
	count := int64(plan.Count())
	if count == 0 || heard["Enumerating objects"] != count || heard["Writing objects"] != count {
		t.Errorf("a pack of %d objects told %v", count, heard)
	}
}

// TestPackOfLargeObjects sends an object that does not fit into memory: whole, since its delta base
// is not sent, and as it is stored.
func TestPackOfLargeObjects(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves 200 MiB a few times")
	}
	g := odbtest.NewRepository(t)
	g.Git("config", "core.compression", "0") // noise: git would try for seconds
	random := rand.New(rand.NewPCG(1, 8))
	newer := odbtest.Noise(random, segment.WholeMax+1<<20)
	older := append(bytes.Clone(newer), "shorter end"...) // git makes the smaller a delta of the larger
	var tips []object.ID
	for i, data := range [][]byte{newer, older} {
		blob, err := object.ParseID(g.Write("blob", data))
		odbtest.Must(t, err)
		tree, err := object.ParseID(g.Write("tree", odbtest.TreeOf(odbtest.FileEntry("file", blob))))
		odbtest.Must(t, err)
		tip, err := object.ParseID(g.Write("commit", odbtest.CommitOf(tree, i, tips...)))
		odbtest.Must(t, err)
		tips = append(tips, tip)
	}
	g.Git("update-ref", "refs/heads/main", tips[1].String())
	v := odbtest.Clone(t, g.Repository)
	for i, tip := range tips {
		request := packgen.Request{Wants: []object.ID{tip}, OFSDelta: true}
		if i == 1 {
			request.Shallow = tips[1:]
		}
		odbtest.CheckPack(t, g, v, request)
	}
}
