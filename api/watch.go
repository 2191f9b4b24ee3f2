package api

import (
	"time"

	"packhorse/api/exchange"
)

// watchInterval is how often running requests are looked at, and how long one runs before it is: twice that bounds how long work goes on
// for nobody.
const watchInterval = 500 * time.Millisecond

// watch cancels the requests whose client has gone. It looks at the socket: a request that computes reads and writes nothing and
// would not notice.
func (s *Server) watch() {
	defer s.watcher.Done()
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			for _, c := range s.connections() {
				if x := c.current.Load(); x != nil && now.Sub(x.started) >= watchInterval && c.gone() {
					x.cancel(exchange.ErrGone)
				}
			}
		}
	}
}
