package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
)

// fast is a rate that does not slow a test down.
var fast = engine.ScrubOptions{BytesPerSecond: 1 << 40, Passes: 1}

// TestScrubFindsFlippedBits flips a bit in many places of every segment and auxiliary file, one at
// a time: each is found in one pass.
func TestScrubFindsFlippedBits(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it damages files in their folder")
	ctx := context.Background()
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, smallHot)
	for i := range 2 {
		repo := enginetest.Create(t, host, fmt.Sprintf("repo%d", i))
		for j := range 3 {
			var changes []change
			for k := range 12 {
				changes = append(changes, change{path: fmt.Sprintf("%d/%d", j, k), content: string(noise(byte(16*j+k), 3000))})
			}
			if _, err := upload(repo, acme, main, changes...); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, host.Scrub(ctx, fast))
	if stats := host.ScrubStats(); stats.ProblemCount != 0 || stats.PassCount != 1 || stats.Bytes == 0 {
		t.Fatalf("a sound host: %+v", stats)
	}
	shut()
	files := 0
	folders, err := fs.List("files/settled")
	must(t, err)
	for _, folder := range folders {
		names, err := fs.List(path.Join("files/settled", folder))
		must(t, err)
		for _, base := range names {
			files++
			name := path.Join("files/settled", folder, base)
			end := size(t, fs, name)
			for at := int64(0); at < end; at += max(end/6, 1) {
				copied := vfs.NewMem()
				for _, dir := range []string{"files", "keys"} {
					_, err := vfs.Clone(fs, copied, dir, dir)
					must(t, err)
				}
				flipAt(t, copied, name, at)
				host, shut := enginetest.OpenOn(t, copied, smallHot)
				must(t, host.Scrub(ctx, fast))
				if host.ScrubStats().ProblemCount == 0 {
					t.Errorf("%s: a bit that flipped at %d of %d was not found", base, at, end)
				}
				shut()
			}
		}
	}
	if files < 2 {
		t.Errorf("only %d files to damage", files)
	}
}

// flipAt changes one bit.
func flipAt(t *testing.T, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, at)
	must(t, err)
	one[0] ^= 0x10
	_, err = f.WriteAt(one, at)
	must(t, errors.Join(err, f.Close()))
}

// TestScrubStops ends a scrubber that waits for its rate.
func TestScrubStops(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	if _, err := upload(enginetest.Create(t, host, "r"), acme, main, change{path: "f", content: "content"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := host.Scrub(ctx, engine.ScrubOptions{BytesPerSecond: 1}) // a byte a second: it would take minutes
		ended.Store(true)
		done <- err
	}()
	for ; host.ScrubStats().Bytes == 0; runtime.Gosched() {
		if ended.Load() {
			t.Fatal("it ended before it was told to")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
