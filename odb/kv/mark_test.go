package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

const markPath = "db/SYNCED"

// newest returns the last file in the folder of a store whose name matches pattern.
func newest(t *testing.T, fs vfs.FS, pattern string) string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, name := range names {
		if ok, err := path.Match(pattern, name); err != nil {
			t.Fatal(err)
		} else if ok && name > last {
			last = name
		}
	}
	if last == "" {
		t.Fatalf("no %s among %q", pattern, names)
	}
	return "db/" + last
}

// rewrite gives a file another content, synced.
func rewrite(t *testing.T, fs vfs.FS, name string, content []byte) {
	t.Helper()
	file, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(append([]byte(nil), content...)); err != nil {
		t.Fatal(err)
	}
	folder, err := fs.OpenDir("db")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), file.Close(), folder.Sync(), folder.Close()); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	file, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, info.Size())
	if info.Size() > 0 {
		if _, err := file.ReadAt(content, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return content
}

// openDamaged opens a damaged store.
func openDamaged(fs vfs.FS) (*kv.Pebble, error) {
	return kv.OpenPebble("db", kv.PebbleOptions{FS: fs, MemoryBytes: 8 << 20, Logger: quiet()})
}

// TestLostEnd cuts the newest log or manifest of a closed store. The store refuses to open, and
// names the loss and the remedy; without the mark a log that ends early looks like one of a crash.
func TestLostEnd(t *testing.T) {
	t.Parallel()
	stops := map[string]func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS{
		"closed": func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS {
			t.Helper()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			return fs.CrashClone(vfs.CrashCloneCfg{})
		},
		"killed at rest": func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS {
			t.Helper()
			awaitTables(t, store)
			return fs.CrashClone(vfs.CrashCloneCfg{})
		},
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := vfs.NewCrashableMem()
			store := openMem(t, disk)
			fillForDamage(t, store.Pebble)
			stopped := stop(t, disk, store.Pebble)
			t.Cleanup(func() { _ = store.Close() })
			for _, pattern := range []string{"*.log", "MANIFEST-*"} {
				name := newest(t, stopped, pattern)
				content := readFile(t, stopped, name)
				if pattern == "*.log" { // behind its end there may be the rest of a former log in the same file
					content = content[:syncedIn(t, stopped, name)]
				}
				for _, lost := range []int{1, 10, 300, 2250, 40_000, len(content)} {
					if lost > len(content) {
						continue
					}
					cut := stopped.CrashClone(vfs.CrashCloneCfg{})
					rewrite(t, cut, name, content[:len(content)-lost])
					wantLoss(t, cut, name, int64(len(content)), int64(len(content)-lost))
				}
			}
			gone := stopped.CrashClone(vfs.CrashCloneCfg{})
			name := newest(t, gone, "*.log")
			remove(t, gone, name)
			wantLoss(t, gone, name, syncedIn(t, stopped, name), -1)
		})
	}
}

// syncedIn returns how much of a log was synced, from the error for an empty log.
func syncedIn(t *testing.T, fs *vfs.MemFS, name string) int64 {
	t.Helper()
	empty := fs.CrashClone(vfs.CrashCloneCfg{})
	rewrite(t, empty, name, nil)
	_, err := openDamaged(empty)
	var loss *kv.LossError
	if !errors.As(err, &loss) {
		t.Fatalf("an empty %s: %v", name, err)
	}
	return loss.Synced
}

// wantLoss checks that a store is refused, and that it opens without its mark if a log was cut.
func wantLoss(t *testing.T, fs *vfs.MemFS, name string, synced, left int64) {
	t.Helper()
	_, err := openDamaged(fs)
	var loss *kv.LossError
	if !errors.As(err, &loss) || !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("%s cut to %d of %d: %v", name, left, synced, err)
		return
	}
	if loss.Mark == "" && loss.Synced > loss.Intact { // a log says it, and knows less
		synced = loss.Synced
	}
	if loss.Path != name || loss.Synced != synced || loss.Intact > left || left < 0 && loss.Intact >= 0 {
		t.Errorf("%s cut to %d of %d: %+v", name, left, synced, loss)
	}
	for _, part := range []string{name, fmt.Sprint("synced to ", synced), "restore a backup"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q says nothing of %q", err, part)
		}
	}
	if loss.Mark == "" {
		return
	}
	if loss.Mark != markPath || !strings.Contains(err.Error(), "remove "+markPath) {
		t.Errorf("the mark is %s, and the error is %q", loss.Mark, err)
	}
	if !strings.HasSuffix(name, ".log") {
		return
	}
	remove(t, fs, markPath)
	store, err := openDamaged(fs)
	if err != nil {
		t.Errorf("%s cut to %d of %d, without the mark: %v", name, left, synced, err)
		return
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// TestLostEndBusy cuts the log of a store that was never idle.
func TestLostEndBusy(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	var syncs atomic.Int64
	counted := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Path == markPath && isSync(op.Kind) {
			syncs.Add(1)
		}
		return nil
	}))
	options := kv.PebbleOptions{FS: counted, RestAfter: time.Hour, MarkEvery: time.Nanosecond, Logger: quiet()}
	store, err := kv.OpenPebble("db", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	atOpen := syncs.Load()
	for i := range 3 { // the mark is written after the writer was released: the third finds that of the second
		if err := put(t, store, fmt.Sprint("key/", i), "value").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := syncs.Load() - atOpen; n != 0 {
		t.Errorf("a busy store has synced its mark %d times", n)
	}
	killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	name := newest(t, killed, "*.log")
	wantLoss(t, cutTo(t, killed, name, 20), name, syncedIn(t, killed, name), 20)
}

func cutTo(t *testing.T, fs *vfs.MemFS, name string, size int) *vfs.MemFS {
	t.Helper()
	cut := fs.CrashClone(vfs.CrashCloneCfg{})
	rewrite(t, cut, name, readFile(t, cut, name)[:size])
	return cut
}

// TestLostEverything removes everything of a store but its mark: the store must not be taken as a
// new one.
func TestLostEverything(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	if err := openMem(t, disk).Close(); err != nil {
		t.Fatal(err)
	}
	left := vfs.NewMem()
	if err := left.MkdirAll("db", 0o700); err != nil {
		t.Fatal(err)
	}
	rewrite(t, left, markPath, readFile(t, disk, markPath))
	if _, err := openDamaged(left); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// TestMarkUnreadable damages the mark itself, as a crash may, which loses nothing. Its intact part
// is used.
func TestMarkUnreadable(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	store := openMem(t, disk)
	for i := range 4 { // both slots
		if err := put(t, store.Pebble, fmt.Sprint("key/", i), strings.Repeat("x", 1000)).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		awaitRest(t, store.Pebble)
	}
	stopped := disk.CrashClone(vfs.CrashCloneCfg{})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	whole := readFile(t, stopped, markPath)
	const slot = 4096
	torn := func(at int) []byte {
		content := append([]byte(nil), whole...)
		content[at] ^= 1
		return content
	}
	contents := map[string]struct {
		mark    []byte
		ignored bool
	}{
		"whole":         {mark: whole},
		"empty":         {ignored: true},
		"zeros":         {mark: make([]byte, len(whole)), ignored: true},
		"cut":           {mark: whole[:20], ignored: true},
		"second slot":   {mark: append(make([]byte, slot), whole[slot:]...)},
		"first slot":    {mark: whole[:slot]},
		"its first bit": {mark: torn(0)},
		"another bit":   {mark: torn(slot + 15)},
	}
	for name, test := range contents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := stopped.CrashClone(vfs.CrashCloneCfg{})
			rewrite(t, fs, markPath, test.mark)
			log := newest(t, fs, "*.log")
			intact, err := openDamaged(fs.CrashClone(vfs.CrashCloneCfg{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := intact.Close(); err != nil {
				t.Error(err)
			}
			cut, err := openDamaged(cutTo(t, fs, log, 20))
			if ignored := err == nil; ignored != test.ignored {
				t.Errorf("a log without its end: %v", err)
			}
			if err == nil {
				err = cut.Close()
			}
			if err != nil && !errors.Is(err, kv.ErrCorrupt) {
				t.Error(err)
			}
		})
	}
}

// TestMarkFaults makes every operation on the mark fail: the store goes on.
func TestMarkFaults(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	faulty := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Path == markPath && (isSync(op.Kind) || isWrite(op.Kind)) {
			return errFault
		}
		return nil
	}))
	for range 2 {
		store, err := kv.OpenPebble("db", kv.PebbleOptions{
			FS: faulty, Logger: quiet(), RestAfter: time.Millisecond, MarkEvery: time.Nanosecond,
			OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := put(t, store, "key", "value").Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// crashes takes the power at operations on files.
type crashes struct {
	disk         *vfs.MemFS
	acknowledged atomic.Int64

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	every  int    // operation
	path   string // of which operations count; empty: all
	clones int    // what is left of each, by chance; one when 0
	count  int
	left   []crash
}

// crash is the state after a crash, and the writes acknowledged before.
type crash struct {
	fs           *vfs.MemFS
	acknowledged int64
	op           string
}

// MaybeError implements errorfs.Injector.
func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || !strings.Contains(op.Path, c.path) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count++; c.count%c.every == 0 {
		acknowledged := c.acknowledged.Load()
		name := fmt.Sprint(c.count, " ", op.Path)
		for range max(c.clones, 1) {
			cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[c.random.IntN(3)], RNG: c.random}
			c.left = append(c.left, crash{fs: c.disk.CrashClone(cfg), acknowledged: acknowledged, op: name})
		}
	}
	return nil
}

// String implements errorfs.Injector.
func (c *crashes) String() string { return "crashes" }

// TestMarkAfterCrashes cuts the power before every third change of a file, while a store is opened,
// filled, checkpointed, at rest and closed, twice: with all, some, or none of the unsynced data.
// The mark must never be ahead of the remaining data.
func TestMarkAfterCrashes(t *testing.T) {
	t.Parallel()
	every := 3
	if testing.Short() {
		every = 15
	}
	testCrashes(t, &crashes{every: every})
}

// TestManifestAfterCrashes cuts the power where the marker that names the manifest moves, and keeps
// many choices of the unsynced entries of the directory: the manifest that is named is there.
func TestManifestAfterCrashes(t *testing.T) {
	t.Parallel()
	clones := 40
	if testing.Short() {
		clones = 8
	}
	testCrashes(t, &crashes{every: 1, path: "marker.manifest", clones: clones})
}

func testCrashes(t *testing.T, c *crashes) {
	t.Helper()
	c.disk, c.random = vfs.NewCrashableMem(), rand.New(rand.NewPCG(3, 4))
	options := kv.PebbleOptions{
		FS: errorfs.Wrap(c.disk, c), MemoryBytes: 1 << 20, Logger: quiet(),
		RestAfter: time.Millisecond, MarkEvery: time.Nanosecond,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	}
	for life := range 2 {
		store, err := kv.OpenPebble("db", options)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			number := life*40 + i
			commit := put(t, store, fmt.Sprintf("key/%03d", number), strings.Repeat("v", 997*(i%50)))
			if err := commit.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.acknowledged.Store(int64(number + 1))
			if i%10 == 0 {
				awaitRest(t, store)
			}
		}
		checkpoint, err := store.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(checkpoint.Close(), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d crashes", len(c.left))
	for _, crash := range c.left {
		store, err := openDamaged(crash.fs)
		if err != nil {
			t.Errorf("before operation %s: %v", crash.op, err)
			continue
		}
		for number := range crash.acknowledged {
			if _, err := store.Get(context.Background(), fmt.Appendf(nil, "key/%03d", number)); err != nil {
				t.Errorf("before operation %s: key %d of %d: %v", crash.op, number, crash.acknowledged, err)
				break
			}
		}
		if err := store.Close(); err != nil {
			t.Errorf("before operation %s: close: %v", crash.op, err)
		}
	}
}
