package main

import (
	"context"
	"log/slog"
	"time"

	"packhorse/api"
	"packhorse/engine"
	"packhorse/odb/rescue"
)

// scrubber reads the store in the background to find damage.
type scrubber struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// The pause between two passes, and after a failed one.
const scrubRest = 10 * time.Minute

// startScrubber returns nil for a rate of 0.
func startScrubber(host *engine.Host, bytesPerSecond int64, logger *slog.Logger) *scrubber {
	if bytesPerSecond == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &scrubber{cancel: cancel, ended: make(chan struct{})}
	rescue.Beside(func() error {
		defer close(s.ended)
		for ctx.Err() == nil {
			err := rescue.Do(func() error {
				return host.Scrub(ctx, engine.ScrubOptions{BytesPerSecond: bytesPerSecond, Rest: scrubRest})
			})
			if ctx.Err() != nil {
				return nil
			}
			logger.Error("scrubbing failed, trying again later", "error", err, "rest", scrubRest)
			select {
			case <-time.After(scrubRest):
			case <-ctx.Done():
			}
		}
		return nil
	})
	return s
}

// stop ends the scrubber, if there is one, and waits for it.
func (s *scrubber) stop() {
	if s != nil {
		s.cancel()
		<-s.ended
	}
}

// scrubFigures are the metrics of the scrubber.
func scrubFigures(host *engine.Host) []api.Figure {
	figure := func(name, help string, value func(engine.ScrubStats) uint64) api.Figure {
		return api.Figure{Name: "scrub_" + name, Help: help, Counter: true, Value: func() float64 {
			return float64(value(host.ScrubStats()))
		}}
	}
	return []api.Figure{
		{
			Name: "damaged", Help: "Damaged items found since the start and not repaired since.",
			Value: func() float64 { return float64(host.DamageCount()) },
		},
		figure("read_bytes_total", "Stored bytes read by scrubbing.", func(s engine.ScrubStats) uint64 {
			return s.Bytes
		}),
		figure("passes_total", "Passes of scrubbing over all repositories.", func(s engine.ScrubStats) uint64 {
			return s.PassCount
		}),
		figure("problems_total", "Problems found by scrubbing, counted again in each pass.",
			func(s engine.ScrubStats) uint64 {
				return s.ProblemCount
			}),
	}
}
