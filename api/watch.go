package api

import (
	"context"
	"time"

	"packhorse/api/exchange"
)

// watchInterval is the interval between two checks of running requests, and the minimum age of a
// request to be checked: twice that bounds how long work continues after its client has gone.
const watchInterval = 500 * time.Millisecond

// look handles a request that may be waiting for its client.
func (s *Server) look(x *transfer, now time.Time, longest map[string]*transfer) {
	x.cost.yield(now)
	if waited := x.cost.waited(now); waited >= s.limits.ClientWait && x.grant != nil && x.cost.crowds() {
		if other := longest[x.grant.Org]; other == nil || waited > other.cost.waited(now) {
			longest[x.grant.Org] = x
		}
	}
}

// watch cancels the requests whose client has gone, and takes memory from those whose client keeps
// them waiting. It checks the socket: a request that computes reads and writes nothing and would
// not notice.
func (s *Server) watch(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			// For each organization with waiting requests, the request that waits most for its client.
			longest := make(map[string]*transfer)
			for _, c := range s.connections() {
				x := c.current.Load()
				switch {
				case x == nil || now.Sub(x.started) < watchInterval:
				case c.gone():
					x.cancel(exchange.ErrGone)
				default:
					s.look(x, now, longest)
				}
			}
			for _, x := range longest {
				x.cost.sendAway()
			}
		}
	}
}
