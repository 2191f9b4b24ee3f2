package main

import (
	"packhorse/api"
	"packhorse/engine/clonecache"
)

// figures are the metrics of the stores.
func (s *store) figures() []api.Figure {
	figures := []api.Figure{
		{Name: "disk_free_bytes", Help: "Free disk space in bytes.", Value: func() float64 {
			return float64(s.space.Free())
		}},
		{Name: "writes_refused", Help: "1 while writes are refused for lack of disk space.", Value: func() float64 {
			if s.space.Check() != nil {
				return 1
			}
			return 0
		}},
	}
	if s.clones == nil {
		return figures
	}
	clones := func(name, help string, counter bool, value func(clonecache.Stats) float64) {
		figures = append(figures, api.Figure{
			Name: "clone_cache_" + name, Help: help, Counter: counter, Value: func() float64 { return value(s.clones.Stats()) },
		})
	}
	clones("bytes", "Size of the clone cache.", false, func(s clonecache.Stats) float64 { return float64(s.Bytes) })
	clones("hits_total", "Packs sent from the clone cache.", true, func(s clonecache.Stats) float64 {
		return float64(s.Hits)
	})
	clones("joined_total", "Packs sent while they were generated for another request.", true,
		func(s clonecache.Stats) float64 { return float64(s.Joined) })
	clones("generated_total", "Packs generated for the clone cache.", true, func(s clonecache.Stats) float64 {
		return float64(s.Generated)
	})
	clones("damaged_total", "Files of the clone cache that failed a check.", true, func(s clonecache.Stats) float64 {
		return float64(s.Damaged)
	})
	return figures
}
