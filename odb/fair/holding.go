package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrMemory says that a request needs more memory than all requests may hold together.
var ErrMemory = errors.New("fair: the request takes more memory than the server has for requests")

// Holding is the memory of one request: the admitted amount and later growth. The zero value holds
// nothing and has no queue.
type Holding struct {
	queue    *Queue
	tenant   Tenant
	admitted int64

	total atomic.Int64 // changed under mu

	// Guards the field below. It is held while the request waits for more memory, so that its other
	// goroutines do not ask at the same time.
	mu      sync.Mutex
	release []func() // nil after Close
	closed  bool
}

// Begin sets the admitted amount of the request and the queue for more.
func (h *Holding) Begin(queue *Queue, t Tenant, admitted int64) {
	h.queue, h.tenant, h.admitted = queue, t, admitted
	h.total.Store(admitted)
}

// Total returns how much the request may hold.
func (h *Holding) Total() int64 { return h.total.Load() }

// Grown reports whether the total exceeds the admitted amount.
func (h *Holding) Grown() bool { return h.total.Load() > h.admitted }

// Close gives back everything beyond the admitted amount.
func (h *Holding) Close() {
	h.mu.Lock()
	release := h.release
	h.release, h.closed = nil, true
	h.mu.Unlock()
	for _, give := range release {
		give()
	}
}

// grow makes the total at least sizeBytes.
func (h *Holding) grow(ctx context.Context, sizeBytes int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	more := min(sizeBytes, h.queue.options.Capacity) - h.total.Load()
	if more <= 0 || h.closed {
		return nil
	}
	release, err := h.queue.Grow(ctx, h, h.tenant, 0, more)
	if err == nil {
		h.keepLocked(more, release)
	}
	return err
}

func (h *Holding) keepLocked(sizeBytes int64, release func()) {
	h.total.Add(sizeBytes)
	h.release = append(h.release, release)
}

type holdingKey struct{}

// Hold returns a context whose work accounts its memory to h.
func Hold(ctx context.Context, h *Holding) context.Context {
	return context.WithValue(ctx, holdingKey{}, h)
}

// Need returns when the request of ctx may hold sizeBytes in all, until it ends. Callers ask before
// they allocate that much, inside a turn at the processors or outside; a turn is given back during
// the wait. An amount above the capacity for all requests counts as the capacity, and is refused if
// it is more than twice as large. Work that belongs to no request is not limited.
//
// Errors: [ErrMemory]; [ErrBusy]; the cause of ctx's end.
func Need(ctx context.Context, sizeBytes int64) error {
	h, _ := ctx.Value(holdingKey{}).(*Holding)
	if h == nil || h.queue == nil || sizeBytes <= h.total.Load() {
		return nil
	}
	if most := 2 * h.queue.options.Capacity; sizeBytes > most {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMemory, sizeBytes, most)
	}
	return Rest(ctx, func() error { return h.grow(ctx, sizeBytes) })
}

// Held returns how much the request of ctx may hold; false says that ctx belongs to none.
func Held(ctx context.Context) (sizeBytes int64, ok bool) {
	h, _ := ctx.Value(holdingKey{}).(*Holding)
	if h == nil || h.queue == nil {
		return 0, false
	}
	return h.total.Load(), true
}

// Spare returns how much the request of ctx may hold until it ends: at least the admitted amount,
// at most most. It does not wait.
func Spare(ctx context.Context, most int64) int64 {
	h, _ := ctx.Value(holdingKey{}).(*Holding)
	if h == nil || h.queue == nil {
		return most
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if total := h.total.Load(); total < most && !h.closed {
		taken, release := h.queue.Spare(h.tenant, 0, most-total)
		h.keepLocked(taken, release)
	}
	return min(most, h.total.Load())
}
