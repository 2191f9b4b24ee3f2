package odb_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"packhorse/odb"
)

// gate is an instant that has passed when it is told so.
type gate struct{ passed bool }

func (g *gate) Passed(context.Context) (bool, error) { return g.passed, nil }

// TestSweepWaitsForOtherServers deletes what a sweep has seen before an instant once all views of
// other servers began after it, and what came later after a later instant. No clock decides.
func TestSweepWaitsForOtherServers(t *testing.T) {
	t.Parallel()
	var gates []*gate
	broken := errors.New("the store is away")
	w := newWorld(t, odb.Options{Horizon: func(ctx context.Context) (odb.Horizon, error) {
		if ctx.Value(broken) != nil {
			return nil, broken
		}
		gates = append(gates, new(gate))
		return gates[len(gates)-1], nil
	}})
	random := rand.New(rand.NewPCG(1, 2))
	leave := func() {
		fill(w, random)
		w.Must(w.Store.Freeze(t.Context(), w.Pool))
		w.Must(w.Store.LeaveAll(t.Context(), w.Pool))
	}
	sweep := func(want odb.Swept, instants int) {
		t.Helper()
		if got, err := w.Store.Sweep(t.Context(), 0); err != nil || got != want || len(gates) != instants {
			t.Fatalf("%+v at %d instants, %v, want %+v at %d", got, len(gates), err, want, instants)
		}
	}
	sweep(odb.Swept{}, 0)
	leave()
	if _, err := w.Store.Sweep(context.WithValue(t.Context(), broken, true), 0); !errors.Is(err, broken) {
		t.Fatalf("the instant is not known: %v", err)
	}
	sweep(odb.Swept{WaitingCount: 2}, 1) // a hot layer and a segment
	leave()
	sweep(odb.Swept{WaitingCount: 2}, 1)
	gates[0].passed = true
	sweep(odb.Swept{LayerCount: 1, FileCount: 1, WaitingCount: 2}, 2)
	sweep(odb.Swept{WaitingCount: 2}, 2)
	gates[1].passed = true
	sweep(odb.Swept{LayerCount: 1, FileCount: 1}, 2)
	sweep(odb.Swept{}, 2)
}

// TestOldestView follows the epoch of the oldest view while views begin, are shared, become those
// of quarantines, and end.
func TestOldestView(t *testing.T) {
	t.Parallel()
	epochs := odb.NewEpochs()
	w := newWorld(t, odb.Options{Epochs: epochs})
	fill(w, rand.New(rand.NewPCG(1, 2)))
	oldest := func(want uint64) {
		t.Helper()
		if got := epochs.Oldest(); got != want {
			t.Errorf("the oldest view is of epoch %d, want %d", got, want)
		}
	}
	oldest(0)
	later := time.Now().Add(time.Hour)
	epochs.Enter(5, later)
	oldest(5)
	first := w.View()
	epochs.Advance(7, later)
	second := w.View()
	epochs.Advance(6, later) // late news
	shared := first.Share()
	alone, _ := first.SegmentsAlone()
	q := first.NewQuarantine(t.Context())
	oldest(5)
	w.Must(first.Close())
	w.Must(first.Close()) // has no effect
	oldest(5)
	w.Must(shared.Close())
	oldest(5)
	w.Must(alone.Close())
	oldest(5)
	w.Must(q.Refresh(t.Context())) // reads the manifest of now
	epochs.Advance(9, later)
	w.Must(second.Close())
	w.Must(q.Close())
	oldest(9)
}
