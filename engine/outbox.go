package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// causeImport is the cause of changes through `+import`: old history, which is not announced.
const causeImport = "import"

// listener is a part of the host that is notified of committed changes of refs. Its number is in
// the keys of the outbox.
type listener byte

// The listeners.
const (
	upstreamListener listener = 'u'
	webhookListener  listener = 'w'
)

// listeners are all that a key of the outbox may name.
var listeners = []listener{upstreamListener, webhookListener}

// subscription selects the changes that a listener is notified of. Its functions are called at any
// time, concurrently, and do not block.
type subscription struct {
	listener listener
	// wants reports whether a transaction of that cause on a repository may matter. It is called
	// for every transaction.
	wants func(rec *record, cause string) bool
	// matters reports whether the change of a ref matters, by its stored name.
	matters func(ref string) bool
	// told is called when the outbox has another durable row of a repository. After a crash,
	// [outbox.repositories] yields the rows whose call was lost.
	told func(id refs.RepoID)
}

// outbox stores the transactions that the listeners have not handled yet, so that they survive a
// crash.
//
// A transaction that matters to a listener adds a row in the batch that moves the refs, and
// notifies the listener when that is durable. Rows are only added, each under its own sequence; a
// listener removes the rows that it has handled in the batch that stores its own state, without a
// precondition. No row is written without a listener, nor for an import, nor for the refs that a
// repository is created with. A repository that is deleted takes its rows along: its journal goes
// too.
type outbox struct {
	keys          kv.Store
	subscriptions []subscription
}

// subscribe adds a listener. All are added before the first transaction.
func (o *outbox) subscribe(s subscription) { o.subscriptions = append(o.subscriptions, s) }

// follow announces a transaction on a repository to the listeners.
func (o *outbox) follow(change *refs.Change, rec *record) {
	if change.Cause == causeImport {
		return
	}
	var hearing []*subscription
	for i := range o.subscriptions {
		if s := &o.subscriptions[i]; s.wants(rec, change.Cause) {
			hearing = append(hearing, s)
		}
	}
	if hearing == nil {
		return
	}
	var announced []*subscription
	change.Announce = func(b *kv.Batch, updates []refs.Entry) {
		announced = announced[:0]
		for _, s := range hearing {
			if s.anyOf(updates) {
				b.Put(outboxKey(s.listener, rec.ID, updates[0].Sequence), nil)
				announced = append(announced, s)
			}
		}
	}
	change.Announced = func() {
		for _, s := range announced {
			s.told(rec.ID)
		}
	}
}

func (s *subscription) anyOf(updates []refs.Entry) bool {
	for i := range updates {
		if s.matters(updates[i].Ref) {
			return true
		}
	}
	return false
}

// span is a stretch of a repository's journal.
type span struct{ first, last uint64 }

// span returns the first and the last transaction after a sequence that a listener has not handled
// yet, and false if there is none. Some in between may not matter to it.
func (o *outbox) span(ctx context.Context, l listener, id refs.RepoID, after uint64) (s span, found bool, err error) {
	scan := kv.ScanOptions{Start: outboxKey(l, id, after+1), End: kv.PrefixEnd(outboxPrefix(l, id)), Limit: 1}
	for _, end := range []*uint64{&s.first, &s.last} {
		found = false
		for pair, err := range o.keys.Scan(ctx, scan) {
			if err != nil {
				return span{}, false, fmt.Errorf("read outbox: %w", err)
			}
			if _, *end, err = outboxPosition(pair.Key); err != nil {
				return span{}, false, err
			}
			found = true
		}
		if !found { // rows added between the two reads announce themselves
			return span{}, false, nil
		}
		scan.Reverse = true
	}
	return s, true, nil
}

// remove adds the removal of the rows of a span to b.
func (o *outbox) remove(b *kv.Batch, l listener, id refs.RepoID, s span) {
	// Few deletions of keys are cheaper to read over afterwards than that of a range.
	if s.last-s.first >= 64 {
		b.DeleteRange(outboxKey(l, id, s.first), outboxKey(l, id, s.last+1))
		return
	}
	for sequence := s.first; sequence <= s.last; sequence++ {
		b.Delete(outboxKey(l, id, sequence))
	}
}

// drop adds the removal of all rows of a repository to b.
func (o *outbox) drop(b *kv.Batch, id refs.RepoID) {
	for _, l := range listeners {
		prefix := outboxPrefix(l, id)
		b.DeleteRange(prefix, kv.PrefixEnd(prefix))
	}
}

// repositories walks the repositories with rows that a listener has not handled yet.
func (o *outbox) repositories(ctx context.Context, l listener) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		start, end := []byte{tableOutbox, byte(l)}, []byte{tableOutbox, byte(l) + 1}
		for {
			id, err := o.firstRepository(ctx, start, end)
			if errors.Is(err, kv.ErrNotFound) || !yield(id, err) || err != nil {
				return
			}
			start = kv.PrefixEnd(outboxPrefix(l, id))
		}
	}
}

func (o *outbox) firstRepository(ctx context.Context, start, end []byte) (refs.RepoID, error) {
	for pair, err := range o.keys.Scan(ctx, kv.ScanOptions{Start: start, End: end, Limit: 1}) {
		if err != nil {
			return refs.RepoID{}, fmt.Errorf("read outbox: %w", err)
		}
		id, _, err := outboxPosition(pair.Key)
		return id, err
	}
	return refs.RepoID{}, kv.ErrNotFound
}

func outboxPrefix(l listener, id refs.RepoID) []byte {
	return append([]byte{tableOutbox, byte(l)}, id[:]...)
}

func outboxKey(l listener, id refs.RepoID, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(outboxPrefix(l, id), sequence)
}

// outboxPosition reads back what outboxKey wrote.
func outboxPosition(key []byte) (id refs.RepoID, sequence uint64, err error) {
	if len(key) != 2+len(id)+8 {
		return id, 0, fmt.Errorf("%w: outbox key of %d bytes", ErrCorrupt, len(key))
	}
	return refs.RepoID(key[2 : 2+len(id)]), binary.BigEndian.Uint64(key[2+len(id):]), nil
}
