package engine

import (
	"context"
	"sync"

	"packhorse/odb/fair"
)

// creators keeps creations of one organization from failing each other's preconditions: each draws
// the next number. It guards nothing.
type creators struct {
	mu   sync.Mutex             // guards the fields below
	turn map[string]*createTurn // by organization, while somebody has it or waits for it
}

// createTurn is the turn of the creations of an organization.
type createTurn struct {
	taken chan struct{} // holds one while somebody has it
	users int           // guarded by mu of creators: who has it or waits for it
}

// begin waits for the turn of an organization, which lasts until end is called. Meanwhile the
// request gives back its turn at the processors. Errors: the cause of ctx's end.
func (c *creators) begin(ctx context.Context, org string) (end func(), err error) {
	t := c.enter(org)
	select {
	case t.taken <- struct{}{}:
	default:
		err = fair.Rest(ctx, func() error {
			select {
			case t.taken <- struct{}{}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	if err != nil {
		c.leave(org, t)
		return nil, err
	}
	return func() {
		<-t.taken
		c.leave(org, t)
	}, nil
}

func (c *creators) enter(org string) *createTurn {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.turn[org]
	if t == nil {
		if c.turn == nil {
			c.turn = make(map[string]*createTurn)
		}
		t = &createTurn{taken: make(chan struct{}, 1)}
		c.turn[org] = t
	}
	t.users++
	return t
}

func (c *creators) leave(org string, t *createTurn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(c.turn, org)
	}
}
