package engine

import (
	"context"
	"time"

	"packhorse/engine/cluster"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// Sharing is the configuration of a host that shares its stores with others.
type Sharing struct {
	// URL tells operators how to reach this server.
	URL string
	// Beat and Patience are those of the servers; see [cluster.Config].
	Beat, Patience time.Duration
}

// sharedSearch is the interval at which the owner of a duty looks for what other servers have left
// to it, dutyRest the pause after a failure of a duty.
const (
	sharedSearch = time.Second
	dutyRest     = time.Minute
)

// duties are the work in the background that one of the servers does for all.
func (h *Host) duties(c *Config) []cluster.Duty {
	var all []cluster.Duty
	if c.Background {
		all = append(all, cluster.Duty{Name: "maintenance", Work: func(ctx context.Context) error {
			h.worker.Keep(ctx, background{h})
			return nil
		}})
	}
	if c.Webhooks.Hooks != nil {
		all = append(all, cluster.Duty{Name: "webhooks", Work: func(ctx context.Context) error {
			h.hooks.Start()
			<-ctx.Done()
			h.hooks.Stop()
			return nil
		}})
	}
	if c.Upstreams.Enabled {
		all = append(all, cluster.Duty{Name: "upstreams", Work: h.findPendingSyncs})
	}
	if c.Scrub.BytesPerSecond > 0 {
		all = append(all, cluster.Duty{Name: "scrub", Work: func(ctx context.Context) error {
			return h.keepScrubbing(ctx, c.Scrub)
		}})
	}
	if c.Census > 0 {
		all = append(all, cluster.Duty{Name: "census", Work: func(ctx context.Context) error {
			return h.keepCensus(ctx, c.Census)
		}})
	}
	return all
}

// begin begins the duties: all of them, or those that fall to this one of several servers.
func (h *Host) begin(ctx context.Context, c *Config) (err error) {
	duties := h.duties(c)
	if c.Background { // the first round comes an interval after the store was first opened
		if _, err := (background{h}).UntilRound(ctx, h.maintenance.RoundInterval); err != nil {
			h.log.ErrorContext(ctx, "maintenance failed", "step", "read the time of the last round", "error", err)
		}
	}
	if c.Sharing != nil {
		h.member, err = cluster.Join(ctx, cluster.Config{
			Keys: h.keys, URL: c.Sharing.URL, Version: c.Version, Duties: duties, Departed: h.departed,
			Views: c.Objects.Epochs, Beat: c.Sharing.Beat, Patience: c.Sharing.Patience, Logger: h.log,
		})
		if err == nil {
			// A migration that began before the row of this server was there has not seen the server.
			_, err = StoreID(ctx, h.keys)
		}
		return err
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.endDuties = cancel
	for _, duty := range duties {
		rescue.Go(&h.working, func() error {
			for working.Err() == nil {
				if err := rescue.Do(func() error { return duty.Work(working) }); err != nil && working.Err() == nil {
					h.log.ErrorContext(working, "a duty has failed", "duty", duty.Name, "error", err)
					_ = fair.Sleep(working, dutyRest) // working is checked next
				}
			}
			return nil
		}, func(error) {})
	}
	return nil
}

// end ends the duties of this server, and waits for that.
func (h *Host) end(ctx context.Context) error {
	if h.member != nil {
		return h.member.Leave(ctx)
	}
	if h.endDuties != nil {
		h.endDuties()
		h.working.Wait()
	}
	return nil
}

// Member returns this server among those that share the stores, nil when it does not share them.
func (h *Host) Member() *cluster.Member { return h.member }

// departed wakes those who go on with what a server has left behind.
func (h *Host) departed() {
	select {
	case h.left <- struct{}{}:
	default:
	}
}

// findPendingSyncs finds the syncs that servers have left behind, now and whenever one has gone.
func (h *Host) findPendingSyncs(ctx context.Context) error {
	for {
		if err := h.upstreams.worker.FindPending(ctx); err != nil {
			return err
		}
		select {
		case <-h.left:
		case <-ctx.Done():
			return nil
		}
	}
}
