package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/maintain"
	"packhorse/odb/space"
)

// roomFor opens a watch over a disk in memory, and returns what sets its free space to so many
// bytes above the least.
func roomFor(t *testing.T, fs *vfs.MemFS) (*space.Watch, func(size uint64)) {
	t.Helper()
	const least = 1 << 30
	free := func(size uint64) {
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: least + size, TotalBytes: diskBytes})
	}
	free(least)
	watch, err := space.Open("", space.Options{FS: fs, MinBytes: least, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	return watch, free
}

// TestMaintainNeedsRoom checks that maintenance gives up before it writes when the output would not
// fit.
func TestMaintainNeedsRoom(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	watch, free := roomFor(t, fs)
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Space: watch})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	seedHistory(t, repo, 10)
	maintained := func() (last engine.Maintained) {
		t.Helper()
		for done, err := range host.Maintain(t.Context(), none) {
			if err != nil {
				t.Fatal(err)
			}
			last = done
		}
		return last
	}
	free(1000)
	if done := maintained(); !errors.Is(done.Err, space.ErrNoRoom) || done.Compacted.ObjectCount > 0 {
		t.Errorf("%+v", done)
	}
	if _, err := upload(repo, acme, main, change{path: "small", content: "fits"}); err != nil {
		t.Errorf("a write that fits: %v", err)
	}
	free(1 << 30)
	if done := maintained(); done.Err != nil || done.Compacted.ObjectCount == 0 {
		t.Errorf("%+v", done)
	}
	fsckClean(t, host)
}

// TestMaintainWaitsForRoom checks that background maintenance is postponed, and resumes by itself
// when there is room.
func TestMaintainWaitsForRoom(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	watch, free := roomFor(t, fs)
	host, shut := enginetest.OpenOn(t, fs, engine.Config{
		Space: watch, Background: true,
		Maintenance: maintain.Settings{HotCount: 20, Pause: 0.01, SweepInterval: time.Millisecond, ReaderGrace: -1},
	})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	free(1000)
	for i := 0; host.MaintenanceStats().Postponed == 0; i++ {
		if _, err := upload(repo, acme, main, change{path: fmt.Sprint(i % 10), content: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if stats := host.MaintenanceStats(); stats.Compactions > 0 || stats.Failures > 0 {
		t.Errorf("without room: %+v", stats)
	}
	free(1 << 30)
	for range time.Tick(time.Millisecond) {
		if host.MaintenanceStats().Compactions > 0 {
			break
		}
	}
	fsckClean(t, host)
}
