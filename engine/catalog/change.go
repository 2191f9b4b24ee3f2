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

// Vacancy is what a creation finds before it draws a number: the row of its name, and the last
// number of its organization.
type Vacancy struct {
	org, name string
	row       []byte // of the name; nil for none
	last      uint64
}

// Look reads the rows of a name for a new repository. Other keys are read in the same trip, and
// found has their values. Errors: kv.ErrCorrupt.
func (c *Catalog[R]) Look(
	ctx context.Context, org, name string, others ...[]byte,
) (v Vacancy, found [][]byte, err error) {
	v = Vacancy{org: org, name: name}
	rows, err := c.keys.Read(ctx, kv.ReadSet{Keys: append([][]byte{NameKey(org, name), CounterKey(org)}, others...)})
	if err != nil {
		return v, nil, fmt.Errorf("read name of repository %q: %w", name, err)
	}
	v.row = rows.Values[0]
	if counter := rows.Values[1]; counter != nil {
		if len(counter) != 8 {
			return v, nil, fmt.Errorf("%w: counter of %d bytes", kv.ErrCorrupt, len(counter))
		}
		v.last = binary.BigEndian.Uint64(counter)
	}
	return v, rows.Values[2:], nil
}

// Draw is [Catalog.Free] for the name of a vacancy, for which it also draws the next number of the
// organization: b depends on nobody having drawn it meanwhile. Creations that draw one after the
// other may have looked together: [Catalog.Drawn] tells the next one what the last one has drawn.
func (c *Catalog[R]) Draw(b *kv.Batch, v Vacancy) (number uint64, free bool, err error) {
	if free, err = requireFree(b, NameKey(v.org, v.name), v.row); err != nil || !free {
		return 0, false, err
	}
	last := v.last
	if drawn, ok := c.drawn.Get(v.org); ok {
		last = max(last, drawn)
	}
	counter := CounterKey(v.org)
	if last == 0 {
		b.RequireAbsent(counter)
	} else {
		b.Require(counter, binary.BigEndian.AppendUint64(nil, last))
	}
	b.Put(counter, binary.BigEndian.AppendUint64(nil, last+1))
	return last + 1, true, nil
}

// Drawn notes that a number was drawn by a batch that has been applied.
func (c *Catalog[R]) Drawn(org string, number uint64) {
	c.drawn.Put(org, number, int64(len(org)+nameBytes))
}

// Undrawn forgets the last number of an organization, after a batch has failed: somebody else has
// drawn it, or a failover has lost it.
func (c *Catalog[R]) Undrawn(org string) { c.drawn.Take(org) }

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
