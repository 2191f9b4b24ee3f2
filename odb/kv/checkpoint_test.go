package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

// restore makes a store of a checkpoint in the folder "copy".
func restore(t *testing.T, fileSystem vfs.FS, c kv.Checkpoint) {
	t.Helper()
	r, err := kv.NewRestoration("copy", kv.PebbleOptions{FS: fileSystem, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files() {
		content, err := c.Open(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Write(f.Name, content), content.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
}

// count returns how many keys r holds and fails the test unless they are 0, 1, 2 and so on.
func count(t *testing.T, r kv.Reader) uint64 {
	t.Helper()
	var n uint64
	for pair, err := range r.Scan(context.Background(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint64(pair.Key); got != n {
			t.Fatalf("key %d follows %d", got, n)
		}
		n++
	}
	return n
}

// TestCheckpoint takes checkpoints while a writer adds keys, large enough that logs and manifests
// are rotated, and then cuts the power: the checkpoint must not be torn, and the store must not use
// the checkpoint's files.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fileSystem := vfs.NewCrashableMem()
	store := openMem(t, fileSystem)
	value := make([]byte, 20<<10)
	random := rand.NewChaCha8([32]byte{})
	put := func(n uint64) error {
		_, _ = random.Read(value)
		b := kv.NewBatch()
		b.Put(binary.BigEndian.AppendUint64(nil, n), value)
		c, err := store.Apply(ctx, b)
		if err != nil {
			return err
		}
		return c.Wait(ctx)
	}
	written, stop, ended := make(chan uint64), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(written)
		for n := uint64(0); ; n++ {
			if err := put(n); err != nil {
				ended <- err
				return
			}
			select {
			case written <- n + 1:
			case <-stop:
				ended <- nil
				return
			}
		}
	}()
	var acknowledged uint64
	for round := range 4 {
		for range 100 {
			acknowledged = <-written
		}
		done := make(chan error, 1)
		var c kv.Checkpoint
		go func() {
			var err error
			c, err = store.Checkpoint(ctx)
			done <- err
		}()
		least := acknowledged
		for made := false; !made; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				made = true
			case acknowledged = <-written:
			}
		}
		for _, f := range c.Files() {
			if strings.HasSuffix(f.Name, ".log") || f.Name == "SYNCED" { // they speak of the store's own files
				t.Errorf("round %d: %s is in the checkpoint", round, f.Name)
			}
		}
		got := count(t, c)
		if got < least || got > acknowledged+1 {
			t.Errorf("round %d: %d keys in the checkpoint, %d to %d expected", round, got, least, acknowledged+1)
		}
		target := vfs.NewMem()
		restore(t, target, c)
		copied, err := kv.OpenPebble("copy", kv.PebbleOptions{FS: target, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if restored := count(t, copied); restored != got {
			t.Errorf("round %d: %d keys were restored of %d", round, restored, got)
		}
		if err := errors.Join(copied.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	left, err := store.Checkpoint(ctx) // that a crash leaves
	if err != nil || left == nil {
		t.Fatal(err)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	crashed := fileSystem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
	if err := errors.Join(left.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	again := openMem(t, crashed)
	if got := count(t, again); got < acknowledged {
		t.Errorf("%d keys after a crash, %d were acknowledged", got, acknowledged)
	}
	names, err := crashed.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "checkpoint-") {
			t.Errorf("%s was left", name)
		}
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckpointClosed(t *testing.T) {
	t.Parallel()
	store := openMem(t, vfs.NewCrashableMem())
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Checkpoint(context.Background()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("checkpoint of a closed store: %v", err)
	}
}

func TestRestorationRefuses(t *testing.T) {
	t.Parallel()
	fileSystem := vfs.NewMem()
	options := kv.PebbleOptions{FS: fileSystem, Logger: quiet()}
	r, err := kv.NewRestoration("copy", options)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "LOCK", "a\x00", strings.Repeat("a", 101)} {
		if err := r.Write(name, bytes.NewReader(nil)); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("a file named %q: %v", name, err)
		}
	}
	if _, err := kv.NewRestoration("copy", options); !errors.Is(err, fs.ErrExist) {
		t.Errorf("into a folder that exists: %v", err)
	}
	cut := fmt.Errorf("cut: %w", io.ErrUnexpectedEOF)
	if err := r.Write("000001.sst", io.MultiReader(strings.NewReader("half"), errorReader{cut})); !errors.Is(err, cut) {
		t.Errorf("a content that breaks off: %v", err)
	}
}

// errorReader fails.
type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// TestCheckpointFaults checks that a checkpoint which cannot be written fails and takes nothing
// else along.
func TestCheckpointFaults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for at := int64(1); ; at++ {
		fileSystem := vfs.NewCrashableMem()
		left := at
		injected := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, "checkpoint-") && (isWrite(op.Kind) || isSync(op.Kind)) {
				if left--; left == 0 {
					return errFault
				}
			}
			return nil
		})
		store, err := kv.OpenPebble("db", kv.PebbleOptions{
			FS: errorfs.Wrap(fileSystem, injected), Logger: quiet(), OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		b := kv.NewBatch()
		b.Put(make([]byte, 8), nil)
		for range 2 {
			c, err := store.Apply(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			checkpoint, err := store.Checkpoint(ctx)
			if err != nil && !errors.Is(err, errFault) {
				t.Fatalf("fault %d: %v", at, err)
			}
			if err == nil {
				if got := count(t, checkpoint); got != 1 {
					t.Errorf("fault %d: %d keys", at, got)
				}
				if err := checkpoint.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if left > 0 { // there are not as many
			return
		}
	}
}

// TestCheckpointCheck finds every bit that is changed in a table of a checkpoint.
func TestCheckpointCheck(t *testing.T) {
	t.Parallel()
	fileSystem := vfs.NewMem()
	store, err := kv.OpenPebble("db", kv.PebbleOptions{FS: fileSystem, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	fillForDamage(t, store)
	c, err := store.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.New(rand.NewPCG(7, 8))
	tables := 0
	for _, f := range c.Files() {
		if err := c.Check(f.Name); err != nil {
			t.Fatalf("%s as it is: %v", f.Name, err)
		}
		if !strings.HasSuffix(f.Name, ".sst") {
			continue
		}
		tables++
		folder := "db/checkpoint-1/"
		for range 20 {
			at, bit := random.Int64N(f.Size), byte(1)<<random.IntN(8)
			flip(t, fileSystem, folder+f.Name, at, bit)
			if err := c.Check(f.Name); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("%s with another bit at %d of %d: %v", f.Name, at, f.Size, err)
			}
			flip(t, fileSystem, folder+f.Name, at, bit)
		}
	}
	if tables == 0 {
		t.Error("no tables")
	}
}
