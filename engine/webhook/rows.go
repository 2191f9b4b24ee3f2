package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// table is the first byte of the package's keys, a kind of row the second.
//
//	w h hook                               a hook: hookRow
//	w s hook repo                          how far into a journal a hook is, while it is not at its end: stream
//	w p hook repo sequence(8) index(4)     an event that failed: delivery
//	w b hook repo ref                      events of the ref that wait in the journal: waiting
//	w o hook                               the lane that works on the hook: random bytes
//	w d hook repo sequence(8) index(4)     a dead letter: delivery
//	w r hook                               nothing: a server that does not send has revived dead letters
//
// Numbers are big endian. All other values are JSON.
const table = 'w'

// Kinds of rows.
const (
	kindHook    = 'h'
	kindStream  = 's'
	kindParked  = 'p'
	kindWaiting = 'b'
	kindOwner   = 'o'
	kindDead    = 'd'
	kindRevived = 'r'
)

// errCorrupt says that a row of this package failed a check.
var errCorrupt = errors.New("webhook: stored data is damaged")

// hookID says which hook a row is of.
type hookID [16]byte

func newHookID(org, url string) hookID {
	sum := sha256.Sum256([]byte(org + "\x00" + url))
	return hookID(sum[:16])
}

// hookRow names a hook that has had something to send.
type hookRow struct {
	Org string `json:"org"`
	URL string `json:"url"`
}

// stream is a stretch of a journal that a hook has yet to deal with: from Next to the transaction
// Last.
type stream struct {
	Next  position  `json:"next"`
	Last  uint64    `json:"last"`
	Since time.Time `json:"since"` // nothing that is left of it is older
}

// delivery is an event with the outcome of its attempts.
type delivery struct {
	Event    Event `json:"event"`
	Attempts int   `json:"attempts,omitempty"`
	// Of the first attempt, or of the transaction if it had to wait for another event of its ref.
	Since time.Time `json:"since,omitzero"`
	Next  time.Time `json:"next,omitzero"`   // when to try again
	Error string    `json:"error,omitempty"` // of the last attempt
	Died  time.Time `json:"died,omitzero"`
	Lost  bool      `json:"lost,omitempty"` // the journal was trimmed: there is no event to send
}

func hookPrefix(kind byte, hook hookID) []byte { return append([]byte{table, kind}, hook[:]...) }

func streamKey(hook hookID, repo refs.RepoID) []byte {
	return append(hookPrefix(kindStream, hook), repo[:]...)
}

func eventKey(kind byte, hook hookID, repo refs.RepoID, at position) []byte {
	key := append(hookPrefix(kind, hook), repo[:]...)
	key = binary.BigEndian.AppendUint64(key, at.Sequence)
	return binary.BigEndian.AppendUint32(key, at.Index)
}

func waitingKey(hook hookID, ref refKey) []byte {
	key := append(hookPrefix(kindWaiting, hook), ref.repo[:]...)
	return append(key, ref.name...)
}

// waitingKeyMin is the size of the keys that waitingKey makes, but for the name of the ref.
const waitingKeyMin = 2 + len(hookID{}) + len(refs.RepoID{})

// waitingRef reads back what waitingKey wrote.
func waitingRef(key []byte) (refKey, error) {
	if len(key) < waitingKeyMin {
		return refKey{}, fmt.Errorf("%w: key of %d bytes", errCorrupt, len(key))
	}
	repo := refs.RepoID(key[waitingKeyMin-len(refs.RepoID{}) : waitingKeyMin])
	return refKey{repo, string(key[waitingKeyMin:])}, nil
}

// eventKeySize is that of the keys that eventKey makes.
const eventKeySize = 2 + len(hookID{}) + len(refs.RepoID{}) + 8 + 4

// eventPosition reads back what eventKey wrote.
func eventPosition(key []byte) (repo refs.RepoID, at position, err error) {
	if len(key) != eventKeySize {
		return repo, at, fmt.Errorf("%w: key of %d bytes", errCorrupt, len(key))
	}
	rest := key[2+len(hookID{}):]
	repo, rest = refs.RepoID(rest[:len(repo)]), rest[len(repo):]
	return repo, position{binary.BigEndian.Uint64(rest), binary.BigEndian.Uint32(rest[8:])}, nil
}

// put adds a row. Rows are small and always encode.
func put(b *kv.Batch, key []byte, row any) error {
	value, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode row: %w", err)
	}
	b.Put(key, value)
	return nil
}

func decodeRow[T any](value []byte) (row T, err error) {
	if err := json.Unmarshal(value, &row); err != nil {
		return row, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return row, nil
}

// readStream returns a stream, and false when the hook is at the end of the journal.
func (d *Deliverer) readStream(ctx context.Context, hook hookID, repo refs.RepoID) (stream, bool, error) {
	key := streamKey(hook, repo)
	value, err := d.KV.Get(ctx, key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return stream{}, false, fmt.Errorf("read cursor: %w", err)
	}
	return requireStream(kv.NewBatch(), key, value)
}

// requireStream decodes a stream, nil for none, and makes b depend on it: the lane and the reader
// of the outbox, here and on other servers, change it.
func requireStream(b *kv.Batch, key, value []byte) (stream, bool, error) {
	if value == nil {
		b.RequireAbsent(key)
		return stream{}, false, nil
	}
	b.Require(key, value)
	row, err := decodeRow[stream](value)
	return row, err == nil, err
}

// scan walks the rows below a prefix. A damaged one comes with its key and errCorrupt, and the walk
// may go on.
func scan[T any](ctx context.Context, keys kv.Store, prefix []byte) iter.Seq2[keyed[T], error] {
	return func(yield func(keyed[T], error) bool) {
		for pair, err := range keys.Scan(ctx, kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
			if err != nil {
				yield(keyed[T]{}, fmt.Errorf("read webhooks: %w", err))
				return
			}
			row, err := decodeRow[T](pair.Value)
			if !yield(keyed[T]{pair.Key, pair.Value, row}, err) {
				return
			}
		}
	}
}

// keyed is a row with its key and its stored value, whose memory is valid until the next step of
// the walk.
type keyed[T any] struct {
	key, value []byte
	row        T
}

// forget adds the removal of all rows of a hook to b.
func forget(b *kv.Batch, hook hookID) {
	for _, kind := range []byte{kindHook, kindOwner, kindStream, kindParked, kindWaiting, kindDead} {
		prefix := hookPrefix(kind, hook)
		b.DeleteRange(prefix, kv.PrefixEnd(prefix))
	}
}
