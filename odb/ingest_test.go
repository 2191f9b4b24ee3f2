package odb_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// ingestHost is a store in memory with one pool.
type ingestHost struct {
	tb    testing.TB
	fs    *vfs.MemFS
	keys  kv.Store
	files file.Store
	store *odb.Store
	pool  odb.PoolID
}

func newIngestHost(tb testing.TB, options odb.Options) *ingestHost {
	tb.Helper()
	h := &ingestHost{tb: tb, fs: vfs.NewMem()}
	h.open(h.fs, "", options)
	return h
}

// open opens the stores below dir of fs, and makes the pool.
func (h *ingestHost) open(fs vfs.FS, dir string, options odb.Options) {
	h.tb.Helper()
	ctx := h.tb.Context()
	keys, err := kv.OpenPebble(fs.PathJoin(dir, "keys"), kv.PebbleOptions{FS: fs})
	h.must(err)
	files, err := file.OpenDir(fs.PathJoin(dir, "files"), file.DirOptions{FS: fs, ServerID: "test"})
	h.must(err)
	h.keys, h.files = keys, files
	h.store, err = odb.Open(ctx, keys, files, options)
	h.must(err)
	batch := kv.NewBatch()
	h.pool = h.store.CreatePool(batch)
	_, err = keys.Apply(ctx, batch)
	h.must(err)
	h.tb.Cleanup(func() {
		ctx := context.Background() //nolint:usetesting // the test's own has ended
		if err := errors.Join(h.store.Close(ctx), files.Close(), keys.Close()); err != nil {
			h.tb.Errorf("close: %v", err)
		}
	})
}

func (h *ingestHost) must(err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatal(err)
	}
}

func (h *ingestHost) view() *odb.View {
	h.tb.Helper()
	v, err := h.store.View(h.tb.Context(), h.pool)
	h.must(err)
	h.tb.Cleanup(func() { h.must(v.Close()) })
	return v
}

// push ingests a pack and commits what it holds.
func (h *ingestHost) push(packed []byte, options odb.IngestOptions) (odb.IngestStats, error) {
	h.tb.Helper()
	ctx := h.tb.Context()
	v := h.view()
	in, err := v.Ingest(ctx, bytes.NewReader(packed), options)
	if err != nil {
		return odb.IngestStats{}, err
	}
	defer in.Close()
	q, stats, err := in.Resolve(ctx, nil)
	if err != nil {
		return stats, err
	}
	defer func() { h.must(q.Close()) }()
	batch := kv.NewBatch()
	h.must(q.Stage(ctx, batch))
	_, err = h.keys.Apply(ctx, batch)
	h.must(err)
	q.Settled(ctx)
	h.store.AwaitSettled()
	return stats, nil
}

// fsck checks the whole pool.
func (h *ingestHost) fsck() {
	h.tb.Helper()
	report, err := h.store.Fsck(h.tb.Context(), h.pool, odb.FsckOptions{})
	h.must(err)
	for _, problem := range report.Problems {
		h.tb.Errorf("fsck: %s", problem)
	}
}

// leftovers returns the names of the files that the store of files holds.
func (h *ingestHost) leftovers() []string {
	h.tb.Helper()
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := h.fs.List(dir)
		if err != nil {
			return
		}
		for _, name := range entries {
			path := h.fs.PathJoin(dir, name)
			if info, err := h.fs.Stat(path); err == nil && info.IsDir() {
				walk(path)
			} else if strings.Contains(name, ".segment") || strings.Contains(name, ".graph") || strings.Contains(path, "scratch") {
				names = append(names, name)
			}
		}
	}
	walk("files")
	return names
}

// testEntry is an entry of a pack that a test puts together. Fields of the header may lie.
type testEntry struct {
	kind pack.EntryKind
	data []byte    // of the object or of the delta
	base int       // of an ofs-delta: index of the entry
	id   object.ID // of the base of a ref-delta
	size int64     // stated, if not 0
}

func whole(t object.Type, data []byte) testEntry {
	return testEntry{kind: pack.EntryKind(t), data: data}
}

// deltaOf returns the delta that builds target from base.
func deltaOf(tb testing.TB, base, target []byte) []byte {
	tb.Helper()
	made, ok := delta.NewIndex(base).Create(nil, target, len(target)+64)
	if !ok {
		tb.Fatal("no delta")
	}
	return made
}

// encodePack returns a pack of entries.
func encodePack(entries ...testEntry) []byte {
	var offsets []int64
	packed := pack.Header{Version: 2, Count: uint32(len(entries))}.Append(nil)
	for _, e := range entries {
		offset := int64(len(packed))
		header := pack.EntryHeader{Kind: e.kind, Size: int64(len(e.data)), BaseID: e.id}
		if e.size != 0 {
			header.Size = e.size
		}
		if e.kind == pack.KindOFSDelta {
			header.BaseDistance = offset - offsets[e.base]
		}
		offsets = append(offsets, offset)
		packed = pack.Deflate(header.Append(packed), e.data, pack.LevelFast)
	}
	return sealPack(packed)
}

// sealPack appends the right trailer.
func sealPack(body []byte) []byte {
	sum := sha1.Sum(body) //nolint:gosec // as above
	return append(slices.Clone(body), sum[:]...)
}

func mustHash(tb testing.TB, t object.Type, data []byte) object.ID {
	tb.Helper()
	id, err := object.Hash(t, data)
	if err != nil {
		tb.Fatal(err)
	}
	return id
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
		if t.String() != typeName || int64(len(data)) != size || mustHash(tb, t, data) != id {
			tb.Fatalf("%s %s of %d bytes reads back as %s of %d", typeName, hex, size, t, len(data))
		}
		if info, err := v.Stat(ctx, id); err != nil || info.Type != t || info.Size != size {
			tb.Fatalf("stat %s: %+v, %v", hex, info, err)
		}
	}
}

// packAll returns a pack of everything that main and the tags reach.
func packAll(git *oracle.Repository, args ...string) []byte {
	return git.Input(nil, append([]string{"pack-objects", "--revs", "--all", "--stdout", "-q"}, args...)...)
}

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
		ingest  odb.IngestOptions
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
			ingest:  odb.IngestOptions{LinkCount: 100},
		},
		"little memory and ref-deltas": {
			options: odb.Options{IngestMemoryBytes: 16 << 10, Limits: odb.Limits{HotCount: 1}},
			ingest:  odb.IngestOptions{LinkCount: 100},
		},
		"scratch files": {
			pack:    []string{"--delta-base-offset"},
			options: odb.Options{IngestMemoryBytes: 64 << 10, Limits: odb.Limits{HotCount: 1}},
			ingest:  odb.IngestOptions{WholeBytes: 3000},
		},
	}
	for historyName, history := range histories {
		t.Run(historyName, func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(history)
			for name, setting := range settings {
				packed, count := packAll(git, setting.pack...), len(reachable(git))
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					h := newIngestHost(t, setting.options)
					stats, err := h.push(packed, setting.ingest)
					if err != nil {
						t.Fatal(err)
					}
					if stats.ObjectCount != count {
						t.Errorf("%d objects, want %d", stats.ObjectCount, count)
					}
					if stats.PackedBytes != int64(len(packed)) {
						t.Errorf("%d bytes, want %d", stats.PackedBytes, len(packed))
					}
					h.fsck()
					v := h.view()
					compare(t, v, git)
					compareGraph(t, v, git)
				})
			}
		})
	}
}

// compareGraph checks the graph rows of all commits against git, and their generations against each other.
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
		ingest  odb.IngestOptions
		bases   bool // are added to segments
	}{
		"hot":                     {},
		"hot, scratch files":      {ingest: odb.IngestOptions{WholeBytes: 1000}},
		"segments":                {options: segments, bases: true},
		"segments, scratch files": {options: segments, ingest: odb.IngestOptions{WholeBytes: 1000}, bases: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(oracle.History{Seed: 7, Commits: 120, Merges: true})
			commits := strings.Fields(git.Git("rev-list", "--reverse", "--topo-order", "refs/heads/main"))
			h := newIngestHost(t, test.options)
			previous, bases := "", 0
			for i := 9; i < len(commits); i += 10 {
				revisions := commits[i] + "\n"
				if previous != "" {
					revisions += "^" + previous + "\n"
				}
				thin := git.Input([]byte(revisions), "pack-objects", "--revs", "--thin", "--stdout", "-q", "--delta-base-offset")
				stats, err := h.push(thin, test.ingest)
				if err != nil {
					t.Fatalf("push up to commit %d: %v", i, err)
				}
				bases += stats.BaseCount
				previous = commits[i]
			}
			h.fsck()
			if (bases > 0) != test.bases {
				t.Errorf("%d bases were added to complete packs", bases)
			}
			git.Git("update-ref", "refs/heads/main", previous)
			git.Git("update-ref", "-d", "refs/heads/side")
			compare(t, h.view(), git)
		})
	}
}

// TestIngestChainOverPushes pushes versions of a file one by one, each as a delta against the one before: no chain may grow without end.
func TestIngestChainOverPushes(t *testing.T) {
	t.Parallel()
	h := newIngestHost(t, odb.Options{})
	content := oracleNoise(2000)
	if _, err := h.push(encodePack(whole(object.TypeBlob, content)), odb.IngestOptions{}); err != nil {
		t.Fatal(err)
	}
	const versions = 200
	for i := range versions {
		next := append(slices.Clone(content), byte(i))
		base := mustHash(t, object.TypeBlob, content)
		if _, err := h.push(encodePack(testEntry{kind: pack.KindRefDelta, id: base, data: deltaOf(t, content, next)}), odb.IngestOptions{}); err != nil {
			t.Fatal(err)
		}
		content = next
	}
	v := h.view()
	depth := 0
	for id := mustHash(t, object.TypeBlob, content); !id.IsZero(); depth++ {
		entry, err := v.Entry(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		id = entry.Base
	}
	if depth > 52 {
		t.Errorf("the newest version is %d deltas deep", depth-1)
	}
	h.fsck()
}

// TestIngestLongChains resolves chains as long as they may be, in memory that holds a few of their objects, from their far ends: every
// object has two children, so that it is needed again after all that is below it.
func TestIngestLongChains(t *testing.T) {
	t.Parallel()
	const length = 1500
	content := oracleNoise(3000)
	entries := []testEntry{whole(object.TypeBlob, content)}
	last := 0
	ids := []object.ID{mustHash(t, object.TypeBlob, content)}
	for i := range length {
		leaf, next := append(slices.Clone(content), 'l'), append(slices.Clone(content[1:]), byte(i), byte(i>>8))
		ids = append(ids, mustHash(t, object.TypeBlob, leaf), mustHash(t, object.TypeBlob, next))
		entries = append(entries,
			testEntry{kind: pack.KindOFSDelta, base: last, data: deltaOf(t, content, leaf)},
			testEntry{kind: pack.KindOFSDelta, base: last, data: deltaOf(t, content, next)})
		content, last = next, len(entries)-1
	}
	h := newIngestHost(t, odb.Options{IngestMemoryBytes: 40 << 10})
	if _, err := h.push(encodePack(entries...), odb.IngestOptions{}); err != nil {
		t.Fatal(err)
	}
	v := h.view()
	for _, id := range ids {
		if ok, err := v.Has(t.Context(), id); err != nil || !ok {
			t.Fatalf("%s: %v, %v", id, ok, err)
		}
	}
}

func TestIngestTakesTooLong(t *testing.T) {
	t.Parallel()
	blob := oracleNoise(1000)
	entries := []testEntry{whole(object.TypeBlob, blob)}
	for i := range 400 {
		entries = append(entries, testEntry{kind: pack.KindRefDelta, id: mustHash(t, object.TypeBlob, blob), data: deltaOf(t, blob, append(slices.Clone(blob), byte(i), byte(i>>8)))})
	}
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{InflateTime: 1}})
	_, err := h.push(encodePack(entries...), odb.IngestOptions{})
	var limit *pack.LimitError
	if !errors.As(err, &limit) || limit.Limit != "processing time in seconds" {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestIngestRepeatedObjects(t *testing.T) {
	t.Parallel()
	a, b := []byte("blob a, of some lines\nand more\n"), []byte("blob b, of some lines\nand more\n")
	aID, bID := mustHash(t, object.TypeBlob, a), mustHash(t, object.TypeBlob, b)
	tree := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: "a", ID: aID}, {Mode: object.ModeBlob, Name: "b", ID: bID}})
	aToB, bToA := deltaOf(t, a, b), deltaOf(t, b, a)
	tests := map[string]struct{ stored, pushed []testEntry }{
		"whole, twice": {
			pushed: []testEntry{whole(object.TypeBlob, a), whole(object.TypeTree, tree), whole(object.TypeBlob, a), whole(object.TypeBlob, b)},
		},
		"deltas of each other, and one whole behind them": {
			pushed: []testEntry{
				{kind: pack.KindRefDelta, id: bID, data: bToA},
				{kind: pack.KindRefDelta, id: aID, data: aToB},
				whole(object.TypeBlob, a), whole(object.TypeTree, tree),
			},
		},
		"chains that go round": {
			pushed: []testEntry{
				whole(object.TypeBlob, b),
				{kind: pack.KindOFSDelta, base: 0, data: bToA},
				{kind: pack.KindOFSDelta, base: 1, data: aToB},
				{kind: pack.KindOFSDelta, base: 2, data: bToA},
				whole(object.TypeTree, tree), whole(object.TypeBlob, a),
			},
		},
		"stored, and sent again the other way round": {
			stored: []testEntry{whole(object.TypeBlob, a), {kind: pack.KindOFSDelta, base: 0, data: aToB}},
			pushed: []testEntry{whole(object.TypeBlob, b), {kind: pack.KindOFSDelta, base: 0, data: bToA}, whole(object.TypeTree, tree)},
		},
		"deltas of each other, and one stored": {
			stored: []testEntry{whole(object.TypeBlob, a)},
			pushed: []testEntry{
				{kind: pack.KindRefDelta, id: bID, data: bToA}, {kind: pack.KindRefDelta, id: aID, data: aToB}, whole(object.TypeTree, tree),
			},
		},
	}
	for name, test := range tests {
		for tier, limits := range map[string]odb.Limits{"hot": {}, "segment": {HotValueBytes: 1}} {
			t.Run(name+", "+tier, func(t *testing.T) {
				t.Parallel()
				h := newIngestHost(t, odb.Options{Limits: limits})
				for _, entries := range [][]testEntry{test.stored, test.pushed, test.pushed} {
					packed := encodePack(entries...)
					if _, err := h.push(packed, odb.IngestOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				h.fsck()
				v := h.view()
				for _, want := range [][]byte{a, b, tree} {
					kind := object.TypeBlob
					if bytes.Equal(want, tree) {
						kind = object.TypeTree
					}
					gotKind, got, err := v.Read(t.Context(), mustHash(t, kind, want))
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
	h := newIngestHost(t, odb.Options{})
	packed := encodePack()
	stats, err := h.push(packed, odb.IngestOptions{})
	if err != nil || stats.ObjectCount != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestIngestEmptyTreeNeedsNotBeSent(t *testing.T) {
	t.Parallel()
	commit := fmt.Appendf(nil, "tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nempty\n", object.EmptyTreeID)
	packed := encodePack(whole(object.TypeCommit, commit))
	for name, options := range map[string]odb.Options{
		"hot":     {},
		"segment": {Limits: odb.Limits{HotValueBytes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newIngestHost(t, options)
			if _, err := h.push(packed, odb.IngestOptions{}); err != nil {
				t.Fatal(err)
			}
			kind, data, err := h.view().Read(t.Context(), object.EmptyTreeID)
			if err != nil || kind != object.TypeTree || len(data) != 0 {
				t.Errorf("the empty tree is %s %q, %v", kind, data, err)
			}
		})
	}
}

func TestIngestRefusals(t *testing.T) {
	t.Parallel()
	blob := []byte("blob\n")
	blobID := mustHash(t, object.TypeBlob, blob)
	missing := object.ID{1, 2, 3}
	treeOf := func(entries ...object.TreeEntry) []byte { return object.AppendTree(nil, entries) }
	commitOf := func(tree object.ID, parents ...object.ID) []byte {
		c := object.Commit{Tree: tree, Parents: parents, Message: "m\n"}
		c.Author = object.Signature{Name: "A", Email: "a@b", Seconds: 1, Zone: "+0000"}
		c.Committer = c.Author
		return c.Append(nil)
	}
	deltaTo := func(target string) []byte { return deltaOf(t, blob, []byte(target)) }
	pathOf := func(depth int, name string) []testEntry {
		entries := []testEntry{whole(object.TypeBlob, blob)}
		id, mode := blobID, object.ModeBlob
		for range depth {
			data := treeOf(object.TreeEntry{Mode: mode, Name: name, ID: id})
			entries = append(entries, whole(object.TypeTree, data))
			id, mode = mustHash(t, object.TypeTree, data), object.ModeTree
		}
		return entries
	}
	small := odb.Limits{ObjectBytes: 1000, PackBytes: 5000, PackCount: 60, InflatedBytes: 20_000, InflatedRatio: 2, DeltaDepth: 3, TreeDepth: 20}
	tests := map[string]struct {
		entries []testEntry
		raw     func(packed []byte) []byte
		limits  odb.Limits
		check   func(error) bool
	}{
		"missing blob": {
			entries: []testEntry{whole(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing}))},
			check: func(err error) bool {
				var e *odb.MissingError
				tree := treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "a", ID: missing})
				return errors.As(err, &e) && e.Object == missing && e.From == mustHash(t, object.TypeTree, tree)
			},
		},
		"tree is a blob": {
			entries: []testEntry{whole(object.TypeBlob, blob), whole(object.TypeCommit, commitOf(blobID))},
			check: func(err error) bool {
				var e *odb.WrongTypeError
				return errors.As(err, &e) && *e == odb.WrongTypeError{Object: blobID, Type: object.TypeBlob, Want: object.TypeTree}
			},
		},
		"bad tree": {
			entries: []testEntry{whole(object.TypeBlob, blob), whole(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "..", ID: blobID}))},
			check: func(err error) bool {
				var e *odb.BadObjectError
				var check *object.CheckError
				return errors.As(err, &e) && e.Type == object.TypeTree && errors.As(err, &check) && check.Name == "hasDotdot"
			},
		},
		"deltas that are their own bases": {
			entries: []testEntry{
				{kind: pack.KindRefDelta, id: missing, data: deltaTo("a")}, {kind: pack.KindRefDelta, id: missing, data: deltaTo("b")},
			},
			check: func(err error) bool {
				var e *odb.UnresolvedError
				return errors.As(err, &e) && e.Count == 2 && e.Base == missing
			},
		},
		"base that is no entry": {
			entries: []testEntry{whole(object.TypeBlob, blob), {kind: pack.KindOFSDelta, data: deltaTo("a")}},
			raw: func(packed []byte) []byte {
				body := slices.Clone(packed[:len(packed)-pack.TrailerSize])
				i := bytes.LastIndex(body, []byte{0x78, 0x01})
				body[i-1]--
				return sealPack(body)
			},
			check: odb.IsBadPack,
		},
		"delta for another base": {
			entries: []testEntry{whole(object.TypeBlob, []byte("shorter")), {kind: pack.KindOFSDelta, data: deltaTo("a")}},
			check: func(err error) bool {
				var e *odb.BadEntryError
				return errors.As(err, &e) && errors.Is(err, delta.ErrCorrupt)
			},
		},
		"bytes behind the pack": {
			entries: []testEntry{whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return append(packed, 0) },
			check:   odb.IsBadPack,
		},
		"cut off": {
			entries: []testEntry{whole(object.TypeBlob, blob)},
			raw:     func(packed []byte) []byte { return packed[:len(packed)-1] },
			check:   func(err error) bool { return odb.IsBadPack(err) && errors.Is(err, io.ErrUnexpectedEOF) },
		},
		"object too large": {
			entries: []testEntry{whole(object.TypeBlob, make([]byte, 1001))}, limits: small, check: limitOf("object size"),
		},
		"result too large": {
			entries: []testEntry{whole(object.TypeBlob, make([]byte, 100)), {
				kind: pack.KindOFSDelta, data: deltaOf(t, make([]byte, 100), bytes.Repeat(make([]byte, 100), 11)),
			}},
			limits: small, check: limitOf("object size"),
		},
		"pack too large": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, oracleNoise(900))}, 7), limits: small, check: limitOf("pack size"),
		},
		"too many objects": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, blob)}, 61), limits: small, check: limitOf("object count"),
		},
		"inflates too much": {
			entries: slices.Repeat([]testEntry{whole(object.TypeBlob, make([]byte, 900))}, 30), limits: small, check: limitOf("inflated size"),
		},
		"chain too long": {
			entries: []testEntry{
				whole(object.TypeBlob, blob),
				{kind: pack.KindOFSDelta, base: 0, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 1, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 2, data: deltaOf(t, blob, blob)},
				{kind: pack.KindOFSDelta, base: 3, data: deltaOf(t, blob, blob)},
			},
			limits: small, check: limitOf("delta depth"),
		},
		"trees too deep": {entries: pathOf(21, "d"), limits: small, check: limitOf("tree depth")},
		"path too long":  {entries: pathOf(18, strings.Repeat("n", 250)), check: limitOf("path length")},
		"name too long":  {entries: pathOf(1, strings.Repeat("n", 256)), check: func(err error) bool { return errors.Is(err, object.ErrNameTooLong) }},
		"bad .gitmodules": {
			entries: []testEntry{
				whole(object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = a\n")),
				whole(object.TypeTree, treeOf(object.TreeEntry{
					Mode: object.ModeBlob, Name: ".gitmodules", ID: mustHash(t, object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = a\n")),
				})),
			},
			check: odb.IsBadPack,
		},
	}
	for name, test := range tests {
		for tier, count := range map[string]int{"hot": 0, "segment": 1} {
			t.Run(name+", "+tier, func(t *testing.T) {
				t.Parallel()
				limits := test.limits
				if count == 1 {
					limits.HotValueBytes = 1
				}
				h := newIngestHost(t, odb.Options{Limits: limits})
				packed := encodePack(test.entries...)
				if test.raw != nil {
					packed = test.raw(packed)
				}
				_, err := h.push(packed, odb.IngestOptions{})
				if !test.check(err) {
					t.Errorf("unexpected error: %v", err)
				}
				if left := h.leftovers(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		}
	}
}

func limitOf(limit string) func(error) bool {
	return func(err error) bool {
		var e *pack.LimitError
		return errors.As(err, &e) && e.Limit == limit && e.Value > e.Max && !odb.IsBadPack(err)
	}
}

// oracleNoise returns bytes that do not compress.
func oracleNoise(size int) []byte {
	noise := make([]byte, 0, size+20)
	for i := uint32(0); len(noise) < size; i++ {
		sum := sha1.Sum(binary.BigEndian.AppendUint32(nil, i)) //nolint:gosec // any spread will do
		noise = append(noise, sum[:]...)
	}
	return noise[:size]
}

// brokenReader fails behind some bytes.
type brokenReader struct {
	io.Reader
	err error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func TestIngestReadErrorLeavesNothing(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 5, Commits: 50})
	packed := packAll(git)
	gone := errors.New("the client is gone")
	for _, size := range []int{0, 5, 12, 500, len(packed) / 2, len(packed) - 1} {
		h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
		_, err := h.view().Ingest(t.Context(), &brokenReader{Reader: bytes.NewReader(packed[:size]), err: gone}, odb.IngestOptions{})
		if !errors.Is(err, gone) || odb.IsBadPack(err) {
			t.Errorf("cut at %d: %v", size, err)
		}
		if left := h.leftovers(); len(left) > 0 {
			t.Errorf("cut at %d: left behind %q", size, left)
		}
	}
}

func TestIngestCancelled(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 6, Commits: 50})
	packed := packAll(git)
	why := errors.New("enough")
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := h.view().Ingest(ctx, bytes.NewReader(packed), odb.IngestOptions{}); !errors.Is(err, why) {
		t.Errorf("ingest: %v", err)
	}
	in, err := h.view().Ingest(t.Context(), bytes.NewReader(packed), odb.IngestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Resolve(ctx, nil); !errors.Is(err, why) {
		t.Errorf("resolve: %v", err)
	}
	if _, _, err := in.Resolve(t.Context(), nil); !errors.Is(err, odb.ErrClosed) {
		t.Errorf("resolve again: %v", err)
	}
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestIngestShallowUpdate(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 8, Commits: 3})
	tip := git.Git("rev-parse", "main")
	tree := git.Input([]byte(git.Git("rev-parse", "main^{tree}")+"\n"), "rev-list", "--objects", "--no-object-names", "--stdin")
	packed := git.Input([]byte(tip+"\n"+string(tree)), "pack-objects", "--stdout", "-q")
	id, err := object.ParseID(tip)
	if err != nil {
		t.Fatal(err)
	}
	h := newIngestHost(t, odb.Options{})
	_, err = h.push(packed, odb.IngestOptions{Shallow: []object.ID{id}})
	var missing *odb.MissingError
	if !errors.As(err, &missing) || missing.From != id || !missing.Shallow || !odb.IsMissing(err) {
		t.Errorf("shallow push: %v", err)
	}
}

func TestIngestProgress(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 9, Commits: 40})
	packed := packAll(git)
	h := newIngestHost(t, odb.Options{})
	heard := map[string][2]int64{}
	hear := func(phase string, done, total int64) { heard[phase] = [2]int64{done, total} }
	in, err := h.view().Ingest(t.Context(), bytes.NewReader(packed), odb.IngestOptions{Progress: hear})
	if err != nil {
		t.Fatal(err)
	}
	q, stats, err := in.Resolve(t.Context(), hear)
	if err != nil {
		t.Fatal(err)
	}
	h.must(q.Close())
	count := int64(stats.ObjectCount)
	if got := heard["Receiving objects"]; got != [2]int64{count, count} {
		t.Errorf("received %d", got)
	}
	if got, deltas := heard["Resolving deltas"], int64(stats.DeltaCount); got != [2]int64{deltas, deltas} || deltas == 0 {
		t.Errorf("resolved %d of %d", got, deltas)
	}
}
