package kv

// Stats implements Store.
func (p *Pebble) Stats() Stats {
	p.life.RLock()
	defer p.life.RUnlock()
	s := Stats{
		Commits:          p.commits.Load(),
		Conflicts:        p.conflicts.Load(),
		Waits:            p.waits.Load(),
		Unsynced:         p.unsynced.Load(),
		Rested:           p.rested.Load(),
		Snapshots:        p.snapshots.count(),
		LogSyncs:         p.witness.syncs.Load(),
		LogSyncTime:      p.witness.syncTime(),
		WriteStalls:      p.writeStalls.Load(),
		BackgroundErrors: p.backgroundErrors.Load(),
		Corruptions:      p.corruptions.Load(),
	}
	if p.closed.Load() {
		return s
	}
	m := p.db.Metrics()
	s.DiskBytes = m.DiskSpaceUsage()
	s.MemtableBytes = m.MemTable.Size
	s.CacheBytes = m.BlockCache.Size
	s.CacheHits = m.BlockCache.Hits
	s.CacheMisses = m.BlockCache.Misses
	s.LogBytes = m.WAL.BytesWritten
	for i := range m.Levels {
		s.FlushedBytes += m.Levels[i].TableBytesFlushed
		s.CompactedBytes += m.Levels[i].TableBytesCompacted
	}
	s.Flushes = m.Flush.Count
	s.Compactions = m.Compact.Count
	s.CompactionDebtBytes = m.Compact.EstimatedDebt
	s.ReadAmplification = m.ReadAmp()
	return s
}
