package webhook

import (
	"context"
	"sync"
)

// turns bounds how much goes on at once, in all and of one organization. Where more is asked for, organizations take turns: the next one is
// the organization with the least under way, so that one whose receivers hang holds up its own events and nobody else's.
type turns struct {
	most, orgMost int

	mu      sync.Mutex // guards the fields below
	count   int
	running map[string]int             // by organization
	waiting map[string][]chan struct{} // by organization, in the order in which they came; a channel is closed with the turn
}

func newTurns(most, orgMost int) *turns {
	return &turns{most: most, orgMost: orgMost, running: make(map[string]int), waiting: make(map[string][]chan struct{})}
}

// take waits for a turn of an organization. release must be called. Errors: that of ctx.
func (t *turns) take(ctx context.Context, org string) (release func(), err error) {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting[org] = append(t.waiting[org], turn)
	t.grant()
	t.mu.Unlock()
	select {
	case <-turn:
		return func() { t.release(org) }, nil
	case <-ctx.Done():
	}
	if !t.leave(org, turn) {
		t.release(org) // it came meanwhile
	}
	return nil, ctx.Err()
}

func (t *turns) release(org string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.running[org]--; t.running[org] == 0 {
		delete(t.running, org)
	}
	t.grant()
}

// grant gives the turns that can be given. mu is held.
func (t *turns) grant() {
	for t.count < t.most {
		next, found := "", false
		for org := range t.waiting {
			if t.running[org] < t.orgMost && (!found || t.running[org] < t.running[next]) {
				next, found = org, true
			}
		}
		if !found {
			return
		}
		close(t.waiting[next][0])
		t.shorten(next, 0)
		t.running[next]++
		t.count++
	}
}

// leave gives up a wait. It is false when the turn has come.
func (t *turns) leave(org string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, waiting := range t.waiting[org] {
		if waiting == turn {
			t.shorten(org, i)
			return true
		}
	}
	return false
}

func (t *turns) shorten(org string, i int) {
	rest := append(t.waiting[org][:i:i], t.waiting[org][i+1:]...)
	if t.waiting[org] = rest; len(rest) == 0 {
		delete(t.waiting, org)
	}
}
