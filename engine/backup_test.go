package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// opener opens a host over stores that are backed up; shut closes both.
type opener func(t *testing.T, fs vfs.FS, config engine.Config) (host *engine.Host, shut func())

func openPlain(t *testing.T, fs vfs.FS, config engine.Config) (host *engine.Host, shut func()) {
	t.Helper()
	return enginetest.OpenOn(t, fs, config)
}

// eachSource backs up stores whose keys make checkpoints, and those whose keys are exported and
// whose files are far away. Where tests are run over shared stores, these are the latter.
func eachSource(t *testing.T, test func(t *testing.T, open opener)) {
	t.Helper()
	if odbtest.Shared() {
		test(t, openPlain)
		return
	}
	for name, open := range map[string]opener{"checkpoint": openPlain, "export": openExporting} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// exportingKeys are embedded keys that make exports, and no checkpoints, as a database does.
type exportingKeys struct {
	kv.Store
	pebble kv.Checkpointer
}

func (k *exportingKeys) Export(ctx context.Context) (kv.Export, error) {
	return k.pebble.Checkpoint(ctx)
}

// remoteFiles are files in a folder that stands for a bucket, behind a cache.
type remoteFiles struct{ *file.Dir }

func (f remoteFiles) Remote() file.Store { return f.Dir }

// exporting returns stores like those that servers share.
func exporting(t *testing.T, fs vfs.FS) (keys kv.Store, files file.Store, shut func()) {
	t.Helper()
	keys, files, shut = odbtest.OpenStores(t, fs)
	if pebble, ok := keys.(kv.Checkpointer); ok {
		keys, files = &exportingKeys{keys, pebble}, remoteFiles{files.(*file.Dir)}
	}
	return keys, files, shut
}

func openExporting(t *testing.T, fs vfs.FS, config engine.Config) (host *engine.Host, shut func()) {
	t.Helper()
	keys, files, shutStores := exporting(t, fs)
	host = enginetest.OpenOver(t, keys, files, config)
	return host, func() {
		t.Helper()
		must(t, host.Close(context.Background()))
		shutStores()
	}
}

// openRestored opens a host over the embedded stores in fs.
func openRestored(t *testing.T, fs vfs.FS) (host *engine.Host, shut func()) {
	t.Helper()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: fs, MemoryBytes: 16 << 20, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	files, err := file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(fs)})
	must(t, err)
	host = enginetest.OpenOver(t, keys, files, smallHot)
	return host, func() {
		t.Helper()
		must(t, errors.Join(host.Close(context.Background()), files.Close(), keys.Close()))
	}
}

// smallHot makes segments of all but tiny objects, so that backups have files to copy.
var smallHot = engine.Config{Objects: odb.Options{Limits: odb.Limits{HotCount: 10}}}

// TestBackupInAStorm takes backups while API commits and pushes run. Each backup has the writes
// acknowledged before it, and everything in it is whole.
func TestBackupInAStorm(t *testing.T) {
	t.Parallel()
	eachSource(t, testBackupInAStorm)
}

func testBackupInAStorm(t *testing.T, open opener) {
	t.Helper()
	packs := pushes(t)
	host, shut := open(t, vfs.NewMem(), smallHot)
	defer shut()
	repo := enginetest.Create(t, host, "r")
	if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
		t.Fatal(err)
	}
	told := &ledger{tips: map[string]object.ID{}}
	ctx, stop := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() { commitUntil(ctx, t, repo, told, fmt.Sprintf("api%d", w)) })
	}
	writers.Go(func() { pushUntil(ctx, t, repo, told, packs) })
	defer writers.Wait()
	defer stop()

	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	defer shutDest()
	for range 4 {
		acknowledged := told.copy()
		if _, err := host.Backup(ctx, dest, backup.Options{}); err != nil {
			t.Fatal(err)
		}
		restored := vfs.NewMem()
		if err := enginetest.RestoreBackup(t, restored, dest, backup.Options{}); err != nil {
			t.Fatal(err)
		}
		copied, shutCopy := openRestored(t, restored)
		afterwards(t, copied, acknowledged)
		shutCopy()
	}
}

// TestBackupIsIncremental counts the files that a second backup copies, goes back to the first, and
// prunes.
func TestBackupIsIncremental(t *testing.T) {
	t.Parallel()
	eachSource(t, testBackupIsIncremental)
}

func testBackupIsIncremental(t *testing.T, open opener) {
	t.Helper()
	ctx := context.Background()
	host, shut := open(t, vfs.NewMem(), smallHot)
	defer shut()
	repo := enginetest.Create(t, host, "r")
	large := func(seed byte) change {
		return change{path: fmt.Sprintf("large%d", seed), content: string(noise(seed, 1<<20))}
	}
	first, err := upload(repo, acme, main, large(1))
	if err != nil {
		t.Fatal(err)
	}
	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	defer shutDest()
	take := func(options backup.Options) backup.Report {
		t.Helper()
		report, err := host.Backup(ctx, dest, options)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	one := take(backup.Options{})
	if one.Number != 1 || one.CopiedCount == 0 || one.CopiedBytes != one.Bytes || one.Bytes < 1<<20 {
		t.Errorf("the first backup: %+v", one)
	}
	same := take(backup.Options{})
	if same.CopiedBytes > 64<<10 {
		t.Errorf("nothing has changed, and %+v was copied", same)
	}
	second, err := upload(repo, acme, main, large(2))
	if err != nil {
		t.Fatal(err)
	}
	three := take(backup.Options{})
	if three.CopiedBytes < 1<<20 || three.CopiedBytes > 1<<20+64<<10 || three.Bytes < 2<<20 {
		t.Errorf("1 MiB is new, and %+v was copied", three)
	}
	for number, want := range map[uint64]object.ID{0: second.New, 1: first.New, 2: first.New, 3: second.New} {
		fs := vfs.NewMem()
		if err := enginetest.RestoreBackup(t, fs, dest, backup.Options{Number: number}); err != nil {
			t.Fatal(err)
		}
		copied, shutCopy := openRestored(t, fs)
		afterwards(t, copied, map[string]object.ID{"main": want})
		shutCopy()
	}
	if err := enginetest.RestoreBackup(t, vfs.NewMem(), dest, backup.Options{Number: 4}); !errors.Is(err, backup.ErrNone) {
		t.Errorf("a backup that was never made: %v", err)
	}
	pruned := take(backup.Options{Prune: true})
	if pruned.PrunedCount < 3 {
		t.Errorf("pruned: %+v", pruned)
	}
	if err := enginetest.RestoreBackup(t, vfs.NewMem(), dest, backup.Options{Number: 1}); !errors.Is(err, backup.ErrNone) {
		t.Errorf("a backup that was pruned: %v", err)
	}
	if all := enginetest.CheckBackups(t, dest); len(all) != 1 || all[0].FileCount != pruned.FileCount {
		t.Errorf("after pruning: %+v", all)
	}
}

// noise returns bytes that do not compress.
func noise(seed byte, size int) []byte {
	out, state := make([]byte, size), uint64(seed)+1
	for i := range out {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		out[i] = byte(state >> 32)
	}
	return out
}

// TestBackupDamaged damages each file of a backup in turn: restoring refuses and names it.
func TestBackupDamaged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), smallHot)
	defer shut()
	repo := enginetest.Create(t, host, "r")
	if _, err := upload(repo, acme, main, change{path: "large", content: string(noise(1, 256<<10))}); err != nil {
		t.Fatal(err)
	}
	fs := vfs.NewMem()
	dest, shutDest := enginetest.OpenBackups(t, fs)
	defer shutDest()
	if _, err := host.Backup(ctx, dest, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	folders, err := fs.List("backups/settled")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		inside, err := fs.List(path.Join("backups/settled", folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range inside {
			names = append(names, path.Join("backups/settled", folder, name))
		}
	}
	if len(names) < 5 { // a segment, a manifest, and the least that Pebble needs
		t.Errorf("only %d files in the backup", len(names))
	}
	damages := map[string]func(fs vfs.FS, name string){
		"flipped": func(fs vfs.FS, name string) { flipBit(t, fs, name) },
		"missing": func(fs vfs.FS, name string) { must(t, fs.Remove(name)) },
		"cut off": func(fs vfs.FS, name string) { cut(t, fs, name) },
	}
	for kind, damage := range damages {
		for _, name := range names {
			if kind != "missing" && size(t, fs, name) == 0 { // markers of Pebble are names only
				continue
			}
			copied := vfs.NewMem()
			if _, err := vfs.Clone(fs, copied, "backups", "backups"); err != nil {
				t.Fatal(err)
			}
			damage(copied, name)
			from, shutFrom := enginetest.OpenBackups(t, copied)
			err := enginetest.RestoreBackup(t, vfs.NewMem(), from, backup.Options{})
			manifest := strings.HasSuffix(name, ".manifest")
			switch {
			case manifest && kind == "missing":
				if !errors.Is(err, backup.ErrNone) {
					t.Errorf("%s %s: %v", kind, name, err)
				}
			case !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), path.Base(name)):
				t.Errorf("%s %s: %v", kind, name, err)
			}
			shutFrom()
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, fs vfs.FS, name string) int64 {
	t.Helper()
	info, err := fs.Stat(name)
	must(t, err)
	return info.Size()
}

// cut removes the last byte of a file.
func cut(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	content, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	must(t, fs.Remove(name))
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = out.Write(content[:len(content)-1])
	must(t, errors.Join(err, out.Close()))
}

// TestBackupInterrupted lets the disk of the backup fail at every operation in turn. The backup
// before can be restored all the same, and the next one is whole.
func TestBackupInterrupted(t *testing.T) {
	t.Parallel()
	eachSource(t, testBackupInterrupted)
}

func testBackupInterrupted(t *testing.T, open opener) {
	t.Helper()
	ctx := context.Background()
	host, shut := open(t, vfs.NewMem(), smallHot)
	defer shut()
	repo := enginetest.Create(t, host, "r")
	first, err := upload(repo, acme, main, change{path: "large", content: string(noise(1, 64<<10))})
	must(t, err)
	before := vfs.NewMem()
	dest, shutDest := enginetest.OpenBackups(t, before)
	_, err = host.Backup(ctx, dest, backup.Options{})
	must(t, err)
	shutDest()
	second, err := upload(repo, acme, main, change{path: "large", content: string(noise(2, 64<<10))})
	must(t, err)

	fault := errors.New("injected fault")
	failures := 0
	step := int64(1)
	if !strings.HasSuffix(t.Name(), "/checkpoint") {
		step = 3 // there are three times as many
	}
	for at := int64(1); ; at += step {
		fs := vfs.NewMem()
		if _, err := vfs.Clone(before, fs, "backups", "backups"); err != nil {
			t.Fatal(err)
		}
		var left atomic.Int64
		left.Store(at)
		injected := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
				return fault
			}
			return nil
		})
		faulty, err := file.OpenDir("backups", file.DirOptions{FS: errorfs.Wrap(fs, injected)})
		if err == nil {
			_, err = host.Backup(ctx, faulty, backup.Options{})
			must(t, faulty.Close())
		}
		if err != nil {
			failures++
			if !strings.Contains(err.Error(), fault.Error()) { // Pebble does not wrap it always
				t.Fatalf("fault %d: %v", at, err)
			}
		}
		want := first.New
		if err == nil {
			want = second.New
		}
		if at%7 == 1 { // opening a store takes a while
			restored := vfs.NewMem()
			from, shutFrom := enginetest.OpenBackups(t, fs)
			if err := enginetest.RestoreBackup(t, restored, from, backup.Options{}); err != nil {
				t.Fatalf("fault %d: %v", at, err)
			}
			copied, shutCopy := openRestored(t, restored)
			afterwards(t, copied, map[string]object.ID{"main": want})
			shutCopy()
			shutFrom()
		}
		again, shutAgain := enginetest.OpenBackups(t, fs)
		if _, err := host.Backup(ctx, again, backup.Options{}); err != nil {
			t.Fatalf("the backup after fault %d: %v", at, err)
		}
		enginetest.CheckBackups(t, again)
		shutAgain()
		if left.Load() > 0 { // there are not as many
			break
		}
	}
	if failures < 10 {
		t.Errorf("only %d backups failed", failures)
	}
}

// TestBackupCancelled ends a backup in the middle.
func TestBackupCancelled(t *testing.T) {
	t.Parallel()
	eachSource(t, testBackupCancelled)
}

func testBackupCancelled(t *testing.T, open opener) {
	t.Helper()
	host, shut := open(t, vfs.NewMem(), engine.Config{})
	defer shut()
	enginetest.Create(t, host, "r")
	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	defer shutDest()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := host.Backup(ctx, dest, backup.Options{Progress: func(backup.Report) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a backup that was cancelled: %v", err)
	}
	if err := enginetest.RestoreBackup(t, vfs.NewMem(), dest, backup.Options{}); !errors.Is(err, backup.ErrNone) {
		t.Errorf("restoring what was never complete: %v", err)
	}
}
