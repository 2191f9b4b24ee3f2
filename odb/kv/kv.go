// Package kv is the ordered key-value store below all other data of Packhorse, and its embedded
// implementation over Pebble.
//
// Keys and values are opaque bytes; keys are ordered as [bytes.Compare] orders them. A [Batch] is
// the only way to write: its preconditions are checked and its operations made visible in one
// atomic step. Start at [Store] for the contract, at [OpenPebble] for the implementation, and at
// package kvtest for the tests that every implementation must pass.
//
// # Visible and durable
//
// A batch is visible to every reader when [Store.Apply] returns and durable when [Commit.Wait]
// returns. Batches become durable in the order in which they became visible: if a batch is durable,
// so is everything that was read to prepare it. A caller that sends data out after only reading
// calls [Store.WaitDurable] first, because a crash could undo that data.
//
// # Scope of atomicity
//
// A precondition holds at the instant at which its batch becomes visible, against every other
// batch: those that require the same key, those that write it without any precondition, and those
// that delete a range around it.
package kv

import (
	"context"
	"iter"
	"time"
)

// Limits of the contract; beyond them a batch is refused with a [LimitError].
const (
	// KeyBytesMax is the largest size of a key. A key has at least one byte.
	KeyBytesMax = 1 << 10
	// ValueBytesMax is the largest size of a value. A value may be empty.
	ValueBytesMax = 256 << 10
	// BatchBytesMax bounds the sum of the sizes of all keys and values in a batch, preconditions
	// included.
	BatchBytesMax = 16 << 20
	// BatchCountMax bounds the number of operations and preconditions in a batch.
	BatchCountMax = 130_000
	// ReadCountMax bounds the keys and ranges of one Read.
	ReadCountMax = 1000
	// PageCountMax and PageBytesMax bound a page of a range, which ends with the pair that reaches
	// either.
	PageCountMax = 2048
	PageBytesMax = 256 << 10
	// SnapshotAgeMax is how long a snapshot can be read; [ErrSnapshotExpired] afterwards.
	SnapshotAgeMax = 10 * time.Second
)

// Reader reads keys and values as they are at one instant (a [Snapshot]) or at the instant of each
// call (a [Store]).
type Reader interface {
	// Get returns the value of key in memory that the caller owns, or [ErrNotFound].
	Get(ctx context.Context, key []byte) ([]byte, error)

	// Scan walks the pairs with options.Start <= key < options.End in the order of their keys, or in
	// reverse.
	//
	// A pair's memory is valid until the next step or the end of the walk. The walk reads in bounded
	// pages, and holds no resources of the store while its caller works on a page: over a Store, each
	// page is read at its own instant, so a walk that must see one instant uses a Snapshot. An error
	// ends the walk and is yielded with a zero Pair.
	Scan(ctx context.Context, options ScanOptions) iter.Seq2[Pair, error]

	// Read returns the values of keys and the first pairs of ranges, all of them at one instant. Over
	// a network it costs one round trip, however many they are.
	//
	// The caller owns what is returned. Errors: [ErrTooLarge] past [ReadCountMax].
	Read(ctx context.Context, set ReadSet) (Rows, error)
}

// Store is an ordered key-value store. Its methods may be called concurrently. All of them fail
// with [ErrUnavailable] while the store cannot be reached.
type Store interface {
	Reader

	// Snapshot returns a view of everything that is visible now, durable or not. The caller closes it.
	Snapshot(ctx context.Context) (Snapshot, error)

	// Apply checks the preconditions of batch and makes all of it visible, or none of it.
	//
	// Batches with a common key are served in the order of their arrival. The batch is only read and
	// may be reused when Apply returns. An empty batch is applied and durable immediately.
	//
	// Errors: [ErrConflict] when a precondition does not hold, [ErrTooLarge] past a limit,
	// [ErrUnavailable] when the store cannot be reached; then nothing has become visible. After
	// [ErrUnknown] the batch is visible or never will be. The state that caused a conflict may not be
	// durable yet. The context ends the wait for a turn; it has no effect once the batch is visible.
	Apply(ctx context.Context, batch *Batch) (Commit, error)

	// WaitDurable returns when every batch that wrote key, or deleted a range around it, and was
	// visible at the call is durable. It returns immediately when there is none, never waits for
	// batches that were applied after the call, and for at most one sync of the disk.
	WaitDurable(ctx context.Context, key []byte) error

	// Stats returns counters and sizes.
	Stats() Stats

	// Close waits for the calls under way, makes everything durable and releases the store; later
	// calls fail with [ErrClosed]. Snapshots that are still open expire.
	Close() error
}

// Rewinder is a [Store] that can lose what it has shown, as a database that fails over to a standby
// which lags behind. What was read before says nothing then about the present state.
type Rewinder interface {
	// OnRewind has call called when the store may have lost something, before any read returns of what
	// is left. call does not block, and does not use the store.
	OnRewind(call func())
	// Rewinds returns how often that has happened, the present time included while the functions of
	// OnRewind are called. See [Batch.RequireRewinds].
	Rewinds() uint64
}

// Fencer is a [Store] that several processes can have open at the same time.
type Fencer interface {
	// FenceOff ends the writing of all others that have the store open, also of those that are
	// suspended. When it returns, no batch of theirs becomes visible any more: Apply fails for them
	// with [ErrUnavailable]. They can read. Whoever opens the store later can write.
	FenceOff(ctx context.Context) error
}

// Snapshot is a view of a store at one instant. Its methods may be called concurrently. It can be
// read for [SnapshotAgeMax]; then reading it fails with [ErrSnapshotExpired]. A store that can have
// few at a time may end one earlier that was not read for a while.
type Snapshot interface {
	Reader

	// Close releases the snapshot; reading it afterwards fails with [ErrClosed]. Only the first call
	// has an effect.
	Close() error
}

// Commit is a batch that has become visible.
type Commit interface {
	// Wait returns nil when the batch is durable. When ctx ends first the batch stays visible and goes
	// on to become durable. It may be called any number of times, or never.
	Wait(ctx context.Context) error
}

// Pair is a key with its value.
type Pair struct {
	Key   []byte
	Value []byte
}

// ScanOptions selects the pairs that a scan visits. The zero value selects all of them.
type ScanOptions struct {
	// Start is the lowest key of the range; empty begins at the first key.
	Start []byte
	// End is above the highest key of the range; empty reaches to the last key.
	End []byte
	// Reverse visits the range from its last key to its first.
	Reverse bool
	// Limit ends the walk after that many pairs; 0 means no limit.
	Limit int
}

// ReadSet selects what [Reader.Read] returns.
type ReadSet struct {
	Keys   [][]byte
	Ranges []ScanOptions
}

// Rows is what [Reader.Read] found.
type Rows struct {
	// Values holds the value of each key of the set, nil where there is none; an empty value is not
	// nil.
	Values [][]byte
	// Pages holds the first pairs of each range of the set.
	Pages []Page
}

// Page is the first pairs of a range.
type Page struct {
	Pairs []Pair
	// More reports that the range goes on behind the page, which ended at its Limit, at [PageCountMax]
	// or at [PageBytesMax].
	More bool
}

// PrefixEnd returns the smallest key above every key that begins with prefix, or nil if there is
// none, as the End of a scan.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
