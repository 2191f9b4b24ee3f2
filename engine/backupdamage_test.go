package engine_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// filesIn returns the files below a folder that end so, sorted.
func filesIn(t *testing.T, fs vfs.FS, dir, suffix string) []string {
	t.Helper()
	names, err := fs.List(dir)
	must(t, err)
	slices.Sort(names)
	var found []string
	for _, name := range names {
		name = path.Join(dir, name)
		if info, err := fs.Stat(name); err == nil && info.IsDir() {
			found = append(found, filesIn(t, fs, name, suffix)...)
		} else if strings.HasSuffix(name, suffix) {
			found = append(found, name)
		}
	}
	return found
}

// backedUp is a host with two repositories, each with a segment, and a folder with one backup of
// it.
type backedUp struct {
	fs, to vfs.FS
	config engine.Config
	open   opener
	host   *engine.Host
	shut   func()
	dest   *file.Dir
	tips   map[string]object.ID
}

func newBackedUp(t *testing.T, open opener, config engine.Config) *backedUp {
	t.Helper()
	odbtest.NeedsEmbedded(t, "it damages files in their folder")
	config.Objects = smallHot.Objects
	b := &backedUp{fs: vfs.NewMem(), to: vfs.NewMem(), config: config, open: open, tips: map[string]object.ID{}}
	b.host, b.shut = open(t, b.fs, config)
	t.Cleanup(func() { b.shut() })
	var shutDest func()
	for seed, name := range []string{"one", "two"} {
		enginetest.Create(t, b.host, name)
		b.write(t, name, byte(seed))
	}
	b.dest, shutDest = enginetest.OpenBackups(t, b.to)
	t.Cleanup(shutDest)
	_, err := b.host.Backup(t.Context(), b.dest, backup.Options{})
	must(t, err)
	return b
}

// write adds a segment to a repository.
func (b *backedUp) write(t *testing.T, name string, seed byte) {
	t.Helper()
	repo, err := b.host.Repository(t.Context(), enginetest.Org, name)
	must(t, err)
	done, err := upload(repo, acme, main, change{path: "large", content: string(noise(seed, 200<<10))})
	must(t, err)
	b.tips[name] = done.New
}

// segments returns the segments of the store, the oldest first, once all lie in their place.
func (b *backedUp) segments(t *testing.T) []string {
	t.Helper()
	b.shut()
	b.host, b.shut = b.open(t, b.fs, b.config)
	found := filesIn(t, b.fs, "files", ".segment")
	slices.SortFunc(found, func(x, y string) int { return strings.Compare(path.Base(x), path.Base(y)) })
	return found
}

// restores wants a backup to be whole, with these repositories at their tips.
func (b *backedUp) restores(t *testing.T, number uint64, tips map[string]object.ID) {
	t.Helper()
	restored := vfs.NewMem()
	must(t, enginetest.RestoreBackup(t, restored, b.dest, backup.Options{Number: number, Incomplete: true}))
	host, shut := openRestored(t, restored)
	defer shut()
	for name, tip := range tips {
		repo, err := host.Repository(t.Context(), enginetest.Org, name)
		must(t, err)
		page, err := repo.Branches(t.Context(), refs.Main, "", 10)
		if err != nil || len(page.Items) != 1 || page.Items[0].Tip != tip {
			t.Errorf("backup %d: %s has %v, %v; want %s", number, name, page.Items, err, tip)
		}
	}
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		must(t, err)
		if _, ok := tips[checked.Name]; ok && checked.Damaged() {
			t.Errorf("backup %d: %s: %q", number, checked.Name, checked.Problems())
		}
	}
}

// damages are ways to damage a file.
var damages = map[string]func(t *testing.T, fs vfs.FS, name string){
	"flipped": flipBit,
	"missing": func(t *testing.T, fs vfs.FS, name string) { t.Helper(); must(t, fs.Remove(name)) },
	"cut off": cut,
}

// TestBackupOfADamagedStore damages a file that the previous backup has. Neither that one nor the
// next is harmed, and the next reports the damage.
func TestBackupOfADamagedStore(t *testing.T) {
	t.Parallel()
	for kind, damage := range damages {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testBackupOfADamagedStore(t, openPlain, kind == "flipped", damage)
		})
		t.Run(kind+" and far away", func(t *testing.T) {
			t.Parallel()
			testBackupOfADamagedStore(t, openExporting, true, damage)
		})
	}
}

// testBackupOfADamagedStore wants the copy to be taken; unnoticed says that nobody looks at the
// file of the store, whose copy is right.
func testBackupOfADamagedStore(
	t *testing.T, open opener, unnoticed bool, damage func(t *testing.T, fs vfs.FS, name string),
) {
	t.Helper()
	b := newBackedUp(t, open, engine.Config{})
	before := map[string]object.ID{"one": b.tips["one"], "two": b.tips["two"]}
	segment := b.segments(t)[0]
	damage(t, b.fs, segment)
	b.write(t, "two", 9)
	report, err := b.host.Backup(t.Context(), b.dest, backup.Options{Prune: true})
	if unnoticed {
		must(t, err)
		b.restores(t, 2, b.tips)
		return
	}
	told, ok := errors.AsType[*backup.StoreDamagedError](err)
	if !ok || !errors.Is(err, backup.ErrStoreDamaged) || len(told.Damage) != 1 {
		t.Fatalf("the second backup: %+v, %v", report, err)
	}
	is := told.Damage[0]
	if is.File != path.Base(segment) || !slices.Equal(is.Repositories, []string{"acme/one"}) || !is.Kept {
		t.Errorf("told of %+v", is)
	}
	if report.Number != 2 || report.LostCount != 0 || report.PrunedCount != 0 {
		t.Errorf("%+v", report)
	}
	b.restores(t, 1, before)
	b.restores(t, 2, b.tips)
}

// TestBackupOfNewDamage damages a file that no backup has: it is not recorded, the others are, and
// the older backup stays.
func TestBackupOfNewDamage(t *testing.T) {
	t.Parallel()
	eachSource(t, func(t *testing.T, open opener) {
		t.Helper()
		for kind, damage := range damages {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				testBackupOfNewDamage(t, open, damage)
			})
		}
	})
}

func testBackupOfNewDamage(t *testing.T, open opener, damage func(t *testing.T, fs vfs.FS, name string)) {
	t.Helper()
	b := newBackedUp(t, open, engine.Config{})
	before := map[string]object.ID{"one": b.tips["one"], "two": b.tips["two"]}
	b.write(t, "one", 8)
	b.write(t, "two", 9)
	segment := b.segments(t)[2]
	damage(t, b.fs, segment)
	report, err := b.host.Backup(t.Context(), b.dest, backup.Options{Prune: true})
	told, ok := errors.AsType[*backup.StoreDamagedError](err)
	if !ok || len(told.Damage) != 1 || told.Damage[0].Kept || told.Damage[0].File != path.Base(segment) ||
		!slices.Equal(told.Damage[0].Repositories, []string{"acme/one"}) {
		t.Fatalf("%+v, %v", report, err)
	}
	if report.LostCount != 1 || report.Number != 2 {
		t.Errorf("%+v", report)
	}
	if err := enginetest.RestoreBackup(t, vfs.NewMem(), b.dest, backup.Options{}); !errors.Is(err, backup.ErrIncomplete) {
		t.Errorf("restoring what is incomplete: %v", err)
	}
	b.restores(t, 1, before)
	b.restores(t, 2, map[string]object.ID{"two": b.tips["two"]})
	all, err := backup.List(t.Context(), b.dest)
	if err != nil || len(all) != 2 || all[0].LostCount != 0 || all[1].LostCount != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestBackupOfADamagedTable damages the tables of the key-value store, one after the other: there
// is no new backup, and the old one stays.
func TestBackupOfADamagedTable(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t, openPlain, engine.Config{})
	tables := filesIn(t, b.fs, "keys", ".sst")
	if len(tables) == 0 {
		t.Fatal("no tables")
	}
	for _, table := range tables {
		at := size(t, b.fs, table) / 8
		flipAt(t, b.fs, table, at)
		if report, err := b.host.Backup(t.Context(), b.dest, backup.Options{Prune: true}); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", table, report, err)
		}
		flipAt(t, b.fs, table, at)
	}
	b.restores(t, 1, b.tips)
	report, err := b.host.Backup(t.Context(), b.dest, backup.Options{})
	if err != nil || report.Number != 2 {
		t.Errorf("when all is well again: %+v, %v", report, err)
	}
}

// TestBackupRepairs damages a copy in the folder: the next backup replaces it, for the older ones,
// too.
func TestBackupRepairs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"missing", "cut off"} {
		b := newBackedUp(t, openPlain, engine.Config{})
		damages[kind](t, b.to, filesIn(t, b.to, "backups", ".segment")[0])
		if err := enginetest.RestoreBackup(t, vfs.NewMem(), b.dest, backup.Options{}); !errors.Is(err, backup.ErrDamaged) {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := b.host.Backup(t.Context(), b.dest, backup.Options{}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		b.restores(t, 1, b.tips)
		b.restores(t, 2, b.tips)
	}
}

// TestBackupOfAStranger takes a backup of another store into the folder: it is refused, by both
// names, and changes nothing.
func TestBackupOfAStranger(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t, openPlain, engine.Config{})
	before, err := backup.List(t.Context(), b.dest)
	must(t, err)
	other := enginetest.Open(t)
	report, err := other.Backup(t.Context(), b.dest, backup.Options{Prune: true})
	strange, ok := errors.AsType[*backup.StrangerError](err)
	if !ok || !errors.Is(err, backup.ErrStranger) || strange.Folder != before[0].Store || len(strange.Store) != 32 {
		t.Errorf("a stranger: %+v, %v", report, err)
	}
	after, err := backup.List(t.Context(), b.dest)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("%+v, %v", after, err)
	}
	b.restores(t, 1, b.tips)

	// The restored store equals the original.
	restored := vfs.NewMem()
	must(t, enginetest.RestoreBackup(t, restored, b.dest, backup.Options{}))
	host, shut := openRestored(t, restored)
	defer shut()
	if report, err := host.Backup(t.Context(), b.dest, backup.Options{}); err != nil || report.Number != 2 {
		t.Errorf("a backup of what was restored: %+v, %v", report, err)
	}
}

// TestBackupForget keeps some of many backups, and each of them is whole.
func TestBackupForget(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 22, 0, 0, 0, time.UTC) // a Monday
	b := newBackedUp(t, openPlain, engine.Config{Now: func() time.Time { return now }})
	tips := map[uint64]object.ID{1: b.tips["one"]}
	for number := uint64(2); number <= 9; number++ { // four hours apart, then days
		now = now.Add(4 * time.Hour)
		if number > 6 {
			now = now.Add(3 * 24 * time.Hour)
		}
		b.write(t, "one", byte(10+number))
		tips[number] = b.tips["one"]
		report, err := b.host.Backup(t.Context(), b.dest, backup.Options{})
		if err != nil || report.Number != number {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	// March: 1 on the 2nd, 2 to 6 on the 3rd, 7 on the 6th, 8 on the 10th, 9 on the 13th. Weeks begin
	// on the 2nd and the 9th.
	steps := []struct {
		policy backup.Policy
		kept   []uint64
	}{
		{backup.Policy{Last: 2, Daily: 4, Weekly: 2}, []uint64{6, 7, 8, 9}},
		{backup.Policy{Last: 1, Weekly: 2}, []uint64{7, 9}},
		{backup.Policy{Last: 9}, []uint64{7, 9}},
		{backup.Policy{Daily: 1}, []uint64{9}},
	}
	for _, step := range steps {
		done, err := backup.Forget(t.Context(), b.dest, step.policy, false)
		if err != nil || !slices.Equal(done.Kept, step.kept) {
			t.Fatalf("%+v: %+v, %v", step.policy, done, err)
		}
		count := 0
		for checked, err := range backup.Check(t.Context(), b.dest, nil) {
			must(t, err)
			if count++; checked.DamageCount > 0 || checked.Damage != nil {
				t.Errorf("%+v: %+v", step.policy, checked)
			}
		}
		if count != len(step.kept) {
			t.Errorf("%+v: %d backups", step.policy, count)
		}
		for _, number := range step.kept {
			b.restores(t, number, map[string]object.ID{"one": tips[number]})
		}
	}
	if found := filesIn(t, b.to, "backups", ".manifest"); len(found) != 1 {
		t.Errorf("%q", found)
	}
}

// TestBackupCheck finds the damaged files of each backup, and a damaged manifest.
func TestBackupCheck(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t, openPlain, engine.Config{})
	b.write(t, "two", 9)
	_, err := b.host.Backup(t.Context(), b.dest, backup.Options{})
	must(t, err)
	segments := filesIn(t, b.to, "backups", ".segment")
	slices.SortFunc(segments, func(x, y string) int { return strings.Compare(path.Base(x), path.Base(y)) })
	for at, want := range map[int][]int64{0: {1, 1}, 2: {0, 1}} {
		flipBit(t, b.to, segments[at])
		var got []int64
		for checked, err := range backup.Check(t.Context(), b.dest, nil) {
			must(t, err)
			got = append(got, checked.DamageCount)
			if checked.DamageCount > 0 && !strings.Contains(checked.Damages[0].Error(), path.Base(segments[at])) {
				t.Errorf("%v", checked.Damages)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("segment %d: %v", at, got)
		}
		flipBit(t, b.to, segments[at])
	}
	flipBit(t, b.to, filesIn(t, b.to, "backups", "00000001.manifest")[0])
	for checked, err := range backup.Check(t.Context(), b.dest, nil) {
		must(t, err)
		if damaged := errors.Is(checked.Damage, backup.ErrDamaged); damaged != (checked.Number == 1) {
			t.Errorf("%+v", checked)
		}
	}
	if _, err := backup.Forget(t.Context(), b.dest, backup.Policy{Last: 1}, false); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("forgetting beside a damaged manifest: %v", err)
	}
	done, err := backup.Forget(t.Context(), b.dest, backup.Policy{Last: 5}, true)
	if err != nil || !slices.Equal(done.Kept, []uint64{2}) || !slices.Equal(done.Removed, []uint64{1}) {
		t.Errorf("%+v, %v", done, err)
	}
	b.restores(t, 2, b.tips)
}

// TestBackupAdopts takes a backup into a folder with one of before stores had an id: it is adopted,
// and that one is never pruned.
func TestBackupAdopts(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t, openPlain, engine.Config{})
	ageManifest(t, b.to, filesIn(t, b.to, "backups", ".manifest")[0])
	first := map[string]object.ID{"one": b.tips["one"], "two": b.tips["two"]}
	b.restores(t, 1, first)
	b.write(t, "one", 7)
	for number := uint64(2); number < 4; number++ {
		report, err := b.host.Backup(t.Context(), b.dest, backup.Options{Prune: true})
		if err != nil || report.Number != number || report.AgedCount != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	b.restores(t, 1, first)
	b.restores(t, 3, b.tips)
	err := enginetest.RestoreBackup(t, vfs.NewMem(), b.dest, backup.Options{Number: 2})
	if !errors.Is(err, backup.ErrNone) {
		t.Errorf("the backup that was pruned: %v", err)
	}
	if _, err := enginetest.Open(t).Backup(t.Context(), b.dest, backup.Options{}); !errors.Is(err, backup.ErrStranger) {
		t.Errorf("a stranger in the adopted folder: %v", err)
	}
	done, err := backup.Forget(t.Context(), b.dest, backup.Policy{Last: 1}, false)
	if err != nil || !slices.Equal(done.Removed, []uint64{1}) {
		t.Errorf("%+v, %v", done, err)
	}
	b.restores(t, 3, b.tips)
}

// ageManifest makes a manifest one of the version before stores had an id.
func ageManifest(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	content, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	lines := strings.SplitAfter(string(content), "\n")
	if lines[0] != "packhorse backup 2\n" || !strings.HasPrefix(lines[2], "store ") {
		t.Fatalf("%q", lines[:3])
	}
	lines[0] = "packhorse backup 1\n"
	body := strings.Join(slices.Delete(lines, 2, 3)[:len(lines)-3], "")
	must(t, fs.Remove(name))
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = fmt.Fprintf(out, "%send %x\n", body, sha256.Sum256([]byte(body)))
	must(t, errors.Join(err, out.Close()))
}
