package postgres

import (
	"sync/atomic"

	"packhorse/odb/kv"
)

// counters count since the store was opened.
type counters struct {
	commits, conflicts            atomic.Uint64
	retries, lost                 atomic.Uint64
	happened, vanished, undecided atomic.Uint64
	unavailable, diskBytes        atomic.Uint64
}

// Metrics describes the traffic with the database since the store was opened.
type Metrics struct {
	// Retries counts the tries of calls after the first one: after a conflict between transactions or
	// the loss of a connection.
	Retries uint64
	// LostConns counts the connections that broke or said nothing.
	LostConns uint64
	// Happened and Vanished count the batches whose answers were lost, by what was found out about
	// them; Undecided those that ended with [kv.ErrUnknown].
	Happened, Vanished, Undecided uint64
	// Unavailable counts the calls that ended with [kv.ErrUnavailable].
	Unavailable uint64
	// Conns and IdleConns are the connections at present.
	Conns, IdleConns int
}

// Metrics returns counters and the state of the connections.
func (s *Store) Metrics() Metrics {
	c := &s.counters
	reads, writes := s.reads.Stat(), s.writes.Stat()
	return Metrics{
		Retries: c.retries.Load(), LostConns: c.lost.Load(),
		Happened: c.happened.Load(), Vanished: c.vanished.Load(), Undecided: c.undecided.Load(),
		Unavailable: c.unavailable.Load(),
		Conns:       int(reads.TotalConns() + writes.TotalConns()),
		IdleConns:   int(reads.IdleConns() + writes.IdleConns()),
	}
}

// Stats implements kv.Store. The size of the tables is up to a minute old.
func (s *Store) Stats() kv.Stats {
	return kv.Stats{
		Commits:   s.counters.commits.Load(),
		Conflicts: s.counters.conflicts.Load(),
		Snapshots: s.snapshots.count(),
		DiskBytes: s.counters.diskBytes.Load(),
	}
}
