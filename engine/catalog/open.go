package catalog

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Lookup returns the row of a name. Errors: [refs.ErrRepositoryNotFound] for one that was never
// given; kv.ErrCorrupt.
func (c *Catalog[R]) Lookup(ctx context.Context, org, name string) (Name, error) {
	data, err := c.keys.Get(ctx, NameKey(org, name))
	if absent(err) {
		return Name{}, refs.ErrRepositoryNotFound
	}
	if err != nil {
		return Name{}, fmt.Errorf("read name of repository %q: %w", name, err)
	}
	return decodeName(data)
}

// Record returns the record of a repository, and its stored bytes, which a precondition compares.
// Errors: [refs.ErrRepositoryNotFound]; those of a record that cannot be decoded.
func (c *Catalog[R]) Record(ctx context.Context, id refs.RepoID) (record R, stored []byte, err error) {
	if stored, err = c.stored(ctx, id); err != nil {
		return record, nil, err
	}
	record, err = c.recordOf(id, stored, false)
	return record, stored, err
}

func (c *Catalog[R]) stored(ctx context.Context, id refs.RepoID) ([]byte, error) {
	stored, err := c.keys.Get(ctx, RecordKey(id))
	if absent(err) {
		return nil, refs.ErrRepositoryNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read record of repository %s: %w", id, err)
	}
	return stored, nil
}

// Open returns the record of the repository that an organization calls name, and its stored bytes,
// both of which are only read.
//
// A name that was opened before is read together with the record that it led to: at one instant, so
// that the two belong together whatever happens to the name meanwhile. The first time the record is
// read after the name, and may have another name by then.
//
// Errors: [refs.ErrRepositoryNotFound], also for a deleted one; kv.ErrCorrupt; those of a record
// that cannot be decoded.
func (c *Catalog[R]) Open(ctx context.Context, org, name string) (record R, stored []byte, err error) {
	key := NameKey(org, name)
	var row Name
	known, ok := c.names.Get(string(key))
	if !ok {
		row, err = c.Lookup(ctx, org, name)
	} else {
		row, stored, err = c.validate(ctx, key, known)
	}
	switch {
	case err != nil:
		return record, nil, err
	case row.Deleted:
		return record, nil, refs.ErrRepositoryNotFound
	case stored == nil:
		if stored, err = c.stored(ctx, row.ID); err != nil {
			return record, nil, err
		}
		c.names.Put(string(key), row.ID, int64(len(key)+nameBytes))
	}
	record, err = c.recordOf(row.ID, stored, true)
	return record, stored, err
}

// Recall returns the record to which a name led when it was opened last, and its stored bytes,
// without a look at the store; false if neither is remembered. [IsAsStored] tells from rows that
// the caller reads later whether it is so still.
func (c *Catalog[R]) Recall(org, name string) (record R, stored []byte, ok bool) {
	id, ok := c.names.Get(string(NameKey(org, name)))
	if !ok {
		return record, nil, false
	}
	known, ok := c.records.Get(id)
	return known.record, known.stored, ok
}

// IsAsStored reports whether the row of a name leads to the repository of an ID, and the row of
// that one has these bytes. Absent rows are nil.
func IsAsStored(nameRow, recordRow []byte, id refs.RepoID, stored []byte) bool {
	row, err := decodeName(nameRow)
	return err == nil && row == Name{ID: id} && recordRow != nil && bytes.Equal(recordRow, stored)
}

// validate returns the row of a name and, if it leads to the repository that it led to, the record.
func (c *Catalog[R]) validate(
	ctx context.Context, key []byte, known refs.RepoID,
) (row Name, stored []byte, err error) {
	rows, err := c.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{key, RecordKey(known)}})
	if err != nil {
		return row, nil, fmt.Errorf("read repository %s: %w", known, err)
	}
	if rows.Values[0] == nil { // renamed
		return row, nil, refs.ErrRepositoryNotFound
	}
	if row, err = decodeName(rows.Values[0]); err == nil && row.ID == known {
		stored = rows.Values[1]
	}
	return row, stored, err
}

// Listed reports whether a repository is found by its name and its number, as of one instant.
func (c *Catalog[R]) Listed(ctx context.Context, org, name string, number uint64, id refs.RepoID) (bool, error) {
	rows, err := c.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{NameKey(org, name), NumberKey(org, number)}})
	if err != nil {
		return false, fmt.Errorf("read name of repository %s: %w", id, err)
	}
	if rows.Values[0] == nil {
		return false, nil
	}
	row, err := decodeName(rows.Values[0])
	return row == Name{ID: id} && bytes.Equal(rows.Values[1], id[:]), err
}
