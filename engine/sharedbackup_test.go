package engine_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/cluster"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// sharedBackup is two hosts over stores that they share: one makes a backup, and the other one
// replaces the files meanwhile.
type sharedBackup struct {
	keys           kv.Store
	away           *odbtest.Away // the keys of the copier
	keeper, copier *engine.Host
	dest           *file.Dir
	tip            object.ID
	count          int
}

// leavingKeys make exports, and can be away.
type leavingKeys struct {
	*odbtest.Away
	exporter kv.Exporter
}

// Export implements kv.Exporter.
func (k *leavingKeys) Export(ctx context.Context) (kv.Export, error) { return k.exporter.Export(ctx) }

func newSharedBackup(t *testing.T) *sharedBackup {
	t.Helper()
	keys, files, shut := exporting(t, vfs.NewMem())
	t.Cleanup(shut)
	open := func(keys kv.Store) *engine.Host {
		config := smallHot
		config.Sharing = &engine.Sharing{URL: "http://server", Beat: time.Millisecond, Patience: time.Hour}
		host := enginetest.OpenOver(t, keys, files, config)
		t.Cleanup(func() { must(t, host.Close(context.Background())) }) //nolint:usetesting // t.Context has ended
		return host
	}
	away := odbtest.NewAway(keys)
	s := &sharedBackup{
		keys: keys, away: away, keeper: open(keys), copier: open(&leavingKeys{away, keys.(kv.Exporter)}),
	}
	enginetest.Create(t, s.keeper, "r")
	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	t.Cleanup(shutDest)
	s.dest = dest
	for range 4 {
		s.write(t)
	}
	return s
}

// write adds a segment.
func (s *sharedBackup) write(t *testing.T) {
	t.Helper()
	repo, err := s.keeper.Repository(t.Context(), enginetest.Org, "r")
	must(t, err)
	s.count++
	done, err := upload(repo, acme, main,
		change{path: fmt.Sprint("large", s.count%3), content: string(noise(byte(s.count), 200<<10))})
	must(t, err)
	s.tip = done.New
}

// maintain replaces all segments by others, and sweeps, as the other server does without any grace.
func (s *sharedBackup) maintain(t *testing.T) {
	t.Helper()
	for done, err := range s.keeper.Maintain(t.Context(), engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1}) {
		must(t, errors.Join(err, done.Err))
	}
}

// obsolete counts the files and layers that wait for their deletion.
func (s *sharedBackup) obsolete(t *testing.T) (count int) {
	t.Helper()
	for _, err := range s.keys.Scan(t.Context(), kv.ScanOptions{Start: []byte{'d'}, End: []byte{'e'}}) {
		must(t, err)
		count++
	}
	return count
}

// TestBackupHoldsFilesOfServers has the other server write, replace the files and sweep after each
// step of a backup: the backup is whole, and of the instant before. When it has ended, the files
// go.
func TestBackupHoldsFilesOfServers(t *testing.T) {
	t.Parallel()
	s := newSharedBackup(t)
	instant, kept, steps := s.tip, 0, 0
	report, err := s.copier.Backup(t.Context(), s.dest, backup.Options{Progress: func(r backup.Report) {
		if r.RowCount == 0 {
			t.Errorf("told of %+v before any row", r)
		}
		if steps++; steps > 4 {
			return
		}
		s.write(t)
		for range 2 {
			s.maintain(t)
			time.Sleep(2 * time.Millisecond) // some beats
		}
		kept = max(kept, s.obsolete(t))
	}})
	must(t, err)
	if report.LostCount != 0 || kept < 4 || steps < 5 {
		t.Errorf("%+v after %d steps, %d entries were kept", report, steps, kept)
	}
	restored := vfs.NewMem()
	must(t, enginetest.RestoreBackup(t, restored, s.dest, backup.Options{}))
	host, shut := openRestored(t, restored)
	defer shut()
	afterwards(t, host, map[string]object.ID{"main": instant})
	eventually(t, "what is held no more is removed", func() bool {
		s.maintain(t)
		return s.obsolete(t) == 0
	})
}

// TestBackupOfARemovedServer has the others remove the server that makes a backup, as one that is
// silent, and delete what it still has to copy: the backup fails, and those from before stay. The
// next one is whole.
func TestBackupOfARemovedServer(t *testing.T) {
	t.Parallel()
	s := newSharedBackup(t)
	first, err := s.copier.Backup(t.Context(), s.dest, backup.Options{})
	must(t, err)
	before := s.tip
	s.write(t)
	s.write(t)
	for _, deleted := range []bool{true, false} { // and if nothing was deleted by chance
		var once sync.Once
		_, err = s.copier.Backup(t.Context(), s.dest, backup.Options{Progress: func(backup.Report) {
			once.Do(func() { s.remove(t, deleted) })
		}})
		if !errors.Is(err, odb.ErrNotHeld) {
			t.Errorf("the backup of a server that was removed: %v", err)
		}
	}
	if all := enginetest.CheckBackups(t, s.dest); len(all) != 1 || all[0].Number != first.Number {
		t.Errorf("%+v", all)
	}
	for number, tip := range map[uint64]object.ID{1: before, 2: s.tip} {
		if number == 2 {
			report, err := s.copier.Backup(t.Context(), s.dest, backup.Options{})
			if err != nil || report.LostCount != 0 {
				t.Fatalf("the next backup: %+v, %v", report, err)
			}
		}
		restored := vfs.NewMem()
		must(t, enginetest.RestoreBackup(t, restored, s.dest, backup.Options{Number: number}))
		host, shut := openRestored(t, restored)
		afterwards(t, host, map[string]object.ID{"main": tip})
		shut()
	}
}

// remove removes the row of the server that makes the backup, which is silent, as another server
// does, and may have that server delete what nobody holds then. It returns when the one that makes
// the backup has joined again.
func (s *sharedBackup) remove(t *testing.T, deleted bool) {
	t.Helper()
	s.away.Leave(0)
	was := s.copier.Member().ID()
	id, err := hex.DecodeString(was)
	must(t, err)
	b := kv.NewBatch()
	b.Delete(append([]byte{cluster.Table, 's'}, id...))
	_, err = s.keys.Apply(t.Context(), b)
	must(t, err)
	if deleted {
		eventually(t, "the files go", func() bool {
			s.maintain(t)
			return s.obsolete(t) == 0
		})
	}
	s.away.Return()
	eventually(t, "the server joins again", func() bool { return s.copier.Member().ID() != was })
}

// awayStores are stores whose export, or bucket, goes away.
type awayStores struct {
	kv.Store
	files file.Store

	mu       sync.Mutex // guards the fields below
	rowsLeft int        // of exports
	last     string     // file of the bucket that is there; "" for all
	gone     chan struct{}
	opened   []string // in the bucket
}

// plenty is more than a test reads.
const plenty = 1 << 30

// leave has the stores go away after so many rows, and after the file of that name if it is not
// empty. The bucket fails when gone is closed.
func (a *awayStores) leave(rows int, last string) (gone chan<- struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rowsLeft, a.last, a.gone = rows, last, make(chan struct{})
	return a.gone
}

// takeOpened returns the files that were opened in the bucket since the last call.
func (a *awayStores) takeOpened() (opened []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	opened, a.opened = a.opened, nil
	return opened
}

// Export implements kv.Exporter.
func (a *awayStores) Export(ctx context.Context) (kv.Export, error) {
	export, err := a.Store.(kv.Exporter).Export(ctx)
	return &awayExport{export, a}, err
}

type awayExport struct {
	kv.Export
	stores *awayStores
}

// Scan implements kv.Reader.
func (e *awayExport) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		for row, err := range e.Export.Scan(ctx, options) {
			e.stores.mu.Lock()
			e.stores.rowsLeft--
			if err == nil && e.stores.rowsLeft < 0 {
				row, err = kv.Pair{}, kv.ErrUnavailable
			}
			e.stores.mu.Unlock()
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// cachedBucket is the files of a host, bucket those behind the cache.
type (
	cachedBucket struct {
		file.Store
		stores *awayStores
	}
	bucket struct {
		file.Store
		stores *awayStores
	}
)

// Remote implements file.Caching.
func (c *cachedBucket) Remote() file.Store {
	return &bucket{c.Store.(file.Caching).Remote(), c.stores}
}

// Open implements file.Store.
func (b *bucket) Open(ctx context.Context, name string) (file.File, error) {
	b.stores.mu.Lock()
	away, gone := b.stores.last != "" && name > b.stores.last, b.stores.gone
	b.stores.opened = append(b.stores.opened, name)
	b.stores.mu.Unlock()
	if away {
		<-gone
		return nil, file.ErrUnavailable
	}
	return b.Store.Open(ctx, name)
}

// TestBackupOfStoresAway loses the export, and the bucket, in the middle of a backup: it fails and
// calls nothing damaged, and what has been copied is not copied again.
func TestBackupOfStoresAway(t *testing.T) {
	t.Parallel()
	keys, files, shut := exporting(t, vfs.NewMem())
	t.Cleanup(shut)
	stores := &awayStores{Store: keys, files: files, rowsLeft: plenty}
	host := enginetest.OpenOver(t, stores, &cachedBucket{files, stores}, smallHot)
	t.Cleanup(func() { must(t, host.Close(context.Background())) }) //nolint:usetesting // t.Context has ended
	dest, shutDest := enginetest.OpenBackups(t, vfs.NewMem())
	t.Cleanup(shutDest)
	repo := enginetest.Create(t, host, "r")
	var tip object.ID
	for seed := range 7 {
		done, err := upload(repo, acme, main, change{path: fmt.Sprint(seed), content: string(noise(byte(seed), 200<<10))})
		must(t, err)
		tip = done.New
	}
	take := func() (backup.Report, error) { return host.Backup(t.Context(), dest, backup.Options{}) }
	for rows := range 3 {
		stores.leave(rows, "")
		if _, err := take(); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("without the keys after %d rows: %v", rows, err)
		}
	}
	var stored []string
	for info, err := range files.List(t.Context()) {
		must(t, err)
		stored = append(stored, info.Name)
	}
	slices.Sort(stored)
	const there = 4
	gone := stores.leave(plenty, stored[there-1])
	_, err := host.Backup(t.Context(), dest, backup.Options{Progress: func(r backup.Report) {
		if r.FileCount == there {
			close(gone)
		}
	}})
	if !errors.Is(err, file.ErrUnavailable) || errors.Is(err, backup.ErrStoreDamaged) {
		t.Errorf("without the files: %v", err)
	}
	if all, err := backup.List(t.Context(), dest); err != nil || len(all) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
	stores.leave(plenty, "")
	stores.takeOpened()
	first, err := take()
	must(t, err)
	if opened := len(stores.takeOpened()); opened != len(stored)-there {
		t.Errorf("%d files were opened, and the folder had %d of %d", opened, there, len(stored))
	}
	restored := vfs.NewMem()
	must(t, enginetest.RestoreBackup(t, restored, dest, backup.Options{}))
	copied, shutCopy := openRestored(t, restored)
	defer shutCopy()
	afterwards(t, copied, map[string]object.ID{"main": tip})
	second, err := take()
	if opened := stores.takeOpened(); err != nil || second.FileCount != first.FileCount || len(opened) > 0 {
		t.Errorf("%+v, %v: %q were opened, and the folder has them", second, err, opened)
	}
}

// TestBackupAfterACrash cuts the power of the folder's disk at each step of a backup: the backup
// before stays, the next one is whole, and no scratch folder is left.
func TestBackupAfterACrash(t *testing.T) {
	t.Parallel()
	s := newSharedBackup(t)
	disk := vfs.NewCrashableMem()
	dest, shutDest := enginetest.OpenBackups(t, disk)
	_, err := s.copier.Backup(t.Context(), dest, backup.Options{})
	must(t, err)
	before := s.tip
	s.write(t)
	s.write(t)
	var after []*vfs.MemFS
	_, err = s.copier.Backup(t.Context(), dest, backup.Options{Progress: func(backup.Report) {
		random := rand.New(rand.NewPCG(uint64(len(after)), 1))
		after = append(after, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 60, RNG: random}))
	}})
	must(t, err)
	shutDest()
	if len(after) < 5 {
		t.Errorf("only %d steps", len(after))
	}
	for step, fs := range after {
		dest, shutDest := enginetest.OpenBackups(t, fs)
		if left, err := fs.List("backups/incoming/local"); err != nil || slices.ContainsFunc(left, func(name string) bool {
			return strings.HasPrefix(name, "~")
		}) {
			t.Errorf("step %d: %q is left, %v", step, left, err)
		}
		if all := enginetest.CheckBackups(t, dest); len(all) != 1 {
			t.Errorf("step %d: %+v", step, all)
		}
		report, err := s.copier.Backup(t.Context(), dest, backup.Options{})
		if err != nil || report.Number != 2 {
			t.Errorf("step %d: %+v, %v", step, report, err)
		}
		enginetest.CheckBackups(t, dest)
		for number, tip := range map[uint64]object.ID{1: before, 2: s.tip} {
			if step%5 > 0 { // opening a store takes a while
				continue
			}
			restored := vfs.NewMem()
			must(t, enginetest.RestoreBackup(t, restored, dest, backup.Options{Number: number}))
			host, shut := openRestored(t, restored)
			afterwards(t, host, map[string]object.ID{"main": tip})
			shut()
		}
		shutDest()
	}
}
