package engine_test

import (
	"context"
	"testing"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
)

// A host knows when it last completed a backup and a check of everything.
func TestCareTimes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	host := enginetest.Open(t)
	enginetest.Create(t, host, "r")
	if backup, check := host.LastBackup(), host.LastCheck(); !backup.IsZero() || !check.IsZero() {
		t.Errorf("before: %v, %v", backup, check)
	}
	dest, err := file.OpenDir(t.TempDir(), file.DirOptions{})
	must(t, err)
	defer func() { must(t, dest.Close()) }()
	_, err = host.Backup(ctx, dest, backup.Options{})
	must(t, err)
	if host.LastBackup().IsZero() || !host.LastCheck().IsZero() {
		t.Errorf("after a backup: %v, %v", host.LastBackup(), host.LastCheck())
	}
	must(t, host.Scrub(ctx, fast))
	scrubbed := host.LastCheck()
	if scrubbed.IsZero() {
		t.Error("scrubbing is no check")
	}
	for _, err := range host.Fsck(ctx, engine.FsckOptions{}) {
		must(t, err)
	}
	if !host.LastCheck().After(scrubbed) {
		t.Errorf("fsck: %v, and before %v", host.LastCheck(), scrubbed)
	}
}
