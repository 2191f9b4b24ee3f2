package api

import "time"

// pace holds a peer to a rate. It counts only the time that was spent waiting for the peer, so that
// a slow server never makes a client look slow.
type pace struct {
	window time.Duration
	rate   int64 // bytes per second
	waited time.Duration
	moved  int64
}

// add counts one wait and the bytes moved after it, and reports whether the peer keeps pace.
func (p *pace) add(waited time.Duration, moved int) bool {
	p.waited += waited
	p.moved += int64(moved)
	if p.waited < p.window {
		return true
	}
	fast := p.moved >= int64(p.waited.Seconds()*float64(p.rate))
	p.waited, p.moved = 0, 0
	return fast
}

func (p *pace) reset(window time.Duration) {
	p.window, p.waited, p.moved = window, 0, 0
}
