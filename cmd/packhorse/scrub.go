package main

import (
	"packhorse/api"
	"packhorse/engine"
)

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
