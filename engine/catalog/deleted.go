package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Kinds of keys in the table of deleted repositories that may come back.
const (
	deletedRecord = 'r' // repository id -> Deletion
	deletedList   = 'l' // organization, NUL, time of the deletion in Unix milliseconds(8), repository id -> nothing
)

// Deletion is a deleted repository that may come back: what it needs for that, and what is told of
// it meanwhile.
type Deletion struct {
	Org    string          `json:"org"`
	Record json.RawMessage `json:"record"`
	Head   []byte          `json:"head"` // see [refs.Store.Revive]
	// Sequence is that of the deletion in the journal.
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Actor    string    `json:"actor,omitempty"`
	// Bytes is what its own layers took when it was deleted.
	Bytes int64 `json:"bytes"`
}

// DeletedKey is the key of a deleted repository, whose value is a [Deletion].
func DeletedKey(id refs.RepoID) []byte { return append([]byte{tableDeleted, deletedRecord}, id[:]...) }

// Deletions selects the deleted repositories of all organizations; each value is a [Deletion].
func Deletions() kv.ScanOptions {
	start := []byte{tableDeleted, deletedRecord}
	return kv.ScanOptions{Start: start, End: kv.PrefixEnd(start)}
}

func listPrefix(org string) []byte {
	key := make([]byte, 0, 2+len(org)+1+listBytes)
	return append(append(append(key, tableDeleted, deletedList), org...), 0)
}

// listBytes is the size of what follows the organization in the key of a list.
const listBytes = 8 + len(refs.RepoID{})

func listKey(org string, at time.Time, id refs.RepoID) []byte {
	return DeletedPosition{uint64(at.UnixMilli()), id}.Append(listPrefix(org))
}

// DecodeDeletion returns the value of a [DeletedKey]. Errors: kv.ErrCorrupt.
func DecodeDeletion(data []byte) (d Deletion, err error) {
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%w: deleted repository: %w", kv.ErrCorrupt, err)
	}
	return d, nil
}

// Park is [Remove] for a repository that may come back: b has the deletion as well, with its name
// free.
func Park(b *kv.Batch, name string, number uint64, id refs.RepoID, d *Deletion) error {
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode deleted repository %s: %w", id, err)
	}
	Remove(b, d.Org, name, number, id)
	b.Put(DeletedKey(id), value)
	b.Put(listKey(d.Org, d.Time, id), nil)
	return nil
}

// Forget adds to b that a deleted repository is none any more: it comes back, or goes for good. b
// fails with kv.ErrConflict unless it is stored as it was read.
func Forget(b *kv.Batch, id refs.RepoID, d *Deletion, stored []byte) {
	b.Require(DeletedKey(id), stored)
	b.Delete(DeletedKey(id))
	b.Delete(listKey(d.Org, d.Time, id))
}

// ForgetName adds to b that a name has never been given, if its row says that the repository was
// the last one of that name.
func ForgetName(b *kv.Batch, org, name string, row Name, id refs.RepoID) {
	if row == (Name{ID: id, Deleted: true}) {
		b.Require(NameKey(org, name), row.encode())
		b.Delete(NameKey(org, name))
	}
}

// Deletion returns a deleted repository, and its stored bytes, which a precondition compares.
// Errors: [refs.ErrRepositoryNotFound]; kv.ErrCorrupt.
func (c *Catalog[R]) Deletion(ctx context.Context, id refs.RepoID) (d Deletion, stored []byte, err error) {
	stored, err = c.keys.Get(ctx, DeletedKey(id))
	if absent(err) {
		return d, nil, refs.ErrRepositoryNotFound
	}
	if err != nil {
		return d, nil, fmt.Errorf("read deleted repository %s: %w", id, err)
	}
	d, err = DecodeDeletion(stored)
	return d, stored, err
}

// DeletedPositionBytes is the size of a [DeletedPosition] as [DeletedPosition.Append] writes it.
const DeletedPositionBytes = listBytes

// Append appends the position to dst.
func (p DeletedPosition) Append(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, p.millis), p.id[:]...)
}

// ReadDeletedPosition returns the position that Append wrote; data has DeletedPositionBytes.
func ReadDeletedPosition(data []byte) DeletedPosition {
	return DeletedPosition{binary.BigEndian.Uint64(data), refs.RepoID(data[8:])}
}

// Deleted is a deleted repository in a list.
type Deleted struct {
	ID refs.RepoID
	Deletion
	Stored []byte // as [Catalog.Deletion] returns it
}

// DeletedPosition is a place in the list of an organization's deleted repositories, behind one of
// them; the zero position is before the first.
type DeletedPosition struct {
	millis uint64
	id     refs.RepoID
}

// Position is the place behind a deleted repository.
func (d *Deleted) Position() DeletedPosition {
	return DeletedPosition{uint64(d.Time.UnixMilli()), d.ID}
}

// AllDeleted walks the deleted repositories of an organization in the order of their deletion, from
// behind a position on, so many at a time, or as many as one read allows for 0. Those that come
// back or go meanwhile are left out. Errors: kv.ErrCorrupt.
func (c *Catalog[R]) AllDeleted(
	ctx context.Context, org string, after DeletedPosition, pace int,
) iter.Seq2[Deleted, error] {
	return func(yield func(Deleted, error) bool) {
		fail := func(err error) {
			yield(Deleted{}, fmt.Errorf("list deleted repositories of %s: %w", org, err))
		}
		prefix := listPrefix(org)
		next := kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix), Limit: entriesMax}
		if pace > 0 {
			next.Limit = min(pace, entriesMax)
		}
		if after != (DeletedPosition{}) {
			next.Start = append(after.Append(listPrefix(org)), 0)
		}
		for more := true; more; next.Limit = min(4*next.Limit, entriesMax) {
			rows, err := c.keys.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{next}})
			if err != nil {
				fail(err)
				return
			}
			listed := rows.Pages[0].Pairs
			if len(listed) == 0 {
				return
			}
			more = rows.Pages[0].More || len(listed) == next.Limit
			next.Start = append(listed[len(listed)-1].Key, 0)
			var set kv.ReadSet
			ids := make([]refs.RepoID, len(listed))
			for i, pair := range listed {
				if len(pair.Key) != len(prefix)+listBytes {
					fail(fmt.Errorf("%w: key of %d bytes", kv.ErrCorrupt, len(pair.Key)))
					return
				}
				ids[i] = refs.RepoID(pair.Key[len(prefix)+8:])
				set.Keys = append(set.Keys, DeletedKey(ids[i]))
			}
			if rows, err = c.keys.Read(ctx, set); err != nil {
				fail(err)
				return
			}
			for i, stored := range rows.Values {
				if stored == nil {
					continue
				}
				d, err := DecodeDeletion(stored)
				if !yield(Deleted{ID: ids[i], Deletion: d, Stored: stored}, err) || err != nil {
					return
				}
			}
		}
	}
}

// DeletingOrgs walks the organizations that have deleted repositories. Errors: kv.ErrCorrupt.
func (c *Catalog[R]) DeletingOrgs(ctx context.Context) iter.Seq2[string, error] {
	return c.orgsOf(ctx, "deleted repositories", []byte{tableDeleted, deletedList}, listBytes)
}
