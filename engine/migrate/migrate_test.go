package migrate_test

import (
	"errors"
	"maps"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/identity"
	"packhorse/engine/migrate"
	"packhorse/odb/kv"
)

// TestThereAndBack moves a store to the stores of several servers and back, and writes at each of
// them.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	first, second, third := newStores(t), newStores(t), newStores(t)
	first.fill()
	var told int
	report, err := migrate.Run(t.Context(), first.end("first"), second.end("second"),
		migrate.Options{Progress: func(migrate.Report) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	wantMoved(first, second, report)
	if report.CopiedCount != report.FileCount || report.ChangedCount != report.RowCount || told == 0 {
		t.Errorf("the report is %+v, after %d others", report, told)
	}
	if report.FileCount < 3 {
		t.Errorf("only %d files were moved", report.FileCount)
	}
	second.host(sharing(), func(host *engine.Host) {
		second.wantFilled(host)
		second.commitFile(host, "a", "shared", []byte("by several servers"))
		second.commitFile(host, "fork", "shared", large(3))
		enginetest.Create(second, host, "new")
	})
	report, err = migrate.Run(t.Context(), second.end("second"), third.end("third"), migrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantMoved(second, third, report)
	third.host(engine.Config{}, func(host *engine.Host) {
		third.wantFilled(host)
		third.wantFile(host, "a", "shared", []byte("by several servers"))
		third.wantFile(host, "fork", "shared", large(3))
		third.commitFile(host, "new", "f", small)
		third.commitFile(host, "a", "shared", []byte("alone again"))
		third.wantWhole(host)
	})
	if _, err := migrate.Run(t.Context(), first.end("first"), newStores(t).end("fourth"), migrate.Options{}); err == nil {
		t.Error("a store that was left is moved once more")
	}
	before := third.everything(false)
	if _, err := migrate.Run(t.Context(), second.end("second"), third.end("third"), migrate.Options{}); err == nil {
		t.Error("a store is moved twice")
	}
	if !maps.Equal(before, third.everything(false)) {
		t.Error("the second time has changed the target")
	}
}

// TestMovedUnderAHost has a host that was frozen wake after its store was moved: it is not ready.
func TestMovedUnderAHost(t *testing.T) {
	t.Parallel()
	from, to := newStores(t), newStores(t)
	from.fill()
	from.host(engine.Config{}, func(host *engine.Host) {
		if err := host.Reach(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := migrate.Run(t.Context(), from.end("source"), to.end("target"), migrate.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := host.Reach(t.Context()); !errors.Is(err, identity.ErrMoved) || !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("the host is ready: %v", err)
		}
	})
}
