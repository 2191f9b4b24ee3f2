package main

import (
	"time"

	"packhorse/api"
	"packhorse/engine"
	"packhorse/engine/maintain"
)

// maintenanceFlags configure background maintenance.
type maintenanceFlags struct {
	Off         bool          `help:"Turn off background maintenance; use packhorse gc instead."`
	Grace       time.Duration `help:"How long unreachable objects are kept." default:"336h"`
	ReaderGrace time.Duration `help:"How long obsolete files are kept at least, for copies of the stores." default:"1h"`
	JournalAge  time.Duration `help:"How long the journal of changes is kept; at least as long as unreachable objects." default:"2160h"`
	HotCount    int           `help:"Objects in the hot tier of a repository before they are flushed to a segment." default:"5000" min:"1"`
	HotBytes    byteSize      `help:"Bytes in the hot tier of a repository before they are flushed to a segment." default:"16MiB" min:"1KiB"`
	Segments    int           `help:"New segments of a repository before they are merged." default:"8" min:"1"`
	Every       time.Duration `help:"Interval between maintenance rounds over all repositories." default:"24h" min:"1ms"`
}

// settings are nil when there is no maintenance in the background.
func (f maintenanceFlags) settings() *maintain.Settings {
	if f.Off {
		return nil
	}
	return &maintain.Settings{
		Grace: orNone(f.Grace), ReaderGrace: orNone(f.ReaderGrace), JournalAge: f.JournalAge,
		HotCount: f.HotCount, HotBytes: int64(f.HotBytes), SegmentCount: f.Segments, RoundInterval: f.Every,
	}
}

// maintenanceFigures are the metrics of maintenance.
func maintenanceFigures(host *engine.Host) []api.Figure {
	counter := func(name, help string, value func(maintain.Stats) uint64) api.Figure {
		return api.Figure{Name: name, Help: help, Counter: true, Value: func() float64 {
			return float64(value(host.MaintenanceStats()))
		}}
	}
	return []api.Figure{
		counter("maintenance_compactions_total", "Times that layers of a repository became one.",
			func(s maintain.Stats) uint64 { return s.Compactions }),
		counter("maintenance_objects_total", "Objects rewritten by maintenance.", func(s maintain.Stats) uint64 {
			return s.ObjectCount
		}),
		counter("maintenance_rounds_total", "Times that every repository was looked at.", func(s maintain.Stats) uint64 {
			return s.Rounds
		}),
		counter("maintenance_postponed_total",
			"Steps of maintenance that were postponed for lack of disk space or of the key-value store.",
			func(s maintain.Stats) uint64 { return s.Postponed }),
		counter("maintenance_failures_total", "Steps of maintenance that failed.", func(s maintain.Stats) uint64 {
			return s.Failures
		}),
		{
			Name: "maintenance_due", Help: "Pools that wait for a compaction.",
			Value: func() float64 { return float64(host.MaintenanceStats().DueCount) },
		},
	}
}
