package catalog

import (
	"context"
	"encoding/binary"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Free makes b depend on a name being free, and reports whether it is. Errors: kv.ErrCorrupt.
func (c *Catalog[R]) Free(ctx context.Context, b *kv.Batch, org, name string) (bool, error) {
	rows, err := c.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{NameKey(org, name)}})
	if err != nil {
		return false, fmt.Errorf("read name of repository %q: %w", name, err)
	}
	return requireFree(b, NameKey(org, name), rows.Values[0])
}

// requireFree is Free for a row that was read.
func requireFree(b *kv.Batch, key, stored []byte) (bool, error) {
	if stored == nil {
		b.RequireAbsent(key)
		return true, nil
	}
	row, err := decodeName(stored)
	if err != nil || !row.Deleted {
		return false, err
	}
	b.Require(key, stored)
	return true, nil
}

// Draw is Free for the name of a new repository, for which it also draws the next number of the
// organization: b depends on nobody having drawn it meanwhile.
func (c *Catalog[R]) Draw(ctx context.Context, b *kv.Batch, org, name string) (number uint64, free bool, err error) {
	key, counter := NameKey(org, name), CounterKey(org)
	rows, err := c.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{key, counter}})
	if err != nil {
		return 0, false, fmt.Errorf("read name of repository %q: %w", name, err)
	}
	if free, err = requireFree(b, key, rows.Values[0]); err != nil || !free {
		return 0, false, err
	}
	switch last := rows.Values[1]; {
	case last == nil:
		b.RequireAbsent(counter)
	case len(last) != 8:
		return 0, false, fmt.Errorf("%w: counter of %d bytes", kv.ErrCorrupt, len(last))
	default:
		b.Require(counter, last)
		number = binary.BigEndian.Uint64(last)
	}
	number++
	b.Put(counter, binary.BigEndian.AppendUint64(nil, number))
	return number, true, nil
}

// Add adds a repository to b, whose name and number [Catalog.Draw] has taken in the same batch.
func Add(b *kv.Batch, org, name string, number uint64, id refs.RepoID, record []byte) {
	b.Put(RecordKey(id), record)
	b.Put(NameKey(org, name), Name{ID: id}.encode())
	b.Put(NumberKey(org, number), id[:])
}

// Rename adds to b that a repository has another name, which [Catalog.Free] has found free in the
// same batch.
func Rename(b *kv.Batch, org, from, to string, id refs.RepoID) {
	b.Delete(NameKey(org, from))
	b.Put(NameKey(org, to), Name{ID: id}.encode())
}

// Remove adds the removal of a repository to b. Its name is free, and remembers it.
func Remove(b *kv.Batch, org, name string, number uint64, id refs.RepoID) {
	b.Delete(RecordKey(id))
	b.Put(NameKey(org, name), Name{ID: id, Deleted: true}.encode())
	b.Delete(NumberKey(org, number))
}
