package engine

import (
	"context"
	"errors"
	"testing"
)

// A trace takes a slot and memory when it outgrows what is part of the cost of its request.
func TestTraceMemory(t *testing.T) {
	t.Parallel()
	slots, reserved := 0, int64(0)
	slot := func(context.Context) (func(), error) {
		slots++
		return func() { slots-- }, nil
	}
	reserve := func(_ context.Context, sizeBytes int64) (func(), error) {
		reserved += sizeBytes
		return func() { reserved -= sizeBytes }, nil
	}
	m := newTraceMemory(4*traceStep, slot, reserve)
	for i, want := range []struct {
		slots    int
		reserved int64
	}{{0, 0}, {1, traceStep}, {1, 2 * traceStep}} {
		if err := m.admit(t.Context(), traceStep); err != nil {
			t.Fatal(err)
		}
		if slots != want.slots || reserved != want.reserved {
			t.Errorf("after step %d it holds %d slots and %d bytes, want %+v", i+1, slots, reserved, want)
		}
	}
	m.release()
	if slots != 0 || reserved != 0 {
		t.Errorf("%d slots and %d bytes are left", slots, reserved)
	}

	busy := errors.New("busy")
	refused := newTraceMemory(4*traceStep, func(context.Context) (func(), error) { return nil, busy }, reserve)
	if err := refused.admit(t.Context(), 2*traceStep); !errors.Is(err, busy) || reserved != 0 {
		t.Errorf("without a slot: %v, %d bytes are reserved", err, reserved)
	}
	refused.release()
}
