package engine_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/maintain"
)

// TestRoundOverRestarts opens a store again and again, by a clock of the test: a round comes a day
// after the last one, whenever that was.
func TestRoundOverRestarts(t *testing.T) {
	t.Parallel()
	fs, now := vfs.NewMem(), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	rounds := func(want uint64) {
		t.Helper()
		at := now
		host, shut := enginetest.OpenOn(t, fs, engine.Config{
			Background: true, Now: func() time.Time { return at }, Maintenance: maintain.Settings{RoundInterval: 24 * time.Hour},
		})
		defer shut()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for tries := 0; host.MaintenanceStats().Rounds < want && tries < 20_000; tries++ {
			<-tick.C
		}
		if got := host.MaintenanceStats().Rounds; got != want {
			t.Errorf("at %v: %d rounds, want %d", at, got, want)
		}
	}
	rounds(0)
	for range 23 {
		now = now.Add(time.Hour)
		rounds(0)
	}
	now = now.Add(2 * time.Hour)
	rounds(1)
	now = now.Add(23 * time.Hour)
	rounds(0)
	now = now.Add(time.Hour)
	rounds(1)
}
