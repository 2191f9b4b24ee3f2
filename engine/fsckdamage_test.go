package engine_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
)

// damaged is a host whose stores a test gets at from behind.
type damaged struct {
	t     *testing.T
	fs    *vfs.MemFS
	keys  kv.Store
	files file.Store
	host  *engine.Host
}

// newDamaged makes a store with a segment and all of its auxiliary files, a fork of it, and hot
// objects.
func newDamaged(t *testing.T) *damaged {
	t.Helper()
	d := &damaged{t: t, fs: vfs.NewMem()}
	d.open()
	t.Cleanup(d.shut)
	actor := engine.Actor{Org: enginetest.Org, Subject: "test"}
	repo := enginetest.Create(t, d.host, "source")
	commit := func(content string) string {
		result, err := upload(repo, actor, engine.CommitTarget{Branch: "main"}, change{path: "a/b", content: content})
		if err != nil {
			t.Fatal(err)
		}
		return result.New.String()
	}
	var parent string
	for i := range 30 {
		parent = commit(strings.Repeat(fmt.Sprintf("line %d\n", i), 40))
	}
	commit("what the fork may not read")
	d.maintain()
	base := &engine.Base{Name: "source", Commit: parent}
	if _, err := d.host.CreateRepository(t.Context(), actor, engine.CreateRequest{Name: "fork", Base: base}); err != nil {
		t.Fatal(err)
	}
	commit("hot")
	commit("hot too")
	fork, err := d.host.Repository(t.Context(), enginetest.Org, "fork")
	if err != nil {
		t.Fatal(err)
	}
	// No tip, so that it waits for the visibility walk.
	content, err := fork.File(t.Context(), engine.FileRequest{Path: "a/b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	d.shut()
	d.open()
	return d
}

func (d *damaged) open() {
	d.t.Helper()
	var err error
	if d.keys, err = kv.OpenPebble(
		"keys", kv.PebbleOptions{FS: d.fs, MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)},
	); err != nil {
		d.t.Fatal(err)
	}
	if d.files, err = file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(d.fs)}); err != nil {
		d.t.Fatal(err)
	}
	d.host, err = engine.Open(context.Background(),
		engine.Config{KV: d.keys, Files: d.files, Objects: odb.Options{AuxiliaryCount: 1}})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) shut() {
	d.t.Helper()
	if d.host == nil {
		return
	}
	for _, closing := range []func() error{
		func() error { return d.host.Close(context.Background()) }, d.files.Close, d.keys.Close,
	} {
		if err := closing(); err != nil {
			d.t.Error(err)
		}
	}
	d.host = nil
}

func (d *damaged) maintain() {
	d.t.Helper()
	for done, err := range d.host.Maintain(d.t.Context(), engine.MaintainOptions{All: true, ReaderGrace: -1}) {
		if err != nil || done.Err != nil {
			d.t.Fatal(err, done.Err)
		}
	}
}

// problems returns what fsck finds.
func (d *damaged) problems() []string {
	d.t.Helper()
	var found []string
	for checked, err := range d.host.Fsck(d.t.Context(), engine.FsckOptions{}) {
		if err != nil {
			d.t.Fatal(err)
		}
		found = append(found, checked.Problems()...)
	}
	return found
}

// expect wants a problem with a text, from the running host and after it was reopened.
func (d *damaged) expect(want string) {
	d.t.Helper()
	for _, when := range []string{"online", "offline"} {
		found := d.problems()
		if !slices.ContainsFunc(found, func(problem string) bool { return strings.Contains(problem, want) }) {
			d.t.Errorf("%s: %q; want one that says %q", when, found, want)
		}
		d.shut()
		d.open()
	}
}

// row returns the n-th row of a table, from the end when n is negative.
func (d *damaged) row(table byte, n int) kv.Pair {
	d.t.Helper()
	var pairs []kv.Pair
	for pair, err := range d.keys.Scan(d.t.Context(), kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
		if err != nil {
			d.t.Fatal(err)
		}
		pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
	}
	if len(pairs) == 0 {
		d.t.Fatalf("table %c is empty", table)
	}
	return pairs[(n+len(pairs))%len(pairs)]
}

func (d *damaged) apply(change func(b *kv.Batch)) {
	d.t.Helper()
	b := kv.NewBatch()
	change(b)
	if _, err := d.keys.Apply(d.t.Context(), b); err != nil {
		d.t.Fatal(err)
	}
}

// paths returns the paths of the stored files.
func (d *damaged) paths() []string {
	d.t.Helper()
	var all []string
	var visit func(dir string)
	visit = func(dir string) {
		names, err := d.fs.List(dir)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, name := range names {
			full := path.Join(dir, name)
			if info, err := d.fs.Stat(full); err == nil && info.IsDir() {
				visit(full)
			} else if name != "LOCK" {
				all = append(all, full)
			}
		}
	}
	visit("files")
	return all
}

// isObsolete reports whether a layer or auxiliary file waits to be removed.
func (d *damaged) isObsolete(layer string) bool {
	d.t.Helper()
	for pair, err := range d.keys.Scan(d.t.Context(), kv.ScanOptions{Start: []byte{'d'}, End: []byte{'e'}}) {
		if err != nil {
			d.t.Fatal(err)
		}
		if strings.HasSuffix(hex.EncodeToString(pair.Key), layer) {
			return true
		}
	}
	return false
}

// flip changes a bit of a file.
func (d *damaged) flip(name string, offset int64, mask byte) {
	d.t.Helper()
	f, err := d.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		d.t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		d.t.Fatal(err)
	}
	b[0] ^= mask
	if _, err := f.WriteAt(b[:], offset); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// TestFsckFindsDamagedRows damages one row at a time.
func TestFsckFindsDamagedRows(t *testing.T) {
	t.Parallel()
	drop := func(table byte, n int) func(d *damaged) {
		return func(d *damaged) {
			key := d.row(table, n).Key
			d.apply(func(b *kv.Batch) { b.Delete(key) })
		}
	}
	edit := func(table byte, n int, change func(value []byte) []byte) func(d *damaged) {
		return func(d *damaged) {
			row := d.row(table, n)
			d.apply(func(b *kv.Batch) { b.Put(row.Key, change(row.Value)) })
		}
	}
	// put adds a row under the key of another one, changed.
	put := func(table byte, change func(key []byte) []byte) func(d *damaged) {
		return func(d *damaged) {
			row := d.row(table, 0)
			d.apply(func(b *kv.Batch) { b.Put(change(row.Key), row.Value) })
		}
	}
	turned := func(at int) func([]byte) []byte {
		return func(data []byte) []byte { data[(at+len(data))%len(data)] ^= 0x40; return data }
	}
	short := func(data []byte) []byte { return data[:len(data)-1] }
	tests := map[string]struct {
		damage func(d *damaged)
		want   string
	}{
		"record gone":                {drop('R', 0), "a pool that no repository has"},
		"record unreadable":          {edit('R', 0, short), "record of repository"},
		"name gone":                  {drop('N', 0), "is not listed as"},
		"name of another repository": {edit('N', 0, turned(-1)), "is not listed as"},
		"number gone":                {drop('n', 0), "is not listed as"},
		"head behind the journal":    {edit('h', 0, func(v []byte) []byte { v[7]--; return v }), "the head is at"},
		"journal entry gone":         {drop('j', 3), "has a gap"},
		"last journal entry gone":    {drop('j', 33), "the journal ends with"},
		"ref moved":                  {edit('r', 0, turned(5)), "the journal left it elsewhere"},
		// Decoded refs are kept.
		"ref to what is missing": {func(d *damaged) { edit('r', 0, turned(5))(d); d.shut(); d.open() }, "it is a tip"},
		"ref gone":               {drop('r', 0), "the journal left it at"},
		"creation gone":          {drop('c', 0), "is not listed by its creation"},
		"feed row damaged":       {edit('e', 1, short), "read feed"},
		"feed row malformed":     {put('e', short), "feed row of 8 bytes"},
		"manifest gone":          {drop('m', 0), "does not name it"},
		"manifest damaged":       {edit('m', 0, turned(9)), "manifest fails its checksum"},
		"manifest of another pool": {
			func(d *damaged) { d.apply(func(b *kv.Batch) { b.Put(d.row('m', 0).Key, d.row('m', 1).Value) }) },
			"manifest fails its checksum",
		},
		"pool without a repository": {put('m', turned(-1)), "a pool that no repository has"},
		"manifest under no pool":    {put('m', short), "is no manifest's"},
		"user key gone":             {drop('u', 0), "is missing"},
		"user key of no pool":       {put('u', turned(-1)), "does not name it"},
		"user key of no layer":      {put('u', turned(16)), "does not name it"},
		"user key malformed":        {put('u', short), "is no user's"},
		"registration gone":         {drop('s', 0), "is not registered"},
		"registration damaged":      {edit('s', 0, short), "registration"},
		"registration of no file":   {put('s', turned(-1)), "a file is registered that no pool uses"},
		"registration malformed":    {put('s', short), "is no registration's"},
		"obsolete entry malformed": {
			func(d *damaged) { d.apply(func(b *kv.Batch) { b.Put([]byte("dxyz"), nil) }) }, "is no obsolete entry",
		},
		"hot object gone":            {drop('o', 0), "missing"},
		"hot object damaged":         {edit('o', 0, turned(-3)), "object"},
		"hot object of another":      {put('o', turned(-1)), "object"},
		"hot object of no layer":     {put('o', turned(16)), "rows of a layer that no pool uses"},
		"hot object malformed":       {put('o', short), "is no layer's"},
		"graph row damaged":          {edit('g', 0, turned(-1)), "object"},
		"graph row without a commit": {put('g', turned(-1)), "a graph row"},
		"graph row of no layer":      {put('g', turned(16)), "rows of a layer that no pool uses"},
		"visibility set gone":        {drop('V', 0), "the visibility set of a fork is missing"},
		"visibility set damaged":     {edit('V', 0, turned(-9)), "malformed visibility set"},
		"visibility set of no fork":  {put('V', turned(16)), "rows of a layer that no pool uses"},
		"visibility set malformed":   {put('V', short), "is no layer's"},
		"file that nobody registered": {
			func(d *damaged) { d.stray(strings.Repeat("0", 32) + ".segment") }, "is not registered",
		},
		"file of an unknown kind": {func(d *damaged) { d.stray("stray") }, "has a name that nothing gave it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamaged(t)
			if found := d.problems(); len(found) > 0 {
				t.Fatalf("undamaged: %q", found)
			}
			test.damage(d)
			d.expect(test.want)
		})
	}
}

// stray stores a file that no row knows.
func (d *damaged) stray(name string) {
	d.t.Helper()
	w, err := d.files.Create(d.t.Context(), name)
	if err == nil {
		_, err = w.Write([]byte("stray"))
	}
	if err == nil {
		err = w.Seal(d.t.Context())
	}
	if err == nil {
		err = file.Settle(d.t.Context(), d.files, name)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestFsckFindsDamagedFiles removes each kind of file, and flips bits from its begin to its end:
// fsck names the file.
func TestFsckFindsDamagedFiles(t *testing.T) {
	t.Parallel()
	d := newDamaged(t)
	kinds := map[string]bool{}
	for _, name := range d.paths() {
		layer, kind, _ := strings.Cut(path.Base(name), ".")
		if d.isObsolete(layer) {
			continue
		}
		kinds[kind] = true
		info, err := d.fs.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		flips := int64(24)
		if testing.Short() {
			flips = 6
		}
		for i := range flips {
			offset := i * (info.Size() - 1) / (flips - 1)
			d.flip(name, offset, 1<<(i%8))
			d.shut()
			d.open()
			if found := d.problems(); !strings.Contains(strings.Join(found, "\n"), layer) {
				t.Errorf("bit of %s at %d of %d: %q", kind, offset, info.Size(), found)
			}
			d.flip(name, offset, 1<<(i%8))
		}
		d.shut()
		d.open()
		if found := d.problems(); len(found) > 0 {
			t.Fatalf("as it was: %q", found)
		}
		if err := d.fs.Rename(name, "aside"); err != nil {
			t.Fatal(err)
		}
		d.expect(layer)
		if err := d.fs.Rename("aside", name); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"segment", "graph", "filter", "bitmap"} {
		if !kinds[kind] {
			t.Errorf("there is no %s among the files", kind)
		}
	}
}

// TestFsckTellsDamageOnce damages the end of a segment, so that it cannot be opened, and one of its
// entries, on which others build: fsck goes on with the rest, and one damage is one problem of each
// repository, however much leads to it.
func TestFsckTellsDamageOnce(t *testing.T) {
	t.Parallel()
	d := newDamaged(t)
	whole := d.checked()
	for name, at := range map[string]func(size int64) int64{
		"end":   func(size int64) int64 { return size - 1 },
		"entry": func(int64) int64 { return 40 },
	} {
		for _, file := range d.paths() {
			layer, kind, _ := strings.Cut(path.Base(file), ".")
			if kind != "segment" || d.isObsolete(layer) {
				continue
			}
			info, err := d.fs.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			offset := at(info.Size())
			d.flip(file, offset, 4)
			d.shut()
			d.open()
			found := false
			for repo, checked := range d.checked() {
				if lines := checked.Problems(); len(lines) > 1 || len(lines) == 1 && !strings.Contains(lines[0], path.Base(file)) {
					t.Errorf("%s of %s: %s has %q, want one problem that names the file", name, path.Base(file), repo, lines)
				}
				found = found || checked.Damaged()
				if repo == "source" &&
					(checked.Objects.ObjectCount == 0 || checked.Objects.ObjectCount > whole[repo].Objects.ObjectCount) {
					t.Errorf("%s of %s: %d objects of %s were looked at", name, path.Base(file), checked.Objects.ObjectCount, repo)
				}
				if checked.Damaged() && !strings.Contains(checked.Heal(), "backup") {
					t.Errorf("%s of %s is healed by %q", name, path.Base(file), checked.Heal())
				}
			}
			if !found {
				t.Errorf("%s of %s: nothing was found", name, path.Base(file))
			}
			d.flip(file, offset, 4)
		}
	}
}

// checked returns what fsck says of each repository.
func (d *damaged) checked() map[string]engine.Checked {
	d.t.Helper()
	all := make(map[string]engine.Checked)
	for checked, err := range d.host.Fsck(d.t.Context(), engine.FsckOptions{}) {
		if err != nil {
			d.t.Fatal(err)
		}
		all[checked.Name] = checked
	}
	return all
}

// TestDamageAsideIsHealed damages auxiliary files: fsck says that maintenance builds them again,
// and it does.
func TestDamageAsideIsHealed(t *testing.T) {
	t.Parallel()
	d := &damaged{t: t, fs: vfs.NewMem()}
	d.open()
	t.Cleanup(d.shut)
	repo := enginetest.Create(t, d.host, "alone")
	for i := range 20 {
		if _, err := upload(repo, engine.Actor{
			Org: enginetest.Org,
		}, engine.CommitTarget{Branch: "main"}, change{path: "a/b", content: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	d.maintain()
	d.shut()
	d.open()
	damaged := 0
	for _, file := range d.paths() {
		if layer, kind, _ := strings.Cut(path.Base(file), "."); kind == "segment" || d.isObsolete(layer) {
			continue
		}
		d.flip(file, 10, 1)
		damaged++
	}
	if damaged == 0 {
		t.Fatal("there is nothing beside the segment")
	}
	d.shut()
	d.open()
	checked := d.checked()["alone"]
	if checked.Objects.ProblemCount != int64(damaged) || !strings.Contains(checked.Heal(), "gc --anew") {
		t.Errorf("%d files are damaged: %q, healed by %q", damaged, checked.Problems(), checked.Heal())
	}
	for done, err := range d.host.Maintain(t.Context(),
		engine.MaintainOptions{All: true, ReaderGrace: -1, RepackOptions: packgen.RepackOptions{Anew: true}}) {
		if err != nil || done.Err != nil {
			t.Fatal(err, done.Err)
		}
	}
	if count := d.host.DamageCount(); count == 0 {
		t.Error("nothing has looked at all of it, and no damage is told any more")
	}
	if found := d.problems(); len(found) > 0 {
		t.Errorf("afterwards: %q", found)
	}
	if count := d.host.DamageCount(); count != 0 {
		t.Errorf("%d damages are still told", count)
	}
}

// TestDamageIsToldUntilAllIsSound damages one repository of two and repairs it: the damage is
// reported until a check of both has found nothing.
func TestDamageIsToldUntilAllIsSound(t *testing.T) {
	t.Parallel()
	d := newDamaged(t)
	at := slices.IndexFunc(d.paths(), func(file string) bool { return strings.HasSuffix(file, ".segment") })
	segment := d.paths()[at]
	count := func(step string, want bool) {
		t.Helper()
		if n := d.host.DamageCount(); (n > 0) != want {
			t.Errorf("%s: %d damages are told", step, n)
		}
	}
	d.flip(segment, 40, 1)
	if found := d.problems(); len(found) == 0 {
		t.Fatal("a flipped bit is not found")
	}
	count("after a check", true)
	must(t, d.host.Scrub(t.Context(), fast))
	count("after a pass that found it, too", true)
	d.flip(segment, 40, 1)
	for _, err := range d.host.Fsck(t.Context(), engine.FsckOptions{}) {
		must(t, err)
		break
	}
	count("after a check that was ended", true)
	last := d.row('R', -1).Key[1:]
	d.apply(func(b *kv.Batch) { b.Put([]byte("x"), last) })
	must(t, d.host.Scrub(t.Context(), fast))
	count("after a pass that began at the last repository", true)
	must(t, d.host.Scrub(t.Context(), fast))
	count("after a pass over both", false)
	d.flip(segment, 40, 1)
	d.problems()
	count("after it was damaged again", true)
	d.flip(segment, 40, 1)
	if found := d.problems(); len(found) > 0 {
		t.Errorf("what was taken back: %q", found)
	}
	count("after a check of everything", false)
}
