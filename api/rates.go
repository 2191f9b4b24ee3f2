package api

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
)

// rates hold organizations to limits.requests_per_second of their org.yaml. Each has a bucket of
// tokens in this server, and each request whose token of authorization is good takes one. An
// organization without the limit has no bucket.
type rates struct {
	now    func() time.Time
	config func(org string) (*auth.OrgConfig, bool)

	mu      sync.Mutex               // a request holds it for one look, and for nothing else
	buckets map[string]*rate.Limiter // guarded by mu, as is what they hold; by organization
	sweepAt int                      // guarded by mu; the number of buckets at which those without a limit go
}

func newRates(now func() time.Time, config func(org string) (*auth.OrgConfig, bool)) *rates {
	return &rates{now: now, config: config, buckets: make(map[string]*rate.Limiter)}
}

// bucketsLeast is the number of buckets below which nothing is swept.
const bucketsLeast = 64

// take counts a request of an organization. It returns a refusal with status 429 if the request
// came above the rate; such a request takes nothing from those that follow.
func (r *rates) take(org string) error {
	config, ok := r.config(org)
	if !ok || config.Limits.RequestsPerSecond == 0 {
		return nil
	}
	perSecond, burst := float64(config.Limits.RequestsPerSecond), config.Limits.Burst()
	wait := r.wait(org, rate.Limit(perSecond), burst)
	if wait == 0 {
		return nil
	}
	return &exchange.Error{
		Status: http.StatusTooManyRequests, Code: code.TooManyRequests, Retry: max(wait, time.Second),
		Message: fmt.Sprintf("too many requests: the organization may send %g a second on average and %d at once "+
			"(limits.requests_per_second and limits.request_burst in org.yaml)", perSecond, burst),
	}
}

// wait takes a token of the organization's bucket, or returns how long it takes until there is one.
func (r *rates) wait(org string, limit rate.Limit, burst int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now() // under the lock, so that it never goes back for a bucket
	bucket := r.buckets[org]
	if bucket == nil {
		r.sweepLocked()
		bucket = rate.NewLimiter(limit, burst)
		r.buckets[org] = bucket
	}
	// What is in the bucket stays when org.yaml has changed: a change is no burst.
	if bucket.Limit() != limit {
		bucket.SetLimitAt(now, limit)
	}
	if bucket.Burst() != burst {
		bucket.SetBurstAt(now, burst)
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - bucket.TokensAt(now)) / float64(limit) * float64(time.Second))
}

// sweepLocked removes the buckets of organizations that have no limit any more, whenever the number
// of buckets has doubled.
func (r *rates) sweepLocked() {
	if len(r.buckets) < max(r.sweepAt, bucketsLeast) {
		return
	}
	for org := range r.buckets {
		if config, ok := r.config(org); !ok || config.Limits.RequestsPerSecond == 0 {
			delete(r.buckets, org)
		}
	}
	r.sweepAt = 2 * len(r.buckets)
}
