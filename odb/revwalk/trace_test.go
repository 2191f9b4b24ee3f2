package revwalk_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// gitTrace is the answer of git for one commit: the commits that changed its files last, by path.
type gitTrace struct {
	commit object.ID
	last   map[string]object.ID
}

// traceOf asks git about at most most files of a commit, one by one.
func traceOf(t *testing.T, g *odbtest.Repository, r *rand.Rand, commit object.ID, most int) gitTrace {
	t.Helper()
	files := strings.FieldsFunc(string(g.Input(nil, "ls-tree", "-r", "-z", "--name-only", commit.String())),
		func(r rune) bool { return r == 0 })
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	want := gitTrace{commit, map[string]object.ID{}}
	for _, file := range files {
		want.last[file] = object.ZeroID
		if most--; most >= 0 {
			want.last[file] = g.IDs("", "--literal-pathspecs", "log", "-1", "--format=%H", commit.String(), "--", file)[0]
		}
	}
	return want
}

// compareFlat compares flat traces of a commit, of its root and of a folder that has one of the
// files, with what git says about their entries, and keeps them by folder.
func compareFlat(
	t *testing.T, g *odbtest.Repository, v *odb.View, commit object.ID, file string,
	known map[traceOfFolder]*revwalk.TracedFolder,
) {
	t.Helper()
	for _, folder := range slices.Compact([]string{"", strings.TrimPrefix(path.Dir(file), ".")}) {
		root, err := revwalk.Trace(t.Context(), v, commit, revwalk.TraceOptions{
			Path: folder, Flat: true,
			Known: func(id object.ID) *revwalk.TracedFolder { return known[traceOfFolder{id, folder}] },
		})
		odbtest.Must(t, err)
		known[traceOfFolder{commit, folder}] = root
		if !root.Knows(folder) {
			t.Errorf("commit %s: a flat trace of %q does not know it", commit, folder)
		}
		want := make(map[string]object.ID)
		tree := commit.String() + ":" + folder
		for name := range strings.SplitSeq(string(g.Input(nil, "ls-tree", "-z", "--name-only", tree)), "\x00") {
			if name == "" {
				continue
			}
			if folder != "" {
				name = folder + "/" + name
			}
			if last := g.IDs("", "--literal-pathspecs", "log", "-1", "--format=%H", commit.String(), "--", name); len(last) > 0 {
				want[name] = last[0]
			}
		}
		if got := traced(root, "", map[string]object.ID{}); !maps.Equal(got, want) {
			t.Errorf("commit %s, folder %q: entries changed last by %v, want %v", commit, folder, got, want)
		}
	}
}

type traceOfFolder struct {
	commit object.ID
	folder string
}

// traced adds the commits that changed the files in a folder and below last, by path.
func traced(f *revwalk.TracedFolder, prefix string, into map[string]object.ID) map[string]object.ID {
	for _, e := range f.Entries {
		if e.Folder != nil {
			traced(e.Folder, prefix+e.Name+"/", into)
		}
		if !e.Last.IsZero() {
			into[prefix+e.Name] = e.Last
		}
	}
	return into
}

// compareTrace compares a trace with that of git.
func compareTrace(t *testing.T, v *odb.View, want gitTrace, options revwalk.TraceOptions) *revwalk.TracedFolder {
	t.Helper()
	root, err := revwalk.Trace(t.Context(), v, want.commit, options)
	odbtest.Must(t, err)
	got := traced(root, "", map[string]object.ID{})
	for file, last := range want.last {
		if options.Path != "" && file != options.Path && !strings.HasPrefix(file, options.Path+"/") {
			continue
		}
		if id := got[file]; id.IsZero() || !last.IsZero() && id != last {
			t.Errorf("commit %s, %s: changed last by %s, want %s", want.commit, file, got[file], last)
		}
	}
	if options.Path == "" && (len(got) != len(want.last) || !root.Complete) {
		t.Errorf("commit %s: %d files of %d, complete %v", want.commit, len(got), len(want.last), root.Complete)
	}
	return root
}

func TestTraceAgainstGit(t *testing.T) {
	t.Parallel()
	for _, options := range []odbtest.HistoryOptions{
		{Seed: 71, CommitCount: 80},
		{Seed: 72, CommitCount: 120, Skew: 3000},
		{Seed: 73, CommitCount: 120, Skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.Seed, options.Skew), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, options)
			plain := odbtest.Clone(t, g.Repository)
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
			h.PushGit(g, odbtest.Lines("", g.Tips()))
			h.BuildFilters()
			filtered := h.View()
			r := rand.New(rand.NewPCG(options.Seed, 3))
			known := map[object.ID]*revwalk.TracedFolder{} // grows, so that traces end at what earlier ones found
			flat, filteredFlat := map[traceOfFolder]*revwalk.TracedFolder{}, map[traceOfFolder]*revwalk.TracedFolder{}
			for _, commit := range odbtest.Pick(r, g.Commits(), 8) {
				want := traceOf(t, g, r, commit, 1000)
				compareTrace(t, plain, want, revwalk.TraceOptions{})
				compareTrace(t, filtered, want, revwalk.TraceOptions{})
				remembered := revwalk.TraceOptions{Known: func(id object.ID) *revwalk.TracedFolder { return known[id] }}
				if files := slices.Sorted(maps.Keys(want.last)); len(files) > 0 {
					file := files[r.IntN(len(files))]
					remembered.Path = file
					compareFlat(t, g, plain, commit, file, flat)
					compareFlat(t, g, filtered, commit, file, filteredFlat)
					if folder := path.Dir(file); folder != "." && r.IntN(2) == 0 {
						remembered.Path = folder
					}
					known[commit] = compareTrace(t, plain, want, remembered)
				}
				if r.IntN(2) == 0 {
					remembered.Path = ""
					known[commit] = compareTrace(t, filtered, want, remembered)
				}
			}
		})
	}
}

func TestTraceOfNothing(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 74, CommitCount: 10})
	v := odbtest.Clone(t, g.Repository)
	for _, missing := range []string{"not there", "not there/at all"} {
		if _, err := revwalk.Trace(t.Context(), v, g.Commits()[0], revwalk.TraceOptions{Path: missing}); !errors.Is(err,
			odb.ErrNotFound) {
			t.Errorf("a trace of %q: %v", missing, err)
		}
	}
	if _, err := revwalk.Trace(t.Context(), v, object.ID{1}, revwalk.TraceOptions{}); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("a trace of a commit that is not there: %v", err)
	}
}

// TestTraceMemory traces folders of folders, and a wide folder whose subfolders it does not open,
// until much memory is admitted, and holds that against the heap, so it runs alone.
func TestTraceMemory(t *testing.T) {
	git := oracle.New(t)
	entry := fmt.Sprintf("100644 blob %s", git.Write("blob", []byte("content")))
	for range 7 {
		var tree strings.Builder
		for i := range 10 {
			fmt.Fprintf(&tree, "%s\tf%d\n", entry, i)
		}
		entry = "040000 tree " + strings.TrimSpace(string(git.Input([]byte(tree.String()), "mktree")))
	}
	var wide strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&wide, "%s\tfolder%06d\n", entry, i)
	}
	const most = 20 << 20
	for name, tree := range map[string]string{
		"folders of folders": entry + "\tf\n",
		"a wide folder":      wide.String(),
	} {
		t.Run(name, func(t *testing.T) {
			root := strings.TrimSpace(string(git.Input([]byte(tree), "mktree")))
			commit := strings.TrimSpace(git.Git("commit-tree", "-m", "m", root))
			git.Git("update-ref", "refs/heads/main", commit)
			v := odbtest.Clone(t, git)
			id, err := object.ParseID(commit)
			odbtest.Must(t, err)
			errEnough := errors.New("enough")
			before, admitted, kept := liveHeap(), int64(0), int64(0)
			_, err = revwalk.Trace(t.Context(), v, id, revwalk.TraceOptions{Admit: func(sizeBytes int64) error {
				if admitted >= most {
					kept = liveHeap() - before
					return errEnough
				}
				admitted += sizeBytes
				return nil
			}})
			if !errors.Is(err, errEnough) {
				t.Errorf("%d bytes were admitted: %v", admitted, err)
			}
			if kept > admitted*5/4 || kept < admitted/2 {
				t.Errorf("%d bytes were admitted, and %d kept", admitted, kept)
			}
		})
	}
}

// liveHeap returns the bytes of what is reachable.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTraceOfRealRepository is TestTraceAgainstGit on the tip of the repository that
// PACKHORSE_REAL_REPO names, with filters if PACKHORSE_FILTERS is set.
func TestTraceOfRealRepository(t *testing.T) {
	g, h := realWithFilters(t)
	r := rand.New(rand.NewPCG(2, 6))
	tip := g.IDs("", "rev-parse", "HEAD")[0]
	want := traceOf(t, g, r, tip, 40)
	compareTrace(t, h.View(), want, revwalk.TraceOptions{})
	files := slices.Sorted(maps.Keys(want.last))
	compareFlat(t, g, h.View(), tip, files[r.IntN(len(files))], map[traceOfFolder]*revwalk.TracedFolder{})
}
