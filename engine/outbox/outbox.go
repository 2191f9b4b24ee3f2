// Package outbox stores the transactions that the listeners of a host have not handled yet, so that
// they survive a crash.
//
// Start at [Outbox]. A transaction that matters to a listener adds a row in the batch that moves
// the refs, and notifies the listener when that is durable. Rows are only added, each under its own
// sequence; a listener removes the rows that it has handled in the batch that stores its own state.
// No row is written without a listener. The rows of a repository that is deleted go like its
// journal.
package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Table is the first byte of every key: listener, repository ID, sequence -> nothing.
const Table = 'O'

// Listener is a part of the host that is notified of committed changes of refs. Its number is in
// the keys of the outbox.
type Listener byte

// The listeners.
const (
	Upstream Listener = 'u'
	Webhook  Listener = 'w'
)

// listeners are all that a key of the outbox may name.
var listeners = []Listener{Upstream, Webhook}

// Subscription selects the changes that a listener is notified of. Its functions are called at any
// time, concurrently, and do not block.
type Subscription[R any] struct {
	Listener Listener
	// Wants reports whether a transaction of that cause on a repository may matter. It is called
	// for every try of a transaction that changes refs, at its end.
	Wants func(repo R, cause string) bool
	// Matters reports whether the change of a ref matters, by its stored name.
	Matters func(ref string) bool
	// Told is called when the outbox has another durable row of a repository. After a crash,
	// [Outbox.Repositories] yields the rows whose call was lost.
	Told func(id refs.RepoID, repo R)
}

// Outbox is the rows of all listeners in a key-value store. R describes a repository to the
// subscriptions. It may be used concurrently once all have subscribed.
type Outbox[R any] struct {
	keys          kv.Store
	subscriptions []Subscription[R]
}

// New returns the outbox of a store.
func New[R any](keys kv.Store) Outbox[R] { return Outbox[R]{keys: keys} }

// Subscribe adds a listener. All are added before the first transaction.
func (o *Outbox[R]) Subscribe(s Subscription[R]) { o.subscriptions = append(o.subscriptions, s) }

// Follow announces a transaction on a repository to the listeners.
func (o *Outbox[R]) Follow(change *refs.Change, id refs.RepoID, repo R) {
	if len(o.subscriptions) == 0 {
		return
	}
	var announced []*Subscription[R]
	change.Announce = func(b *kv.Batch, updates []refs.Entry) {
		announced = announced[:0]
		for i := range o.subscriptions {
			if s := &o.subscriptions[i]; s.Wants(repo, change.Cause) && s.anyOf(updates) {
				b.Put(keyOf(s.Listener, id, updates[0].Sequence), nil)
				announced = append(announced, s)
			}
		}
	}
	change.Announced = func() {
		for _, s := range announced {
			s.Told(id, repo)
		}
	}
}

func (s *Subscription[R]) anyOf(updates []refs.Entry) bool {
	for i := range updates {
		if s.Matters(updates[i].Ref) {
			return true
		}
	}
	return false
}

// Span is a stretch of a repository's journal.
type Span struct{ First, Last uint64 }

// Span returns the first and the last transaction after a sequence that a listener has not handled
// yet, and false if there is none. Some in between may not matter to it.
func (o *Outbox[R]) Span(
	ctx context.Context, l Listener, id refs.RepoID, after uint64,
) (s Span, found bool, err error) {
	start, end := keyOf(l, id, after+1), kv.PrefixEnd(prefixOf(l, id))
	rows, err := o.keys.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{
		{Start: start, End: end, Limit: 1}, {Start: start, End: end, Limit: 1, Reverse: true},
	}})
	if err != nil {
		return Span{}, false, fmt.Errorf("read outbox: %w", err)
	}
	for i, edge := range []*uint64{&s.First, &s.Last} {
		pairs := rows.Pages[i].Pairs
		if len(pairs) == 0 {
			return Span{}, false, nil
		}
		if _, *edge, err = positionOf(pairs[0].Key); err != nil {
			return Span{}, false, err
		}
	}
	return s, true, nil
}

// Ask adds to b a row that stands for no transaction: the listener is to work although nothing has
// changed. No span has it.
func Ask(b *kv.Batch, l Listener, id refs.RepoID) { b.Put(keyOf(l, id, 0), nil) }

// Asked reports whether there is the row of [Ask].
func (o *Outbox[R]) Asked(ctx context.Context, l Listener, id refs.RepoID) (bool, error) {
	_, err := o.keys.Get(ctx, keyOf(l, id, 0))
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read outbox: %w", err)
	}
	return true, nil
}

// Heed adds the removal of the row of [Ask] to b.
func Heed(b *kv.Batch, l Listener, id refs.RepoID) { b.Delete(keyOf(l, id, 0)) }

// Remove adds the removal of the rows of a span to b.
func (o *Outbox[R]) Remove(b *kv.Batch, l Listener, id refs.RepoID, s Span) {
	// Few deletions of keys are cheaper to read over afterwards than that of a range.
	if s.Last-s.First >= 64 {
		b.DeleteRange(keyOf(l, id, s.First), keyOf(l, id, s.Last+1))
		return
	}
	for sequence := s.First; sequence <= s.Last; sequence++ {
		b.Delete(keyOf(l, id, sequence))
	}
}

// Take is [Outbox.Remove] for a listener that works on several servers: the batch fails with
// kv.ErrConflict if another one has taken the first row of the span.
func (o *Outbox[R]) Take(b *kv.Batch, l Listener, id refs.RepoID, s Span) {
	b.Require(keyOf(l, id, s.First), nil)
	o.Remove(b, l, id, s)
}

// DropFor adds to b the removal of all rows of a repository for a listener.
func DropFor(b *kv.Batch, l Listener, id refs.RepoID) {
	prefix := prefixOf(l, id)
	b.DeleteRange(prefix, kv.PrefixEnd(prefix))
}

// Leftovers selects all rows of a repository. Those of a deleted one matter to no listener.
func Leftovers(id refs.RepoID) []kv.ScanOptions {
	var left []kv.ScanOptions
	for _, l := range listeners {
		prefix := prefixOf(l, id)
		left = append(left, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)})
	}
	return left
}

// Repositories walks the repositories with rows that a listener has not handled yet.
func (o *Outbox[R]) Repositories(ctx context.Context, l Listener) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		start, end := []byte{Table, byte(l)}, []byte{Table, byte(l) + 1}
		for start != nil {
			scan := kv.ScanOptions{Start: start, End: end}
			start = nil
			var last refs.RepoID
			rows := 0 // of last, so far
			for pair, err := range o.keys.Scan(ctx, scan) {
				var id refs.RepoID
				if err == nil {
					id, _, err = positionOf(pair.Key)
				} else {
					err = fmt.Errorf("read outbox: %w", err)
				}
				if rows++; err == nil && rows > 1 && id == last {
					if rows < rowsMax {
						continue
					}
					start = kv.PrefixEnd(prefixOf(l, id))
					break
				}
				if !yield(id, err) || err != nil {
					return
				}
				last, rows = id, 1
			}
		}
	}
}

// rowsMax is how many rows of one repository a walk over all reads before it goes over the rest.
const rowsMax = 64

func prefixOf(l Listener, id refs.RepoID) []byte {
	return append([]byte{Table, byte(l)}, id[:]...)
}

func keyOf(l Listener, id refs.RepoID, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(prefixOf(l, id), sequence)
}

// positionOf reads back what keyOf wrote.
func positionOf(key []byte) (id refs.RepoID, sequence uint64, err error) {
	if len(key) != 2+len(id)+8 {
		return id, 0, fmt.Errorf("%w: outbox key of %d bytes", kv.ErrCorrupt, len(key))
	}
	return refs.RepoID(key[2 : 2+len(id)]), binary.BigEndian.Uint64(key[2+len(id):]), nil
}
