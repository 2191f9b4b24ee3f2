package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrMemory says that a request needs more memory than there is for all.
var ErrMemory = errors.New("fair: the request takes more memory than the server has for requests")

// Holding is the memory of one request: what it was admitted for, and what it turns out to need.
// The zero value holds nothing of no queue.
type Holding struct {
	queue    *Queue
	tenant   Tenant
	admitted int64

	total atomic.Int64 // changed under mu

	// Guards the field below, and is held while more is waited for: others of the request need not ask
	// then.
	mu      sync.Mutex
	release []func() // nil after Close
	closed  bool
}

// Begin says what the request was admitted for, and where more comes from.
func (h *Holding) Begin(queue *Queue, t Tenant, admitted int64) {
	h.queue, h.tenant, h.admitted = queue, t, admitted
	h.total.Store(admitted)
}

// Total is how much the request may hold.
func (h *Holding) Total() int64 { return h.total.Load() }

// Grown tells whether that is more than it was admitted for.
func (h *Holding) Grown() bool { return h.total.Load() > h.admitted }

// Close gives back everything but what the request was admitted for.
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

// Hold returns a context whose work counts what it holds by h.
func Hold(ctx context.Context, h *Holding) context.Context {
	return context.WithValue(ctx, holdingKey{}, h)
}

// Need returns when the request of ctx may hold sizeBytes in all, until it ends. It is asked before
// that much is allocated, in a turn at the processors or not, which is given back meanwhile. More
// than there is for all requests counts as that, and is refused when it is more than twice as much.
// Work that belongs to no request holds what it likes.
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

// Spare returns how much the request of ctx may hold until it ends: up to most, and what it was
// admitted for at least. It does not wait.
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
