package odb

import (
	"sync/atomic"
	"time"
)

// traffic counts requests, for background work that makes way for them.
type traffic struct {
	views atomic.Int64 // open views, except those with a private cache
	last  atomic.Int64 // when one was closed, in nanoseconds of the Unix epoch
}

// trafficPause is the longest pause between requests that count as one stream.
const trafficPause = 50 * time.Millisecond

func (t *traffic) begin() { t.views.Add(1) }

func (t *traffic) end() {
	t.views.Add(-1)
	t.last.Store(time.Now().UnixNano())
}

// leave stops counting a view.
func (t *traffic) leave() { t.views.Add(-1) }

func (t *traffic) busy() bool {
	return t.views.Load() > 0 || time.Now().UnixNano()-t.last.Load() < int64(trafficPause)
}

// Busy reports whether the store serves requests.
func (s *Store) Busy() bool { return s.traffic.busy() }
