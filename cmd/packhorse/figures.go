package main

import (
	"strings"
	"time"

	"packhorse/api"
	"packhorse/engine/clonecache"
	"packhorse/odb"
	"packhorse/odb/kv"
)

// figures are the metrics of the stores.
func (s *store) figures() []api.Figure {
	figures := []api.Figure{
		{Name: "disk_free_bytes", Help: "Free disk space in bytes.", Value: func() float64 {
			return float64(s.space.Free())
		}},
		{Name: "disk_size_bytes", Help: "Size of the disk in bytes; 0 if unknown.", Value: func() float64 {
			return float64(s.space.Total())
		}},
		{Name: "writes_refused", Help: "1 while writes are refused for lack of disk space.", Value: func() float64 {
			if s.space.Check() != nil {
				return 1
			}
			return 0
		}},
	}
	figures = append(figures, s.objectFigures()...)
	if s.shared == nil {
		figures = append(figures, s.keysFigures()...)
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

// objectFigures are the metrics of the object database, and of the care for all of the store.
func (s *store) objectFigures() []api.Figure {
	figure := func(name, help string, value func(odb.Stats) float64) api.Figure {
		return api.Figure{Name: name, Help: help, Counter: strings.HasSuffix(name, "_total"), Value: func() float64 {
			return value(s.host.ObjectStats())
		}}
	}
	return []api.Figure{
		figure("object_cache_bytes", "Size of the object cache.", func(o odb.Stats) float64 { return float64(o.CacheBytes) }),
		figure("object_cache_hits_total", "Lookups that the object cache answered.", func(o odb.Stats) float64 {
			return float64(o.CacheHits)
		}),
		figure("object_cache_misses_total", "Lookups that the object cache did not answer.", func(o odb.Stats) float64 {
			return float64(o.CacheMisses)
		}),
		figure("open_files", "Open files of segments.", func(o odb.Stats) float64 { return float64(o.OpenFileCount) }),
		figure("open_views", "Views of repositories that requests hold open.", func(o odb.Stats) float64 {
			return float64(o.ViewCount)
		}),
		figure("fork_walks_total", "Walks over what a fork can see of the layers that it shares.",
			func(o odb.Stats) float64 { return float64(o.VisibilityWalkCount) }),
		{
			Name: "backup_timestamp_seconds", Help: "Begin of the last backup that this process completed, Unix time; 0 for none.",
			Value: func() float64 { return unixSeconds(s.host.LastBackup()) },
		},
		{
			Name:  "check_timestamp_seconds",
			Help:  "End of the last check of all repositories by this process, Unix time; 0 for none.",
			Value: func() float64 { return unixSeconds(s.host.LastCheck()) },
		},
	}
}

// unixSeconds is a time in seconds since 1970, 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}

// keysFigures are the metrics of the embedded key-value store.
func (s *store) keysFigures() []api.Figure {
	figure := func(name, help string, value func(kv.Stats) float64) api.Figure {
		return api.Figure{Name: "kv_" + name, Help: help, Counter: strings.HasSuffix(name, "_total"), Value: func() float64 {
			return value(s.host.KeysStats())
		}}
	}
	return []api.Figure{
		figure("commits_total", "Batches that became visible.", func(k kv.Stats) float64 { return float64(k.Commits) }),
		figure("conflicts_total", "Batches whose preconditions did not hold; most are prepared again.",
			func(k kv.Stats) float64 { return float64(k.Conflicts) }),
		figure("log_syncs_total", "Syncs of the log.", func(k kv.Stats) float64 { return float64(k.LogSyncs) }),
		figure("log_sync_seconds_total", "Time of the syncs of the log.", func(k kv.Stats) float64 {
			return k.LogSyncTime.Seconds()
		}),
		figure("log_bytes_total", "Bytes written to the log.", func(k kv.Stats) float64 { return float64(k.LogBytes) }),
		figure("flushed_bytes_total", "Bytes of tables written from memory.", func(k kv.Stats) float64 {
			return float64(k.FlushedBytes)
		}),
		figure("compacted_bytes_total", "Bytes of tables written by compactions.", func(k kv.Stats) float64 {
			return float64(k.CompactedBytes)
		}),
		figure("compaction_debt_bytes", "Bytes that wait for a compaction.", func(k kv.Stats) float64 {
			return float64(k.CompactionDebtBytes)
		}),
		figure("read_amplification", "Sorted runs that a read may have to look into.", func(k kv.Stats) float64 {
			return float64(k.ReadAmplification)
		}),
		figure("write_stalls_total", "Times that writes waited for flushes or compactions.", func(k kv.Stats) float64 {
			return float64(k.WriteStalls)
		}),
		figure("background_errors_total", "Flushes and compactions that failed, and are tried again.",
			func(k kv.Stats) float64 { return float64(k.BackgroundErrors) }),
		figure("disk_bytes", "Disk space of the key-value store, with its log.", func(k kv.Stats) float64 {
			return float64(k.DiskBytes)
		}),
		figure("cache_bytes", "Size of the cache of blocks.", func(k kv.Stats) float64 { return float64(k.CacheBytes) }),
		figure("cache_hits_total", "Reads that the cache of blocks answered.", func(k kv.Stats) float64 {
			return float64(k.CacheHits)
		}),
		figure("cache_misses_total", "Reads that the cache of blocks did not answer.", func(k kv.Stats) float64 {
			return float64(k.CacheMisses)
		}),
	}
}
