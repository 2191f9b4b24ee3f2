package odb_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestHoldAcrossServers follows a hold as other servers see it: as a view of its epoch, until it is
// released. When they have gone on without this server, and only then, the hold fails for good.
func TestHoldAcrossServers(t *testing.T) {
	t.Parallel()
	epochs := odb.NewEpochs()
	w := newWorld(t, odb.Options{Epochs: epochs})
	later := time.Now().Add(time.Hour)
	epochs.Enter(5, later)
	held := w.Store.HoldFiles()
	epochs.Advance(7, later)
	if oldest := epochs.Oldest(); oldest != 5 {
		t.Errorf("the oldest epoch is %d while one of 5 is held", oldest)
	}
	w.Must(held.Check(t.Context()))

	epochs.Advance(8, time.Now().Add(-time.Second)) // nobody knows
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := held.Check(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a hold in doubt: %v", err)
	}
	epochs.Advance(9, later)
	w.Must(held.Check(t.Context()))

	epochs.Lapse()
	checked := make(chan error, 1)
	go func() { checked <- held.Check(t.Context()) }() // waits for what comes
	epochs.Enter(10, later)
	for range 2 {
		if err := <-checked; !errors.Is(err, odb.ErrNotHeld) {
			t.Errorf("a hold that the others have not waited for: %v", err)
		}
		checked <- held.Check(t.Context())
	}
	again := w.Store.HoldFiles()
	held.Release()
	held.Release()
	if oldest := epochs.Oldest(); oldest != 10 {
		t.Errorf("the oldest epoch is %d, want that of the second hold", oldest)
	}
	w.Must(again.Check(t.Context()))
	again.Release()
	epochs.Advance(11, later)
	if oldest := epochs.Oldest(); oldest != 11 {
		t.Errorf("the oldest epoch is %d, and nothing is held", oldest)
	}
}

// TestSweepNotesWhatNobodyUses has a pool leave layers that another one still uses, and the other
// one leave them when the instant of the first has passed: a sweep waits for a later instant, since
// what reads the other pool may have begun in between.
func TestSweepNotesWhatNobodyUses(t *testing.T) {
	t.Parallel()
	var gates []*gate
	w := newWorld(t, odb.Options{Horizon: func(context.Context) (odb.Horizon, error) {
		gates = append(gates, new(gate))
		return gates[len(gates)-1], nil
	}})
	random := rand.New(rand.NewPCG(1, 2))
	fill(w, random)
	d := w.Draft()
	blob := d.Write(object.TypeBlob, odbtest.Text(random, 500), object.ZeroID)
	tree := d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("a", blob)), object.ZeroID)
	tip := d.Write(object.TypeCommit, odbtest.CommitOf(tree, 1), object.ZeroID)
	d.Commit()
	fork := w.forkOf(tip)
	fill(w, rand.New(rand.NewPCG(3, 4))) // what the fork does not have
	w.Must(w.Store.Freeze(t.Context(), w.Pool))
	sweep := func() odb.Swept {
		t.Helper()
		swept, err := w.Store.Sweep(t.Context(), 0)
		w.Must(err)
		return swept
	}
	w.Must(w.Store.LeaveAll(t.Context(), w.Pool))
	waiting := sweep()
	if waiting.WaitingCount == 0 || len(gates) != 1 {
		t.Fatalf("%+v at %d instants", waiting, len(gates))
	}
	held := w.FileCount()
	w.Must(w.Store.LeaveAll(t.Context(), fork))
	gates[0].passed = true
	swept := sweep()
	if swept.LayerCount+swept.FileCount != waiting.WaitingCount || swept.WaitingCount == 0 || len(gates) != 2 {
		t.Fatalf("%+v at %d instants, of %d entries", swept, len(gates), waiting.WaitingCount)
	}
	if left := w.FileCount(); left != held-swept.FileCount || swept.FileCount == held {
		t.Errorf("%d files of %d are left after %+v", left, held, swept)
	}
	gates[1].passed = true
	if sweep(); w.FileCount() != 0 {
		t.Errorf("%d files are left of what nobody uses", w.FileCount())
	}
}
