package engine

import (
	"sync/atomic"
	"time"

	"packhorse/odb"
	"packhorse/odb/kv"
)

// careTimes are when this host last took care of the whole store, in nanoseconds of the Unix epoch;
// 0 when it has not. They are not stored: whoever watches them remembers more.
type careTimes struct{ backup, check atomic.Int64 }

// LastBackup returns when the last backup that this host completed began, the zero time if there is
// none.
func (h *Host) LastBackup() time.Time { return timeOf(&h.care.backup) }

// LastCheck returns when this host last completed a check of all repositories, by [Host.Fsck] or
// [Host.Scrub], whatever it found; the zero time if it has not.
func (h *Host) LastCheck() time.Time { return timeOf(&h.care.check) }

func timeOf(nanos *atomic.Int64) time.Time {
	if at := nanos.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// KeysStats returns the figures of the key-value store.
func (h *Host) KeysStats() kv.Stats { return h.keys.Stats() }

// ObjectStats returns the figures of the object database.
func (h *Host) ObjectStats() odb.Stats { return h.objects.Stats() }
