package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

func TestIngestReadsBackWhatGitHas(t *testing.T) {
	t.Parallel()
	histories := map[string]oracle.History{
		"small, hot":         {Seed: 1, Commits: 12},
		"large, a segment":   {Seed: 2, Commits: 400, Merges: true, Tags: true, Binary: true},
		"binary, a segment":  {Seed: 3, Commits: 150, Binary: true},
		"merges, hot or not": {Seed: 4, Commits: 60, Merges: true, Tags: true},
	}
	settings := map[string]struct {
		pack    []string
		options odb.Options
		ingest  ingest.Options
	}{
		"ofs-deltas":  {pack: []string{"--delta-base-offset"}},
		"ref-deltas":  {},
		"long chains": {pack: []string{"--delta-base-offset", "--depth=500", "--window=50"}},
		"no deltas":   {pack: []string{"--depth=0"}},
		"always a segment": {
			pack: []string{"--delta-base-offset"}, options: odb.Options{Limits: odb.Limits{HotCount: 1}},
		},
		"little memory": {
			pack:    []string{"--delta-base-offset"},
			options: odb.Options{IngestMemoryBytes: 16 << 10, Limits: odb.Limits{HotCount: 1}},
			ingest:  ingest.Options{LinkCount: 100},
		},
		"little memory and ref-deltas": {
			options: odb.Options{IngestMemoryBytes: 16 << 10, Limits: odb.Limits{HotCount: 1}},
			ingest:  ingest.Options{LinkCount: 100},
		},
		"scratch files": {
			pack:    []string{"--delta-base-offset"},
			options: odb.Options{IngestMemoryBytes: 64 << 10, Limits: odb.Limits{HotCount: 1}},
			ingest:  ingest.Options{WholeBytes: 3000},
		},
	}
	for historyName, history := range histories {
		t.Run(historyName, func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(history)
			for name, setting := range settings {
				packed, count := odbtest.PackAll(git, setting.pack...), len(reachable(git))
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					h := odbtest.NewPool(t, setting.options)
					stats, err := h.Push(packed, setting.ingest)
					if err != nil {
						t.Fatal(err)
					}
					if stats.ObjectCount != count {
						t.Errorf("%d objects, want %d", stats.ObjectCount, count)
					}
					if stats.PackedBytes != int64(len(packed)) {
						t.Errorf("%d bytes, want %d", stats.PackedBytes, len(packed))
					}
					h.Fsck()
					v := h.View()
					compare(t, v, git)
					compareGraph(t, v, git)
				})
			}
		})
	}
}

// reachable returns the objects that the refs of a repository reach, each as "<id> <type> <size>".
func reachable(git *oracle.Repository) []string {
	ids := git.Input(nil, "rev-list", "--all", "--objects", "--no-object-names")
	return strings.Split(strings.TrimSpace(string(git.Input(ids, "cat-file", "--batch-check"))), "\n")
}

// compare checks that everything that git's refs reach reads back from v as git has it.
func compare(tb testing.TB, v *odb.View, git *oracle.Repository) {
	tb.Helper()
	ctx := tb.Context()
	for _, line := range reachable(git) {
		var hex, typeName string
		var size int64
		if _, err := fmt.Sscanf(line, "%s %s %d", &hex, &typeName, &size); err != nil {
			tb.Fatal(err)
		}
		id, err := object.ParseID(hex)
		if err != nil {
			tb.Fatal(err)
		}
		t, data, err := v.Read(ctx, id)
		if err != nil {
			tb.Fatalf("read %s %s: %v", typeName, hex, err)
		}
		if t.String() != typeName || int64(len(data)) != size || packtest.Hash(tb, t, data) != id {
			tb.Fatalf("%s %s of %d bytes reads back as %s of %d", typeName, hex, size, t, len(data))
		}
		if info, err := v.Stat(ctx, id); err != nil || info.Type != t || info.Size != size {
			tb.Fatalf("stat %s: %+v, %v", hex, info, err)
		}
	}
}

// compareGraph checks the graph rows of all commits against git, and their generations against each
// other.
func compareGraph(tb testing.TB, v *odb.View, git *oracle.Repository) {
	tb.Helper()
	ctx := tb.Context()
	generations := map[object.ID]uint32{}
	for line := range strings.Lines(git.Git("log", "--all", "--topo-order", "--reverse", "--format=%H %T %ct %P")) {
		fields := strings.Fields(line)
		ids := make([]object.ID, 0, len(fields))
		for i, field := range fields {
			if i == 2 {
				continue
			}
			id, err := object.ParseID(field)
			if err != nil {
				tb.Fatal(err)
			}
			ids = append(ids, id)
		}
		row, err := v.Graph(ctx, ids[0])
		if err != nil {
			tb.Fatal(err)
		}
		if row.Tree != ids[1] || fmt.Sprint(row.Seconds) != fields[2] || !slices.Equal(row.Parents, ids[2:]) {
			tb.Fatalf("graph row of %s is %+v", ids[0], row)
		}
		want := uint32(1)
		for _, parent := range row.Parents {
			want = max(want, generations[parent]+1)
		}
		if row.Generation != want {
			tb.Fatalf("commit %s has generation %d, want %d", ids[0], row.Generation, want)
		}
		generations[ids[0]] = row.Generation
	}
}

func TestIngestPushAfterPush(t *testing.T) {
	t.Parallel()
	segments := odb.Options{Limits: odb.Limits{HotCount: 1}}
	tests := map[string]struct {
		options odb.Options
		ingest  ingest.Options
		bases   bool // are added to segments
	}{
		"hot":                {},
		"hot, little memory": {options: odb.Options{IngestMemoryBytes: 30_000}},
		"hot, scratch files": {ingest: ingest.Options{WholeBytes: 1000}},
		"segments":           {options: segments, bases: true},
		"segments, little memory": {
			options: odb.Options{IngestMemoryBytes: 30_000, Limits: odb.Limits{HotCount: 1}}, bases: true,
		},
		"segments, scratch files": {options: segments, ingest: ingest.Options{WholeBytes: 1000}, bases: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(oracle.History{Seed: 7, Commits: 120, Merges: true})
			commits := strings.Fields(git.Git("rev-list", "--reverse", "--topo-order", "refs/heads/main"))
			h := odbtest.NewPool(t, test.options)
			previous, bases := "", 0
			for i := 9; i < len(commits); i += 10 {
				revisions := commits[i] + "\n"
				if previous != "" {
					revisions += "^" + previous + "\n"
				}
				thin := git.Input([]byte(revisions), "pack-objects", "--revs", "--thin", "--stdout", "-q", "--delta-base-offset")
				stats, err := h.Push(thin, test.ingest)
				if err != nil {
					t.Fatalf("push up to commit %d: %v", i, err)
				}
				bases += stats.BaseCount
				previous = commits[i]
			}
			h.Fsck()
			if (bases > 0) != test.bases {
				t.Errorf("%d bases were added to complete packs", bases)
			}
			git.Git("update-ref", "refs/heads/main", previous)
			git.Git("update-ref", "-d", "refs/heads/side")
			compare(t, h.View(), git)
		})
	}
}

// TestIngestChainOverPushes pushes versions of a file one by one, each as a delta against the one
// before: no chain may grow without end.
func TestIngestChainOverPushes(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	content := odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 2000)
	if _, err := h.Push(packtest.Encode(packtest.Whole(object.TypeBlob, content)), ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	const versions = 200
	for i := range versions {
		next := append(slices.Clone(content), byte(i))
		base := packtest.Hash(t, object.TypeBlob, content)
		change := packtest.Entry{Kind: pack.KindRefDelta, BaseID: base, Data: packtest.DeltaOf(t, content, next)}
		if _, err := h.Push(packtest.Encode(change), ingest.Options{}); err != nil {
			t.Fatal(err)
		}
		content = next
	}
	v := h.View()
	depth := 0
	for id := packtest.Hash(t, object.TypeBlob, content); !id.IsZero(); depth++ {
		entry, err := v.Entry(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		id = entry.Base
	}
	if depth > 52 {
		t.Errorf("the newest version is %d deltas deep", depth-1)
	}
	h.Fsck()
}

// TestIngestLongChains resolves chains as long as they may be, in memory that holds a few of their
// objects, from their far ends: every object has two children, so that it is needed again after all
// that is below it.
func TestIngestLongChains(t *testing.T) {
	t.Parallel()
	const length = 1500
	content := odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 3000)
	entries := []packtest.Entry{packtest.Whole(object.TypeBlob, content)}
	last := 0
	ids := []object.ID{packtest.Hash(t, object.TypeBlob, content)}
	for i := range length {
		leaf, next := append(slices.Clone(content), 'l'), append(slices.Clone(content[1:]), byte(i), byte(i>>8))
		ids = append(ids, packtest.Hash(t, object.TypeBlob, leaf), packtest.Hash(t, object.TypeBlob, next))
		entries = append(entries,
			packtest.Entry{Kind: pack.KindOFSDelta, Base: last, Data: packtest.DeltaOf(t, content, leaf)},
			packtest.Entry{Kind: pack.KindOFSDelta, Base: last, Data: packtest.DeltaOf(t, content, next)})
		content, last = next, len(entries)-1
	}
	h := odbtest.NewPool(t, odb.Options{IngestMemoryBytes: 40 << 10})
	if _, err := h.Push(packtest.Encode(entries...), ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	v := h.View()
	for _, id := range ids {
		if ok, err := v.Has(t.Context(), id); err != nil || !ok {
			t.Fatalf("%s: %v, %v", id, ok, err)
		}
	}
}

func TestIngestTakesTooLong(t *testing.T) {
	t.Parallel()
	blob := odbtest.Noise(rand.New(rand.NewPCG(1, 2)), 1000)
	blobID := packtest.Hash(t, object.TypeBlob, blob)
	entries := []packtest.Entry{packtest.Whole(object.TypeBlob, blob)}
	for i := range 400 {
		changed := append(slices.Clone(blob), byte(i), byte(i>>8))
		entries = append(entries,
			packtest.Entry{Kind: pack.KindRefDelta, BaseID: blobID, Data: packtest.DeltaOf(t, blob, changed)})
	}
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{InflateTime: 1}})
	_, err := h.Push(packtest.Encode(entries...), ingest.Options{})
	var limit *pack.LimitError
	if !errors.As(err, &limit) || limit.Limit != "processing time in seconds" {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestIngestRepeatedObjects(t *testing.T) {
	t.Parallel()
	a, b := []byte("blob a, of some lines\nand more\n"), []byte("blob b, of some lines\nand more\n")
	aID, bID := packtest.Hash(t, object.TypeBlob, a), packtest.Hash(t, object.TypeBlob, b)
	tree := object.AppendTree(nil,
		[]object.TreeEntry{{Mode: object.ModeBlob, Name: "a", ID: aID}, {Mode: object.ModeBlob, Name: "b", ID: bID}})
	aToB, bToA := packtest.DeltaOf(t, a, b), packtest.DeltaOf(t, b, a)
	tests := map[string]struct{ stored, pushed []packtest.Entry }{
		"whole, twice": {
			pushed: []packtest.Entry{
				packtest.Whole(object.TypeBlob, a), packtest.Whole(object.TypeTree, tree),
				packtest.Whole(object.TypeBlob, a), packtest.Whole(object.TypeBlob, b),
			},
		},
		"deltas of each other, and one whole behind them": {
			pushed: []packtest.Entry{
				{Kind: pack.KindRefDelta, BaseID: bID, Data: bToA},
				{Kind: pack.KindRefDelta, BaseID: aID, Data: aToB},
				packtest.Whole(object.TypeBlob, a), packtest.Whole(object.TypeTree, tree),
			},
		},
		"chains that go round": {
			pushed: []packtest.Entry{
				packtest.Whole(object.TypeBlob, b),
				{Kind: pack.KindOFSDelta, Base: 0, Data: bToA},
				{Kind: pack.KindOFSDelta, Base: 1, Data: aToB},
				{Kind: pack.KindOFSDelta, Base: 2, Data: bToA},
				packtest.Whole(object.TypeTree, tree), packtest.Whole(object.TypeBlob, a),
			},
		},
		"stored, and sent again the other way round": {
			stored: []packtest.Entry{packtest.Whole(object.TypeBlob, a), {Kind: pack.KindOFSDelta, Base: 0, Data: aToB}},
			pushed: []packtest.Entry{
				packtest.Whole(object.TypeBlob, b),
				{Kind: pack.KindOFSDelta, Base: 0, Data: bToA},
				packtest.Whole(object.TypeTree, tree),
			},
		},
		"deltas of each other, and one stored": {
			stored: []packtest.Entry{packtest.Whole(object.TypeBlob, a)},
			pushed: []packtest.Entry{
				{Kind: pack.KindRefDelta, BaseID: bID, Data: bToA},
				{Kind: pack.KindRefDelta, BaseID: aID, Data: aToB},
				packtest.Whole(object.TypeTree, tree),
			},
		},
	}
	for name, test := range tests {
		for tier, limits := range map[string]odb.Limits{"hot": {}, "segment": {HotValueBytes: 1}} {
			t.Run(name+", "+tier, func(t *testing.T) {
				t.Parallel()
				h := odbtest.NewPool(t, odb.Options{Limits: limits})
				for _, entries := range [][]packtest.Entry{test.stored, test.pushed, test.pushed} {
					packed := packtest.Encode(entries...)
					if _, err := h.Push(packed, ingest.Options{}); err != nil {
						t.Fatal(err)
					}
				}
				h.Fsck()
				v := h.View()
				for _, want := range [][]byte{a, b, tree} {
					kind := object.TypeBlob
					if bytes.Equal(want, tree) {
						kind = object.TypeTree
					}
					gotKind, got, err := v.Read(t.Context(), packtest.Hash(t, kind, want))
					if err != nil || gotKind != kind || !bytes.Equal(got, want) {
						t.Errorf("read back %s %q, %v", gotKind, got, err)
					}
				}
			})
		}
	}
}

func TestIngestEmptyPack(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	packed := packtest.Encode()
	stats, err := h.Push(packed, ingest.Options{})
	if err != nil || stats.ObjectCount != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestIngestEmptyTreeNeedsNotBeSent(t *testing.T) {
	t.Parallel()
	commit := fmt.Appendf(nil, "tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nempty\n", object.EmptyTreeID)
	packed := packtest.Encode(packtest.Whole(object.TypeCommit, commit))
	for name, options := range map[string]odb.Options{
		"hot":     {},
		"segment": {Limits: odb.Limits{HotValueBytes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, options)
			if _, err := h.Push(packed, ingest.Options{}); err != nil {
				t.Fatal(err)
			}
			kind, data, err := h.View().Read(t.Context(), object.EmptyTreeID)
			if err != nil || kind != object.TypeTree || len(data) != 0 {
				t.Errorf("the empty tree is %s %q, %v", kind, data, err)
			}
		})
	}
}

func TestIngestShallowUpdate(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 8, Commits: 3})
	tip := git.Git("rev-parse", "main")
	tree := git.Input([]byte(git.Git("rev-parse", "main^{tree}")+"\n"), "rev-list", "--objects", "--no-object-names",
		"--stdin")
	packed := git.Input([]byte(tip+"\n"+string(tree)), "pack-objects", "--stdout", "-q")
	id, err := object.ParseID(tip)
	if err != nil {
		t.Fatal(err)
	}
	h := odbtest.NewPool(t, odb.Options{})
	_, err = h.Push(packed, ingest.Options{Shallow: []object.ID{id}})
	var missing *ingest.MissingError
	if !errors.As(err, &missing) || missing.From != id || !missing.Shallow || !ingest.IsMissing(err) {
		t.Errorf("shallow push: %v", err)
	}
}

func TestIngestProgress(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 9, Commits: 40})
	packed := odbtest.PackAll(git)
	h := odbtest.NewPool(t, odb.Options{})
	heard := map[string][2]int64{}
	hear := func(phase string, done, total int64) { heard[phase] = [2]int64{done, total} }
	in, err := ingest.Read(t.Context(), h.View(), bytes.NewReader(packed), ingest.Options{Progress: hear})
	if err != nil {
		t.Fatal(err)
	}
	q, stats, err := in.Resolve(t.Context(), hear)
	if err != nil {
		t.Fatal(err)
	}
	h.Must(q.Close())
	count := int64(stats.ObjectCount)
	if got := heard["Receiving objects"]; got != [2]int64{count, count} {
		t.Errorf("received %d", got)
	}
	if got, deltas := heard["Resolving deltas"], int64(stats.DeltaCount); got != [2]int64{deltas, deltas} || deltas == 0 {
		t.Errorf("resolved %d of %d", got, deltas)
	}
}
