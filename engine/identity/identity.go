// Package identity keeps the ID of a store, and knows in the same row whether the repositories of
// the store are on their way into it, or have left it.
//
// Start at [Open], which every process calls before it uses a store. A [Row] with a [Mark] is that
// of a store which package migrate works on. The mark stands behind the ID, so that a program that
// knows no marks refuses the store: to it, the ID is too long.
package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"packhorse/odb/kv"
)

// Table is the first byte of every key: nothing -> the [Row]; 'f' -> the name of the place of the
// files, if that has one.
const Table = 'I'

// Size is the size of an ID in bytes; it is written in hexadecimal digits.
const Size = 16

// State is how far a store is on the way of its repositories. The zero value is a store that has
// them, and may be opened.
type State string

const (
	// Arriving is that of a store into which they are being copied.
	Arriving State = "arriving"
	// Leaving is that of a store from which they are being copied. Who opens it ends that.
	Leaving State = "leaving"
	// Left is that of a store from which they were moved.
	Left State = "left"
)

// Mark says what a migration does with a store.
type Mark struct {
	State State `json:"state"`
	// Migration is the same in both stores, however often the migration is resumed.
	Migration string `json:"migration"`
	// Run is another one for each process that works on the migration: the last one counts.
	Run string `json:"run"`
	// Place is the other store of the migration.
	Place string `json:"place"`
}

// Row is the ID of a store with its mark.
type Row struct {
	ID   string
	Mark Mark // of the zero value: none
}

// Key returns the key of the row.
func Key() []byte { return []byte{Table} }

// Encode returns the stored form of the row.
func (r Row) Encode() []byte {
	value, err := hex.DecodeString(r.ID)
	if err == nil && r.Mark != (Mark{}) {
		var text []byte
		text, err = json.Marshal(r.Mark)
		value = append(value, text...)
	}
	if err != nil || len(value) < Size {
		panic(fmt.Sprintf("identity: %q is no ID: %v", r.ID, err))
	}
	return value
}

// Read returns the row. Errors: [kv.ErrNotFound], [kv.ErrCorrupt].
func Read(ctx context.Context, keys kv.Reader) (Row, error) {
	value, err := keys.Get(ctx, Key())
	if err != nil {
		return Row{}, err
	}
	if len(value) < Size {
		return Row{}, fmt.Errorf("%w: the store's ID has %d bytes", kv.ErrCorrupt, len(value))
	}
	row := Row{ID: hex.EncodeToString(value[:Size])}
	if len(value) == Size {
		return row, nil
	}
	err = json.Unmarshal(value[Size:], &row.Mark)
	if state := row.Mark.State; err != nil || state != Arriving && state != Leaving && state != Left {
		return Row{}, fmt.Errorf("%w: the mark of the store is in no known state", kv.ErrCorrupt)
	}
	return row, nil
}

// Replace adds the step from one row to another to b, which fails with [kv.ErrConflict] when there
// is another row by now. The zero value of was is no row.
func Replace(b *kv.Batch, was, now Row) {
	if was == (Row{}) {
		b.RequireAbsent(Key())
	} else {
		b.Require(Key(), was.Encode())
	}
	b.Put(Key(), now.Encode())
}

// Facts that a caller decides on.
var (
	// ErrUnfinished says that the repositories are still being copied into a store.
	ErrUnfinished = errors.New("it holds an unfinished migration")
	// ErrMoved says that the repositories of a store were moved to another one.
	ErrMoved = errors.New("its repositories were moved")
)

// Usable returns why the store of the row must not be used, or nil. Errors: [ErrUnfinished],
// [ErrMoved].
func (r Row) Usable() error {
	switch r.Mark.State {
	case Arriving:
		return fmt.Errorf("%w from %s: run packhorse migrate again", ErrUnfinished, r.Mark.Place)
	case Left:
		return fmt.Errorf("%w to %s: use that, and remove what is left here", ErrMoved, r.Mark.Place)
	default:
		return nil
	}
}

// Open returns the ID of a store that may be used from now on, and gives it one if it has none. A
// restored store has that of the one that was backed up. A migration that copies the store can no
// longer end, and has to begin its comparison again.
//
// Errors: [ErrUnfinished], [ErrMoved], [kv.ErrCorrupt].
func Open(ctx context.Context, keys kv.Store) (string, error) {
	for {
		row, err := Read(ctx, keys)
		next := Row{ID: row.ID}
		switch {
		case errors.Is(err, kv.ErrNotFound):
			next.ID = drawID()
		case err != nil:
			return "", err
		case row.Usable() != nil:
			return "", row.Usable()
		case row.Mark.State != Leaving:
			return row.ID, nil
		}
		b := kv.NewBatch()
		Replace(b, row, next)
		err = apply(ctx, keys, b)
		if errors.Is(err, kv.ErrConflict) {
			continue // another process was quicker
		}
		if err != nil {
			return "", fmt.Errorf("store the ID of the store: %w", err)
		}
		return next.ID, nil
	}
}

func apply(ctx context.Context, keys kv.Store, b *kv.Batch) error {
	commit, err := keys.Apply(ctx, b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}

// drawID returns a new ID.
func drawID() string {
	id := make([]byte, Size)
	_, _ = rand.Read(id) // does not fail
	return hex.EncodeToString(id)
}

func placeKey() []byte { return []byte{Table, 'f'} }

// FilesPlace returns the name of the place that holds the files of a store, "" if none was noted.
func FilesPlace(ctx context.Context, keys kv.Reader) (string, error) {
	name, err := keys.Get(ctx, placeKey())
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return "", fmt.Errorf("read the place of the files: %w", err)
	}
	return string(name), nil
}

// PutFilesPlace adds the name of the place of the files to b.
func PutFilesPlace(b *kv.Batch, name string) { b.Put(placeKey(), []byte(name)) }

// NoteFilesPlace notes the name of the place that holds the files of a store for which none was
// noted. Errors: [kv.ErrConflict] when another process has noted one meanwhile.
func NoteFilesPlace(ctx context.Context, keys kv.Store, name string) error {
	b := kv.NewBatch()
	b.RequireAbsent(placeKey())
	PutFilesPlace(b, name)
	if err := apply(ctx, keys, b); err != nil {
		return fmt.Errorf("note the place of the files: %w", err)
	}
	return nil
}
