package refs

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"packhorse/odb/kv"
)

// ReceiptKeyMax is the largest size of an idempotency key.
const ReceiptKeyMax = 255

// ReceiptKey is an idempotency key with the scope in which it is unique.
type ReceiptKey struct {
	Org      string
	Repo     string // the repository's ID, or the name of one that does not exist yet
	Endpoint string
	Key      string // 1 to ReceiptKeyMax visible ASCII characters
}

// Receipt asks for a transaction to happen at most once.
type Receipt struct {
	Key ReceiptKey
	// Request is the SHA-256 of the request; another request with the same key is refused.
	Request [sha256.Size]byte
}

// StoredReceipt is the stored result of a committed transaction with an idempotency key.
type StoredReceipt struct {
	Sequence uint64
	Result   []byte
}

// Check returns an error unless Key may be used. Errors: [ErrInvalidReceiptKey].
func (k ReceiptKey) Check() error {
	if k.Key == "" || len(k.Key) > ReceiptKeyMax ||
		strings.ContainsFunc(k.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ErrInvalidReceiptKey
	}
	return nil
}

// scope returns the storage key of the receipt.
func (k ReceiptKey) scope() [sha256.Size]byte {
	var text []byte
	for _, part := range []string{k.Org, k.Repo, k.Endpoint, k.Key} {
		text = appendString(text, part)
	}
	return sha256.Sum256(text)
}

// hourOf returns the bucket of receipts that are written at a time.
func hourOf(at time.Time) uint32 { return uint32(at.Unix() / 3600) }

// FindReceipt returns the result of an earlier equal request, and whether there was one.
//
// Errors: [ErrReceiptMismatch] when the key was used for another request; [ErrInvalidReceiptKey].
func (s *Store) FindReceipt(ctx context.Context, receipt *Receipt) (StoredReceipt, bool, error) {
	if err := receipt.Key.Check(); err != nil {
		return StoredReceipt{}, false, err
	}
	key, stored, err := s.findReceipt(ctx, receipt)
	if key == nil {
		return StoredReceipt{}, false, err
	}
	if waitErr := s.kv.WaitDurable(ctx, key); waitErr != nil {
		return StoredReceipt{}, false, waitErr
	}
	return stored, err == nil, err
}

// findReceipt searches all buckets that may hold a receipt. It returns the key of the row, or nil
// if there is none.
func (s *Store) findReceipt(ctx context.Context, receipt *Receipt) ([]byte, StoredReceipt, error) {
	keys := s.receiptKeys(receipt, s.options.Now().Add(-s.options.ReceiptAge))
	values, err := readKeys(ctx, s.kv, keys)
	if err != nil {
		return nil, StoredReceipt{}, fmt.Errorf("read receipt: %w", err)
	}
	at := slices.IndexFunc(values, isPresent)
	if at < 0 {
		return nil, StoredReceipt{}, nil
	}
	stored, err := decodeReceipt(values[at], receipt)
	return keys[at], stored, err
}

// receiptKeys returns the key of a receipt in each bucket from now back to a time, and in an hour
// more at both ends for clocks of other servers that differ.
func (s *Store) receiptKeys(receipt *Receipt, since time.Time) (keys [][]byte) {
	scope := receipt.Key.scope()
	for hour := hourOf(s.options.Now()) + 1; hour+1 >= hourOf(since); hour-- {
		keys = append(keys, receiptKey(hour, scope))
	}
	return keys
}

// PutReceipt adds a receipt to batch: for batches that do not go through [Store.Update], where
// [Tx.SetResult] does the same.
//
// The batch fails with kv.ErrConflict if an equal request has stored a receipt in the same hour.
// Equal requests in different hours must conflict at another precondition of the batch; then
// FindReceipt returns the result.
func (s *Store) PutReceipt(batch *kv.Batch, receipt *Receipt, stored StoredReceipt) {
	key := receiptKey(hourOf(s.options.Now()), receipt.Key.scope())
	batch.RequireAbsent(key)
	batch.Put(key, appendReceipt(nil, receipt, stored))
}

// DropReceipts removes the receipts that are older than Options.ReceiptAge.
func (s *Store) DropReceipts(ctx context.Context) error {
	oldest := hourOf(s.options.Now().Add(-s.options.ReceiptAge)) - 1
	batch := kv.NewBatch()
	batch.DeleteRange([]byte{receiptTable}, binary.BigEndian.AppendUint32([]byte{receiptTable}, oldest))
	_, err := s.kv.Apply(ctx, batch)
	return err
}

// appendReceipt appends the value of a receipt: version(1) request(32) sequence(uvarint) result.
func appendReceipt(dst []byte, receipt *Receipt, stored StoredReceipt) []byte {
	dst = append(append(dst, rowVersion), receipt.Request[:]...)
	return append(binary.AppendUvarint(dst, stored.Sequence), stored.Result...)
}

func decodeReceipt(value []byte, receipt *Receipt) (StoredReceipt, error) {
	d := decoder{rest: value}
	d.version()
	request := d.take(sha256.Size)
	stored := StoredReceipt{Sequence: d.uvarint(), Result: d.rest}
	if d.err != nil {
		return StoredReceipt{}, fmt.Errorf("read receipt: %w", d.err)
	}
	if string(request) != string(receipt.Request[:]) {
		return StoredReceipt{}, ErrReceiptMismatch
	}
	return stored, nil
}
