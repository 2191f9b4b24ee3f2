// Package intent notes in the key-value store which files are about to be stored in a file.Remote,
// such as a bucket, where nothing else would tell of what a killed server has left.
//
// Start at [Open]. The row of an intent is durable before anything of its files is sent, and goes
// in the batch that registers them, which requires it. A [Files.Collect] takes the intents of
// servers that have gone: it changes their rows, so that those batches fail from then on. Of a
// server that was taken for dead and a collector exactly one wins. What is taken is removed, and
// then its row. The map, by file:
//
//	intent     the stored rows
//	files      Files, a file.Store that notes intents
//	pending    one intent of this process
//	collect    the collector
//	probe      files that a start tries the store with
package intent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
)

// Table is the first byte of every key. The rest is drawn at random.
const Table = 'p'

// format is the first byte of every row.
const format = 1

// keySize is the size of every key.
const keySize = 1 + 16

// ErrTaken says that another server took this one for dead, and removes the files that it was about
// to register.
var ErrTaken = errors.New("another server has taken over the files of this one, which it did not hear of")

// ServerID identifies a process among those that share the stores, from its joining to its end.
type ServerID = [16]byte

// nobody is the server of an intent that a collector has taken.
var nobody ServerID

// Servers are the processes that share the stores.
type Servers interface {
	// Own returns the ID of this process. It fails when the others may have removed it.
	Own(ctx context.Context) (ServerID, error)
	// Live returns the processes that have joined and were not removed since. An ID that is missing
	// never comes back.
	Live(ctx context.Context) (map[ServerID]struct{}, error)
}

// row is a stored intent.
//
//	1 format, 1 | 16 server | uvarint number of files | for each: string name, string upload
type row struct {
	server ServerID // nobody: taken
	files  []noted
}

// noted is a file of an intent.
type noted struct {
	name   string
	upload string // of parts, empty: none was begun
}

func newKey() []byte {
	key := make([]byte, keySize)
	key[0] = Table
	_, _ = rand.Read(key[1:]) // does not fail
	return key
}

func (r *row) encode() []byte {
	dst := append([]byte{format}, r.server[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(r.files)))
	for _, f := range r.files {
		for _, text := range []string{f.name, f.upload} {
			dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
		}
	}
	return dst
}

func decode(value []byte) (row, error) {
	malformed := fmt.Errorf("%w: intent %x", kv.ErrCorrupt, value)
	if len(value) < 1+len(nobody) || value[0] != format {
		return row{}, malformed
	}
	r := row{server: ServerID(value[1:][:len(nobody)])}
	rest, whole := value[1+len(nobody):], true
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) { // what is counted takes a byte each
			whole = false
			return 0
		}
		rest = rest[size:]
		return n
	}
	text := func() string {
		n := number()
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	for range number() {
		f := noted{name: text(), upload: text()}
		r.files = append(r.files, f)
		whole = whole && f.name != ""
		if !whole {
			break
		}
	}
	if !whole || len(rest) > 0 || len(r.files) == 0 {
		return row{}, malformed
	}
	return r, nil
}

// rows walks all intents. A row that cannot be read comes as an error that matches kv.ErrCorrupt,
// and ends nothing.
func rows(ctx context.Context, keys kv.Reader) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		for pair, err := range keys.Scan(ctx, kv.ScanOptions{Start: []byte{Table}, End: []byte{Table + 1}}) {
			if err != nil {
				yield(stored{}, fmt.Errorf("read intents: %w", err))
				return
			}
			r, err := decode(pair.Value)
			if err == nil && len(pair.Key) != keySize {
				err = fmt.Errorf("%w: key %x is no intent's", kv.ErrCorrupt, pair.Key)
			}
			if !yield(stored{key: string(pair.Key), value: string(pair.Value), row: r}, err) {
				return
			}
		}
	}
}

// stored is an intent as it was read.
type stored struct {
	key, value string
	row        row
}

// Check walks the intents that cannot be read.
func Check(ctx context.Context, keys kv.Reader) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range rows(ctx, keys) {
			if err != nil && !yield(err) {
				return
			}
		}
	}
}

// apply commits a batch, and returns when it is durable.
func apply(ctx context.Context, keys kv.Store, b *kv.Batch) error {
	commit, err := keys.Apply(ctx, b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}
