package odb_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// gitTrace is what git says about one commit: the commits that changed its files last, by path.
type gitTrace struct {
	commit object.ID
	last   map[string]object.ID
}

// traceOf asks git about up to max files of a commit, one by one.
func (g *repository) traceOf(r *rand.Rand, commit object.ID, most int) gitTrace {
	g.tb.Helper()
	files := strings.FieldsFunc(string(g.Input(nil, "ls-tree", "-r", "-z", "--name-only", commit.String())),
		func(r rune) bool { return r == 0 })
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	want := gitTrace{commit, map[string]object.ID{}}
	for _, file := range files {
		want.last[file] = object.ZeroID
		if most--; most >= 0 {
			want.last[file] = g.ids("", "--literal-pathspecs", "log", "-1", "--format=%H", commit.String(), "--", file)[0]
		}
	}
	return want
}

// traced returns what a trace knows of the files in a folder and below: commits by path.
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

// compareTrace holds a trace against what git says.
func compareTrace(t *testing.T, v *odb.View, want gitTrace, options revwalk.TraceOptions) *revwalk.TracedFolder {
	t.Helper()
	root, err := revwalk.Trace(t.Context(), v, want.commit, options)
	must(t, err)
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
	for _, options := range []historyOptions{
		{seed: 71, commitCount: 80},
		{seed: 72, commitCount: 120, skew: 3000},
		{seed: 73, commitCount: 120, skew: 100_000},
	} {
		t.Run(fmt.Sprintf("seed %d skew %d", options.seed, options.skew), func(t *testing.T) {
			t.Parallel()
			g := newHistory(t, options)
			plain := viewOf(t, g)
			h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
			h.pushPack(g, lines("", g.tips()))
			must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
			filtered := h.view()
			r := rand.New(rand.NewPCG(options.seed, 3))
			known := map[object.ID]*revwalk.TracedFolder{} // grows, so that traces end at what earlier ones found
			for _, commit := range pick(r, g.commits(), 8) {
				want := g.traceOf(r, commit, 1000)
				compareTrace(t, plain, want, revwalk.TraceOptions{})
				compareTrace(t, filtered, want, revwalk.TraceOptions{})
				remembered := revwalk.TraceOptions{Known: func(id object.ID) *revwalk.TracedFolder { return known[id] }}
				if files := slices.Sorted(maps.Keys(want.last)); len(files) > 0 {
					file := files[r.IntN(len(files))]
					remembered.Path = file
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
	g := newHistory(t, historyOptions{seed: 74, commitCount: 10})
	v := viewOf(t, g)
	for _, missing := range []string{"not there", "not there/at all"} {
		if _, err := revwalk.Trace(t.Context(), v, g.commits()[0], revwalk.TraceOptions{Path: missing}); !errors.Is(err,
			odb.ErrNotFound) {
			t.Errorf("a trace of %q: %v", missing, err)
		}
	}
	if _, err := revwalk.Trace(t.Context(), v, object.ID{1}, revwalk.TraceOptions{}); !errors.Is(err, odb.ErrNotFound) {
		t.Errorf("a trace of a commit that is not there: %v", err)
	}
}

// TestTraceOfRealRepository is TestTraceAgainstGit on the tip of the repository that
// PACKHORSE_REAL_REPO names, with filters if PACKHORSE_FILTERS is set.
func TestTraceOfRealRepository(t *testing.T) {
	g, h := realWithFilters(t)
	r := rand.New(rand.NewPCG(2, 6))
	compareTrace(t, h.view(), g.traceOf(r, g.ids("", "rev-parse", "HEAD")[0], 40), revwalk.TraceOptions{})
}
