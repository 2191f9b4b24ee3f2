// Package traffic counts requests, so that background work makes way for them.
//
// [Requests] is the count, and a [Pacer] makes work rest while there are any.
package traffic

import (
	"sync/atomic"
	"time"
)

// Requests counts requests. The zero value counts none. Its methods may be called concurrently.
type Requests struct {
	open atomic.Int64
	last atomic.Int64 // when one ended, in nanoseconds of the Unix epoch
}

// pauseMax is the longest pause between requests that count as one stream.
const pauseMax = 50 * time.Millisecond

// Begin counts a request.
func (r *Requests) Begin() { r.open.Add(1) }

// End stops counting a request, which has ended.
func (r *Requests) End() {
	r.open.Add(-1)
	r.last.Store(time.Now().UnixNano())
}

// Leave stops counting what turns out to be no request.
func (r *Requests) Leave() { r.open.Add(-1) }

// Count returns the number of requests that have begun and not ended.
func (r *Requests) Count() int64 { return r.open.Load() }

// Busy reports whether there is a request, or was one just now.
func (r *Requests) Busy() bool {
	return r.open.Load() > 0 || time.Now().UnixNano()-r.last.Load() < int64(pauseMax)
}
