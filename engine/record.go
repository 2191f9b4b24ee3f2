package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/upstream"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// The tables of this package: the first byte of every key. Ids follow as raw bytes, an organization
// ends in a NUL.
const (
	tableRecord  = 'R' // repository id -> record
	tableName    = 'N' // organization, name -> nameRow
	tableNumber  = 'n' // organization, number -> repository id; the order of creation
	tableCounter = 'q' // organization -> the number of its last creation

	tableScrub   = 'x' // the repository that the scrubber is at
	tableStoreID = 'I' // the id of the store
	tableRound   = 'y' // when the last round of maintenance began
)

func recordKey(id refs.RepoID) []byte { return append([]byte{tableRecord}, id[:]...) }

func nameKey(org, name string) []byte { return append(orgKey(tableName, org), name...) }

func numberKey(org string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(orgKey(tableNumber, org), number)
}

func counterKey(org string) []byte { return orgKey(tableCounter, org) }

func orgKey(table byte, org string) []byte {
	key := make([]byte, 0, 1+len(org)+1+64)
	key = append(key, table)
	key = append(key, org...)
	return append(key, 0)
}

// record is a repository as it is stored, under table R. Only its name and its default branch
// change until it is deleted; every transaction on the repository requires the record as it read
// it.
type record struct {
	ID            refs.RepoID `json:"-"`
	Org           string      `json:"org"`
	Name          string      `json:"name"`
	Renamed       bool        `json:"renamed,omitempty"`
	Number        uint64      `json:"number"`
	DefaultBranch string      `json:"default_branch"`
	Chosen        chosenBy    `json:"chosen,omitempty"`
	Created       time.Time   `json:"created"`
	Pool          odb.PoolID  `json:"pool"`
	// Upstream is the upstream given at the creation. In an open repository, it is nil after a
	// detachment.
	Upstream *upstream.Origin `json:"upstream,omitempty"`
}

// chosenBy says how the default branch was chosen.
type chosenBy string

const (
	chosenAtCreation chosenBy = ""       // by the creating request, or by its base
	chosenByNobody   chosenBy = "nobody" // it is "main" until the first branch comes
	chosenLater      chosenBy = "later"  // the first branch that came, or a call that moved it
)

// nameRow is the row of a name in table N: the repository of that name, or the last one of that
// name after its deletion.
type nameRow struct {
	id      refs.RepoID
	deleted bool
}

func (n nameRow) encode() []byte {
	state := byte(0)
	if n.deleted {
		state = 1
	}
	return append([]byte{state}, n.id[:]...)
}

func decodeNameRow(data []byte) (nameRow, error) {
	if len(data) != 1+len(refs.RepoID{}) || data[0] > 1 {
		return nameRow{}, fmt.Errorf("%w: name row of %d bytes", ErrCorrupt, len(data))
	}
	return nameRow{id: refs.RepoID(data[1:]), deleted: data[0] == 1}, nil
}

// lookupName returns the row of a name. Errors: [ErrNotFound].
func lookupName(ctx context.Context, r kv.Reader, org, name string) (nameRow, error) {
	data, err := r.Get(ctx, nameKey(org, name))
	if errors.Is(err, kv.ErrNotFound) {
		return nameRow{}, notFound("repository %q not found", name)
	}
	if err != nil {
		return nameRow{}, fmt.Errorf("read name of repository %q: %w", name, err)
	}
	return decodeNameRow(data)
}

// readRecord returns the record of a repository and its stored bytes, which a precondition
// compares.
func readRecord(ctx context.Context, r kv.Reader, id refs.RepoID) (record, []byte, error) {
	data, err := r.Get(ctx, recordKey(id))
	if errors.Is(err, kv.ErrNotFound) {
		return record{}, nil, notFound("repository %s not found", id)
	}
	if err != nil {
		return record{}, nil, fmt.Errorf("read record of repository %s: %w", id, err)
	}
	rec, err := decodeRecord(id, data)
	return rec, data, err
}

func decodeRecord(id refs.RepoID, data []byte) (record, error) {
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		return record{}, fmt.Errorf("%w: record of repository %s: %w", ErrCorrupt, id, err)
	}
	rec.ID = id
	return rec, nil
}

func (r *record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of repository %s: %w", r.ID, err)
	}
	return data, nil
}

// item is the record as answers show it.
func (r *record) item() Item {
	item := Item{ID: r.ID, Name: r.Name, DefaultBranch: r.DefaultBranch, Created: r.Created}
	if r.Upstream != nil {
		item.Base = &ItemBase{Provider: r.Upstream.Provider, Owner: r.Upstream.Owner, Name: r.Upstream.Name}
	}
	return item
}

// Item is a repository in a listing.
type Item struct {
	ID            refs.RepoID
	Name          string
	DefaultBranch string
	Created       time.Time
	// Base is the upstream, nil without one.
	Base *ItemBase `json:",omitempty"`
}

// ItemBase names an upstream.
type ItemBase struct{ Provider, Owner, Name string }

// CheckRepositoryName returns why name cannot be a repository's, or nil. Errors: [ErrInvalid].
func CheckRepositoryName(name string) error {
	if err := refs.CheckRepositoryName(name); err != nil {
		return invalid("%v", err)
	}
	return nil
}
