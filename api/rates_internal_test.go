package api

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/api/auth"
)

// Requests that come at the same time get the burst together, and no more.
func TestRatesTogether(t *testing.T) {
	t.Parallel()
	var config auth.OrgConfig
	config.Limits = auth.OrgLimits{RequestsPerSecond: 1, RequestBurst: 50}
	at := time.Unix(1_800_000_000, 0)
	r := newRates(func() time.Time { return at }, func(string) (*auth.OrgConfig, bool) { return &config, true })
	var taken atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if r.take("acme") == nil {
					taken.Add(1)
				}
			}
		})
	}
	group.Wait()
	if taken.Load() != 50 {
		t.Errorf("%d of 800 requests were taken, want 50", taken.Load())
	}
}

// Buckets of organizations that have no limit any more go, and those that are in use stay as they
// are.
func TestRatesForget(t *testing.T) {
	t.Parallel()
	var config auth.OrgConfig
	config.Limits = auth.OrgLimits{RequestsPerSecond: 1, RequestBurst: 1}
	with := make(map[string]bool)
	at := time.Unix(1_800_000_000, 0)
	r := newRates(func() time.Time { return at }, func(org string) (*auth.OrgConfig, bool) { return &config, with[org] })
	with["stays"] = true
	if err := r.take("stays"); err != nil {
		t.Error(err)
	}
	for i := range 10 * bucketsLeast {
		org := fmt.Sprint("org", i)
		with[org] = true
		if err := r.take(org); err != nil {
			t.Error(err)
		}
		delete(with, org)
	}
	if len(r.buckets) > bucketsLeast {
		t.Errorf("%d buckets are kept of one organization with a limit", len(r.buckets))
	}
	if r.take("stays") == nil {
		t.Error("the bucket of an organization with a limit was filled anew")
	}
}
