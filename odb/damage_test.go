package odb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// damagedWorld returns a world with objects in every form: hot, deltas of a pack, a block stream,
// and graph rows of both kinds. Tests damage it.
func damagedWorld(t *testing.T) *world {
	t.Helper()
	r := oracle.New(t)
	r.Seed(oracle.History{Seed: 3, Commits: 8, Tags: true})
	w := newWorld(t, odb.Options{
		OpenFileCountMax: 4, HistoryCommits: 2, Lines: sizesAsLines, TrigramBytes: 1, Trigrams: firstBytes,
	})
	w.addRepository(r, "--delta-base-offset")
	random := rand.New(rand.NewPCG(1, 2))
	d := w.Draft()
	large := odbtest.FileEntry("a", d.WriteFrom(odbtest.Text(random, 1<<20+5000)))
	tree := d.Write(object.TypeTree, odbtest.TreeOf(large), object.ZeroID)
	first := d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1), object.ZeroID)
	d.Commit()
	d = w.Draft()
	blob := d.Write(object.TypeBlob, odbtest.Text(random, 3000), object.ZeroID)
	blob = d.Write(object.TypeBlob, odbtest.Edited(random, d.Objects[blob].Data), blob)
	tree = d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("a", blob)), tree)
	d.Write(object.TypeCommit, odbtest.CommitOf(tree, 2, first), object.ZeroID)
	d.Commit()
	var err error
	w.With(func(v *odb.View) {
		w.planned, err = w.planCount(v)
		w.Must(err)
	})
	w.Must(packgen.BuildBitmaps(t.Context(), w.Store, w.Pool, w.commits(), nil))
	w.Must(repack.BuildFilters(t.Context(), w.Store, w.Pool))
	w.Must(repack.BuildTrigrams(t.Context(), w.Store, w.Pool, 0))
	w.Must(repack.BuildHistories(t.Context(), w.Store, w.Pool, 0))
	for path := range strings.Lines(r.Git("log", "--all", "--format=", "--name-only")) {
		w.paths = append(w.paths, strings.TrimSuffix(path, "\n"))
	}
	w.With(func(v *odb.View) {
		var known int
		w.changes, known, err = w.pathChanges(v)
		w.Must(err)
		if known == 0 {
			t.Fatal("there are no path histories")
		}
		if w.checkTrigrams(v) == 0 {
			t.Fatal("there are no trigrams")
		}
	})
	return w
}

// sizesAsLines is an [odb.LineDiff] that tells the sizes.
func sizesAsLines() odb.LineDiff {
	return func(_ context.Context, before, after []byte) ([]byte, error) {
		return fmt.Appendf(nil, "%d to %d", len(before), len(after)), nil
	}
}

// firstBytes are the trigrams that are stored.
func firstBytes(text []byte) []byte { return text[:min(len(text), 100)] }

// planCount returns how many objects the commits reach.
func (w *world) planCount(v *odb.View) (int, error) {
	plan, err := packgen.Plan(w.Context(), v, packgen.Request{Wants: w.commits()}, nil)
	if err != nil {
		return 0, err
	}
	return plan.Count(), plan.Close()
}

// pathChanges returns what path histories say of each path and commit, "unknown" where they know
// nothing, and how often they do.
func (w *world) pathChanges(v *odb.View) (all map[string]string, known int, err error) {
	all = make(map[string]string)
	for _, path := range w.paths {
		histories, err := v.OpenHistories(w.Context(), segment.PathID(path))
		if err != nil {
			return nil, 0, err
		}
		for _, commit := range w.commits() {
			key := commit.String() + path
			change, ok, err := histories.Find(w.Context(), commit, 0)
			var lines []byte
			if err == nil {
				lines, err = histories.Lines(w.Context(), commit, 0)
			}
			switch {
			case err != nil:
				return nil, 0, err
			case !ok:
				all[key] = "unknown"
			case change == nil:
				all[key] = "same"
				known++
			default:
				all[key] = fmt.Sprintf("%+v to %+v", change.Old, change.New)
				if len(lines) > 0 {
					all[key+" lines"] = string(lines)
				}
				known++
			}
		}
		histories.Close()
	}
	return all, known, nil
}

// checkPathChanges holds what path histories say against what they said before the damage.
func (w *world) checkPathChanges(v *odb.View) {
	w.Helper()
	now, _, err := w.pathChanges(v)
	w.Must(err)
	for key, said := range now {
		if said != "unknown" && said != w.changes[key] {
			w.Fatalf("path history of %s: %s, was %s", key, said, w.changes[key])
		}
	}
}

// checkTrigrams holds stored trigrams, as far as they are known, against what they were made of. It
// returns how many are.
func (w *world) checkTrigrams(v *odb.View) (known int) {
	w.Helper()
	trigrams, err := v.OpenTrigrams(w.Context())
	w.Must(err)
	defer trigrams.Close()
	for id, want := range w.Objects {
		got, err := trigrams.Find(w.Context(), id)
		w.Must(err)
		if len(got) == 0 {
			continue
		}
		if known++; want.Type != object.TypeBlob || !bytes.Equal(got, firstBytes(want.Data)) {
			w.Fatalf("trigrams of %s %s: %q", want.Type, id, got)
		}
	}
	return known
}

// commits returns the IDs of the committed commits, in no order.
func (w *world) commits() []object.ID {
	var commits []object.ID
	for id, o := range w.Objects {
		if o.Type == object.TypeCommit {
			commits = append(commits, id)
		}
	}
	return commits
}

// checkDamaged reads everything: each answer is right or [odb.ErrCorrupt]. It returns whether any
// was wrong.
func (w *world) checkDamaged() (noticed bool) {
	w.Helper()
	ctx := w.Context()
	v, err := w.Store.View(ctx, w.Pool)
	if errors.Is(err, odb.ErrCorrupt) {
		return true
	}
	w.Must(err)
	defer v.Close()
	right := func(what string, err error, same bool) {
		switch {
		case errors.Is(err, odb.ErrCorrupt):
			noticed = true
		case err != nil:
			w.Fatalf("%s: %v, want what was stored or ErrCorrupt", what, err)
		case !same:
			w.Fatalf("%s: wrong bytes", what)
		}
	}
	w.checkPathChanges(v)
	w.checkTrigrams(v)
	count, err := w.planCount(v)
	right("Plan", err, count == w.planned)
	for id, want := range w.Objects {
		kind, data, err := v.Read(ctx, id)
		right("Read", err, kind == want.Type && bytes.Equal(data, want.Data))
		info, err := v.Stat(ctx, id)
		right("Stat", err, info.Type == want.Type && info.Size == int64(len(want.Data)))
		e, err := v.Entry(ctx, id)
		right("Entry", err, e.ID == id)
		if err == nil {
			_, err = payload(ctx, v, &e)
			right("Payload", err, true)
		}
		o, err := v.Open(ctx, id)
		right("Open", err, true)
		if err != nil {
			continue
		}
		var all bytes.Buffer
		_, err = o.WriteTo(&all)
		right("WriteTo", err, bytes.Equal(all.Bytes(), want.Data))
		middle := int64(len(want.Data) / 2)
		section, err := o.Section(middle, 10)
		if err == nil {
			var part []byte
			part, err = io.ReadAll(section)
			right("Section", err, bytes.HasPrefix(want.Data[middle:], part))
		} else {
			right("Section", err, false)
		}
		w.Must(o.Close())
		if want.Type == object.TypeCommit {
			row, err := v.Graph(ctx, id)
			commit, _ := object.ParseCommit(want.Data)
			right("Graph", err, row.Tree == commit.Tree && row.Seconds == commit.Committer.Seconds)
		}
	}
	return noticed
}

// TestBitFlipsInFiles flips bits anywhere in the files of segments and auxiliary files: reads
// notice it or are right all the same, and fsck notices it.
func TestBitFlipsInFiles(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	w.Reopen()
	random := rand.New(rand.NewPCG(11, 12))
	names := listFiles(t, w)
	if len(names) != 11 { // two segments with rows, filters, trigrams and histories each, and bitmaps
		t.Fatalf("files: %v", names)
	}
	for round := range rounds(100) {
		name := names[round%len(names)]
		restore := flip(t, w, name, random)
		w.Options.CacheBytes = 1
		if round%3 == 0 {
			w.Options.CacheBytes = 0
		}
		w.Reopen()
		if path.Ext(name) == ".segment" {
			w.checkDamaged()
		} else if w.checkDamaged() { // without auxiliary files answers take longer
			t.Fatalf("with a damaged %s something cannot be read", name)
		}
		report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
		if err != nil || report.ProblemCount == 0 {
			t.Fatalf("fsck of damaged %s: %+v, %v", name, report, err)
		}
		restore()
	}
	w.Reopen()
	w.CheckAll()
}

// TestDamagedEntriesAreNeverWhole flips bits in the entries of blobs that are inflated as they are
// read. No way of reading such a blob returns all of its bytes unless they are right.
func TestDamagedEntriesAreNeverWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	blobs := [][]byte{odbtest.Text(random, 1<<20+70000), odbtest.Noise(random, 1<<20+1)}
	var packed bytes.Buffer
	out := packtest.NewWriter(&packed, uint32(len(blobs)), pack.LevelFast)
	ids := make([]object.ID, len(blobs))
	w := newWorld(t, odb.Options{})
	for i, data := range blobs {
		_, err := out.WriteWhole(object.TypeBlob, data)
		w.Must(err)
		ids[i], err = object.Hash(object.TypeBlob, data)
		w.Must(err)
	}
	_, err := out.Close()
	w.Must(err)
	d := w.Draft()
	d.AddPack(packed.Bytes())
	d.Commit()
	w.Reopen() // the file is in its place then
	w.With(func(v *odb.View) {
		for _, id := range ids { // from here on the index is cached
			_, err := v.Stat(t.Context(), id)
			w.Must(err)
		}
	})
	name := listFiles(t, w)[0]
	noticed := 0
	for range rounds(60) {
		at, mask := random.Int64N(int64(packed.Len())), byte(1)<<random.IntN(8)
		if random.IntN(4) == 0 { // the headers of the first entry
			at = 12 + random.Int64N(8)
		}
		flipAt(t, w, name, at, mask)
		for i, id := range ids {
			if w.readWhole(id, blobs[i]) != nil {
				noticed++
			}
		}
		flipAt(t, w, name, at, mask)
	}
	if noticed == 0 {
		t.Error("no read met a damaged byte")
	}
	for i, id := range ids {
		w.Must(w.readWhole(id, blobs[i]))
	}
}

// readWhole reads an object in every way in which all of its bytes come, and returns why one of
// them ended early.
func (w *world) readWhole(id object.ID, want []byte) error {
	w.Helper()
	v := w.View()
	defer v.Close()
	o, err := v.Open(w.Context(), id)
	if err != nil {
		return err
	}
	defer o.Close()
	var all bytes.Buffer
	_, err = o.WriteTo(&all)
	failed := err
	if all.Len() >= len(want) && !bytes.Equal(all.Bytes(), want) {
		w.Fatalf("WriteTo wrote all of %s, wrong, and %v", id, err)
	}
	for _, size := range []int64{o.Size, o.Size + 1} {
		section, err := o.Section(0, size)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		data := make([]byte, o.Size)
		_, err = io.ReadFull(section, data) // without reading the end of the stream
		if err == nil && !bytes.Equal(data, want) {
			w.Fatalf("all of %s can be read by Section, wrong", id)
		}
		failed = errors.Join(failed, err, section.Close())
	}
	if failed != nil && !errors.Is(failed, odb.ErrCorrupt) {
		w.Fatalf("read %s: %v", id, failed)
	}
	return failed
}

// flipAt changes bits of a byte of a file.
func flipAt(t *testing.T, w *world, name string, offset int64, mask byte) {
	t.Helper()
	f, err := w.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	w.Must(err)
	var b [1]byte
	_, err = f.ReadAt(b[:], offset)
	w.Must(err)
	b[0] ^= mask
	_, err = f.WriteAt(b[:], offset)
	w.Must(err)
	w.Must(f.Close())
}

// listFiles returns the paths of the files of segments and auxiliary files.
func listFiles(t *testing.T, w *world) []string {
	t.Helper()
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := w.FS.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			path := w.FS.PathJoin(dir, entry)
			if info, err := w.FS.Stat(path); err == nil && info.IsDir() {
				walk(path)
			} else if !strings.HasSuffix(path, "LOCK") {
				names = append(names, path)
			}
		}
	}
	walk("files")
	return names
}

// flip changes a bit of a file and returns how to change it back.
func flip(t *testing.T, w *world, name string, random *rand.Rand) (restore func()) {
	t.Helper()
	f, err := w.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	offset := random.Int64N(info.Size())
	if random.IntN(2) == 0 { // indexes and footers are small
		offset = info.Size() - 1 - random.Int64N(min(info.Size(), 20<<10))
	}
	write := func(mask byte) {
		var b [1]byte
		if _, err := f.ReadAt(b[:], offset); err != nil {
			t.Fatal(err)
		}
		b[0] ^= mask
		if _, err := f.WriteAt(b[:], offset); err != nil {
			t.Fatal(err)
		}
	}
	mask := byte(1) << random.IntN(8)
	write(mask)
	return func() {
		write(mask)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBitFlipsInKeys flips bits in the values of the tables m, o, g and f, as a store might that
// does not guard its values.
func TestBitFlipsInKeys(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	w.Options.CacheBytes = 1
	w.Reopen()
	random := rand.New(rand.NewPCG(11, 12))
	for _, table := range []byte{'m', 'o', 'g', 'f'} {
		var pairs []kv.Pair
		for pair, err := range w.Keys.Scan(t.Context(), kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
			w.Must(err)
			pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
		}
		if len(pairs) == 0 {
			t.Fatalf("table %c is empty", table)
		}
		for range rounds(25) {
			pair := pairs[random.IntN(len(pairs))]
			damaged := bytes.Clone(pair.Value)
			if random.IntN(5) == 0 {
				damaged = damaged[:random.IntN(len(damaged))]
			} else {
				damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			}
			put(w, pair.Key, damaged)
			if table == 'f' || table == 'g' { // without path filters and graph rows answers take longer
				w.CheckAll()
			} else if !w.checkDamaged() {
				t.Fatalf("no read noticed a damaged value of table %c", table)
			}
			report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
			if err != nil || report.ProblemCount == 0 {
				t.Fatalf("fsck with a damaged value of table %c: %+v, %v", table, report, err)
			}
			put(w, pair.Key, pair.Value)
		}
	}
	if w.Store.Stats().CorruptCount == 0 {
		t.Error("corruption was not counted")
	}
	w.CheckAll()
}

func put(w *world, key, value []byte) {
	w.Helper()
	b := kv.NewBatch()
	b.Put(key, value)
	w.Apply(b)
}

// TestDamageIsToldOnce reads damaged bytes again and again. Each read is counted; the damage is
// logged once, with the object and its file.
func TestDamageIsToldOnce(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	w := newWorld(t, odb.Options{CacheBytes: 1, Logger: slog.New(slog.NewTextHandler(&told, nil))})
	random := rand.New(rand.NewPCG(7, 8))
	d := w.Draft()
	data := odbtest.Text(random, 1<<20+5000)
	id := d.WriteFrom(data)
	d.Commit()
	w.Reopen()
	name := listFiles(t, w)[0]
	flipAt(t, w, name, 5000, 1)
	before := w.Store.Stats()
	for range 3 {
		w.With(func(v *odb.View) {
			o, err := v.Open(t.Context(), id)
			w.Must(err)
			if _, err := o.WriteTo(io.Discard); !errors.Is(err, odb.ErrCorrupt) ||
				!strings.Contains(err.Error(), path.Base(name)) {
				t.Errorf("read: %v, want damage of %s", err, path.Base(name))
			}
			w.Must(o.Close())
		})
	}
	after := w.Store.Stats()
	if after.CorruptCount != before.CorruptCount+3 || after.DamageCount != 1 {
		t.Errorf("%d reads of %d damaged things were counted, want 3 of 1", after.CorruptCount-before.CorruptCount,
			after.DamageCount)
	}
	if n := strings.Count(told.String(), "corrupt bytes"); n != 1 ||
		!strings.Contains(told.String(), "object="+id.String()) ||
		!strings.Contains(told.String(), "file="+path.Base(name)) {
		t.Errorf("logged %d times: %s", n, told.String())
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	w.Reopen()
	for _, name := range listFiles(t, w) {
		w.Must(w.FS.Rename(name, name+"x"))
		w.Reopen()
		report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
		if err != nil || report.ProblemCount == 0 {
			t.Errorf("fsck did not miss %s: %+v, %v", name, report, err)
		}
		switch path.Ext(name) {
		case ".bitmap", ".filter", ".graph", ".history", ".trigram": // without them answers take longer
			w.CheckAll()
		default:
			if !w.checkDamaged() {
				t.Errorf("nothing missed %s", name)
			}
		}
		w.Must(w.FS.Rename(name+"x", name))
	}
}

func TestFsckMissesKeys(t *testing.T) {
	t.Parallel()
	w := damagedWorld(t)
	for _, table := range []byte{'s', 'u'} {
		for pair, err := range w.Keys.Scan(t.Context(), kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
			w.Must(err)
			key, value := bytes.Clone(pair.Key), bytes.Clone(pair.Value)
			b := kv.NewBatch()
			b.Delete(key)
			w.Apply(b)
			report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{})
			if err != nil || report.ProblemCount != 1 {
				t.Errorf("without key %x: %+v, %v; want one problem", key, report, err)
			}
			put(w, key, value)
		}
	}
}

// TestFsckOfSummaries stores a pack with a summary that is right, lacks something or has too much.
func TestFsckOfSummaries(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	tip := mustID(t, r.Seed(oracle.History{Commits: 5}))
	parent := mustID(t, r.Git("rev-parse", "main^"))
	packed := r.Input(nil, "pack-objects", "--all", "--stdout", "--quiet")
	tests := map[string]struct {
		tips, external []object.ID
		problems       int64
	}{
		"right":              {tips: []object.ID{tip}},
		"too many tips":      {tips: []object.ID{tip, parent}, problems: 1},
		"another tip":        {tips: []object.ID{parent}, problems: 1},
		"something external": {tips: []object.ID{tip}, external: []object.ID{parent}, problems: 1},
		"no summary at all":  {},
		"nothing but a list": {external: []object.ID{tip}},
	}
	for name, test := range tests {
		w := newWorld(t, odb.Options{})
		d := w.Draft()
		d.AddPack(packed, test.tips, test.external)
		d.Commit()
		report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{Tips: []object.ID{tip}})
		if err != nil || report.ProblemCount != test.problems {
			t.Errorf("%s: %+v, %v; want %d problems", name, report, err, test.problems)
		}
	}
}

func TestFsckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	missing := object.ID{1, 2, 3}
	tests := map[string]struct {
		write func(d *odbtest.Draft)
		tips  []object.ID
		err   error
	}{
		"missing tip": {tips: []object.ID{missing}, write: func(*odbtest.Draft) {}, err: odb.ErrMissing},
		"missing blob": {
			write: func(d *odbtest.Draft) {
				d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("a", missing)), object.ZeroID)
			},
			err: odb.ErrMissing,
		},
		"blob where a tree must be": {
			write: func(d *odbtest.Draft) {
				blob := d.Write(object.TypeBlob, []byte("x"), object.ZeroID)
				d.Write(object.TypeCommit, odbtest.CommitOf(blob, 1), object.ZeroID)
			},
			err: odb.ErrMissing,
		},
	}
	for name, test := range tests {
		for _, options := range []odb.Options{{}, {Limits: odb.Limits{HotValueBytes: 1}}} {
			w := newWorld(t, options)
			d := w.Draft()
			d.Write(object.TypeBlob, []byte("fine"), object.ZeroID)
			test.write(d)
			d.Commit()
			report, err := w.Store.Fsck(t.Context(), w.Pool, odb.FsckOptions{Tips: test.tips})
			if err != nil || report.ProblemCount != 1 || !errors.Is(report.Problems[0].Err, test.err) {
				t.Errorf("%s: %+v, %v; want one problem, %v", name, report, err, test.err)
			}
		}
	}
}

// rounds is n, or a quarter of it in a short run.
func rounds(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}
