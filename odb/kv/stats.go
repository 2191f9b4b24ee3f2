package kv

import "time"

// Stats describes a store since it was opened, for metrics. Figures that an implementation does not
// have are zero.
type Stats struct {
	// Commits counts the batches that became visible, Conflicts those whose preconditions did not
	// hold.
	Commits   uint64
	Conflicts uint64
	// Waits counts the calls of WaitDurable that had to wait.
	Waits uint64
	// Unsynced is the number of batches that are visible and not yet durable.
	Unsynced int64
	// Rested is the number of Commits that the mark covers: damage to their part of the log cannot be
	// mistaken for a crash.
	Rested uint64
	// Snapshots is the number of open snapshots.
	Snapshots int64

	// DiskBytes is the disk space of the store, logs included.
	DiskBytes uint64
	// MemtableBytes is the size of the writes that are only in memory and log.
	MemtableBytes uint64
	// CacheBytes, CacheHits and CacheMisses describe the cache of blocks.
	CacheBytes  int64
	CacheHits   int64
	CacheMisses int64

	// LogBytes were given to the log, FlushedBytes and CompactedBytes written to tables.
	LogBytes       uint64
	FlushedBytes   uint64
	CompactedBytes uint64
	// LogSyncs counts the syncs of the log, LogSyncTime is their sum.
	LogSyncs    uint64
	LogSyncTime time.Duration
	// Flushes and Compactions count completed ones, CompactionDebtBytes is the amount waiting for
	// compaction.
	Flushes             int64
	Compactions         int64
	CompactionDebtBytes uint64
	// ReadAmplification is the number of sorted runs that a read may have to look into.
	ReadAmplification int
	// WriteStalls counts the times at which writes had to wait for flushes or compactions.
	WriteStalls uint64
	// BackgroundErrors counts failed flushes and compactions, which are retried.
	BackgroundErrors uint64
	// Corruptions counts the reads of tables that found damage.
	Corruptions uint64
}
