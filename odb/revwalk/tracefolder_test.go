package revwalk_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/odb/bloom"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// mistaken returns names of files in a folder that filters of other files there often seem to have.
func mistaken(r *rand.Rand, folder string, count int) []string {
	var filters []bloom.Filter
	for range 50 {
		paths := map[string]struct{}{folder: {}}
		for range 4 {
			paths[fmt.Sprintf("%s/other%d", folder, r.Uint32())] = struct{}{}
		}
		filters = append(filters, bloom.New(paths))
	}
	wrong := make(map[string]int)
	for n := range 3000 {
		name := fmt.Sprintf("still%d", n)
		for _, f := range filters {
			if f.HasAll(bloom.Keys(folder + "/" + name)) {
				wrong[name]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(wrong), func(a, b string) int {
		return cmp.Or(cmp.Compare(wrong[b], wrong[a]), cmp.Compare(a, b))
	})
	return names[:count]
}

// wideHistory returns a repository whose commits change a few files of the folder "a" again and
// again, and seldom one of those about which filters are often wrong. Contents come back, and
// merges take files from either parent or change them.
func wideHistory(t *testing.T, seed uint64, commits int) *odbtest.Repository {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	still := mistaken(r, "a", 30)
	var out bytes.Buffer
	states := make([]map[string]int, commits)
	for n := range commits {
		fmt.Fprintf(&out, "commit refs/heads/main\nmark :%d\ncommitter T <t@example.com> %d +0000\ndata 0\n\n",
			n+1, 1_500_000_000+n)
		files := map[string]int{}
		if n == 0 {
			for _, name := range still {
				files[name] = 0
			}
		} else {
			first := max(0, n-1-r.IntN(3)*r.IntN(5))
			fmt.Fprintf(&out, "from :%d\n", first+1)
			files = maps.Clone(states[first])
			if second := max(0, n-1-r.IntN(10)); r.IntN(4) == 0 && second != first {
				fmt.Fprintf(&out, "merge :%d\n", second+1)
				for _, name := range slices.Sorted(maps.Keys(states[second])) {
					if r.IntN(2) == 0 {
						files[name] = states[second][name]
					}
				}
			}
		}
		for range r.IntN(5) {
			files[fmt.Sprintf("often%d", r.IntN(6))] = r.IntN(3)
		}
		switch name := still[r.IntN(len(still))]; r.IntN(8) {
		case 0:
			files[name] = r.IntN(3)
		case 1:
			delete(files, name)
		}
		states[n] = files
		out.WriteString("deleteall\n")
		for name, content := range files {
			fmt.Fprintf(&out, "M 100644 inline a/%s\ndata 1\n%d\n", name, content)
		}
	}
	g := odbtest.NewRepository(t)
	g.Input(out.Bytes(), "fast-import", "--quiet", "--force")
	return g
}

// TestTraceOfFolderAgainstGit traces a folder at every commit: with filters that are often wrong
// the result is that without filters, and for some commits that of git.
func TestTraceOfFolderAgainstGit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			g := wideHistory(t, seed, 150)
			plain := odbtest.Clone(t, g.Repository)
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
			h.PushGit(g, odbtest.Lines("", g.Tips()))
			h.BuildFilters()
			filtered := h.View()
			r := rand.New(rand.NewPCG(seed, 2))
			known := map[traceOfFolder]*revwalk.TracedFolder{}
			for n, commit := range g.Commits() {
				want := traceFolder(t, plain, commit, nil)
				earlier := known
				if r.IntN(2) == 0 {
					earlier = nil
				}
				if got := traceFolder(t, filtered, commit, earlier); !maps.Equal(got, want) {
					t.Errorf("commit %s: entries changed last by %v, without filters %v", commit, got, want)
				}
				if n%40 == 0 {
					compareFlat(t, g, filtered, commit, "a/any", known)
				}
			}
		})
	}
}

// traceFolder returns the last commits of the entries of the folder "a".
func traceFolder(
	t *testing.T, v *odb.View, commit object.ID, known map[traceOfFolder]*revwalk.TracedFolder,
) map[string]object.ID {
	t.Helper()
	root, err := revwalk.Trace(t.Context(), v, commit, revwalk.TraceOptions{
		Path: "a", Flat: true,
		Known: func(id object.ID) *revwalk.TracedFolder { return known[traceOfFolder{id, "a"}] },
	})
	odbtest.Must(t, err)
	return traced(root, "", map[string]object.ID{})
}

// TestTraceOfFolderSavesReads traces a folder of which every commit replaces some files and leaves
// many as they are. The filters seem to have some of these, too, and the trace does not look each
// time.
func TestTraceOfFolderSavesReads(t *testing.T) {
	t.Parallel()
	const (
		commits = 300
		still   = 40
		fresh   = 5
	)
	w := odbtest.NewWorld(t, odb.Options{})
	var ids []object.ID
	for n := range commits {
		d := w.Draft()
		file := func(name string, content int) object.TreeEntry {
			return odbtest.FileEntry(name, d.Write(object.TypeBlob, fmt.Append(nil, content), object.ZeroID))
		}
		var files []object.TreeEntry
		for i := range fresh {
			files = append(files, file(fmt.Sprintf("new%d.%d", n, i), n))
		}
		for i := range still {
			files = append(files, file(fmt.Sprintf("still%02d", i), i))
		}
		inner := d.Write(object.TypeTree, odbtest.TreeOf(files...), object.ZeroID)
		tree := d.Write(object.TypeTree, odbtest.TreeOf(object.TreeEntry{Mode: object.ModeTree, Name: "a", ID: inner}),
			object.ZeroID)
		ids = append(ids, d.Write(object.TypeCommit, odbtest.CommitOf(tree, n, ids[max(n-1, 0):n]...), object.ZeroID))
		d.Commit()
	}
	w.Options.CacheBytes = 1 // every read is a miss
	w.Reopen()
	w.With(func(v *odb.View) {
		before := w.Store.Stats().CacheMisses
		last := traceFolder(t, v, ids[commits-1], nil)
		misses := w.Store.Stats().CacheMisses - before
		if misses > commits {
			t.Errorf("%d reads for a folder whose other files %d commits left alone", misses, commits)
		}
		for path, commit := range last {
			if want := ids[0]; strings.HasPrefix(path, "a/still") && commit != want {
				t.Errorf("%s: changed last by %s, want %s", path, commit, want)
			}
		}
		if len(last) != fresh+still {
			t.Errorf("%d entries", len(last))
		}
	})
}
