package odbtest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"packhorse/odb/fair"
)

// Bystander shares the only processor with the work under test.
type Bystander struct {
	testing.TB
	ended context.Context // its account gets a turn at once or not at all
}

// NewBystander returns a context whose work is charged to an account of a processor, and a
// bystander at the same processor.
func NewBystander(tb testing.TB) (context.Context, *fair.Account, Bystander) {
	tb.Helper()
	p := fair.NewProcessors(1)
	account := p.Account(fair.Tenant{Org: "acme"}, 0)
	ended, end := context.WithCancel(fair.With(tb.Context(), p.Account(fair.Tenant{Org: "other"}, 0)))
	end()
	return fair.With(tb.Context(), account), account, Bystander{tb, ended}
}

// Waits returns when nobody has a turn. Goroutines that work for the request may have one for a
// while.
func (b Bystander) Waits() {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		// It gives up at once when the processor is taken.
		err := fair.Do(b.ended, func(context.Context) error { return nil })
		switch {
		case err == nil:
			return
		case !errors.Is(err, context.Canceled) || time.Now().After(deadline):
			b.Fatalf("a turn lasts while a client is waited for: %v", err)
		}
	}
}
