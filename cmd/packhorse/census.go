package main

import (
	"time"

	"packhorse/api"
	"packhorse/engine"
)

// censusEvery is the interval at which a server counts what is stored.
const censusEvery = 5 * time.Minute

// censusFigures are the metrics of all that is stored. Of several servers one counts; the others
// show 0 for what it counts.
func censusFigures(host *engine.Host) []api.Figure {
	figure := func(name, help string, labels map[string]string, value func(*engine.Census) float64) api.Figure {
		return api.Figure{Name: name, Help: help, Labels: labels, Value: func() float64 {
			last := host.Census()
			return value(&last)
		}}
	}
	repositories := func(state string, value func(*engine.Census) int) api.Figure {
		return figure("repositories", "Repositories of all organizations when they were last counted, by state.",
			map[string]string{"state": state}, func(c *engine.Census) float64 { return float64(value(c)) })
	}
	const storedHelp = "Stored bytes, by tier; those of files when they were last counted."
	files := func(tier string, value func(*engine.Census) int64) api.Figure {
		return figure("stored_bytes", storedHelp, map[string]string{"tier": tier},
			func(c *engine.Census) float64 { return float64(value(c)) })
	}
	return []api.Figure{
		repositories("live", func(c *engine.Census) int { return c.RepositoryCount }),
		repositories("deleted", func(c *engine.Census) int { return c.DeletedCount }),
		figure("repositories_deleted_bytes", "What deleted repositories stored that may come back.", nil,
			func(c *engine.Census) float64 { return float64(c.DeletedBytes) }),
		{
			Name: "stored_bytes", Help: storedHelp, Labels: map[string]string{"tier": "rows"},
			Value: func() float64 { return float64(host.KeysStats().DiskBytes) },
		},
		files("segments", func(c *engine.Census) int64 { return c.Files.Segments }),
		files("auxiliary", func(c *engine.Census) int64 { return c.Files.Auxiliary }),
		files("obsolete", func(c *engine.Census) int64 { return c.Files.Obsolete }),
		figure("census_timestamp_seconds", "End of the last count of what is stored, Unix time; 0 if another server counts.",
			nil, func(c *engine.Census) float64 { return unixSeconds(c.Time) }),
	}
}
