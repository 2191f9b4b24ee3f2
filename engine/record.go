package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/upstream"
	"packhorse/odb"
	"packhorse/refs"
)

// The tables of this package: the first byte of every key.
const (
	tableScrub = 'x' // the repository that the scrubber is at
	tableRound = 'y' // when the last round of maintenance began
)

// record is a repository as it is stored in the catalog. Only its name and its default branch
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
	// PastDefaults are the former default branches, the oldest first.
	PastDefaults []pastDefault `json:"past_defaults,omitempty"`
	Created      time.Time     `json:"created"`
	Pool         odb.PoolID    `json:"pool"`
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

// lookupName returns the row of a name. Errors: [ErrNotFound].
func (h *Host) lookupName(ctx context.Context, org, name string) (catalog.Name, error) {
	row, err := h.catalog.Lookup(ctx, org, name)
	if errors.Is(err, refs.ErrRepositoryNotFound) {
		err = fail(ErrRepositoryNotFound, "repository %q not found", name)
	}
	return row, err
}

// readRecord returns the record of a repository and its stored bytes, which a precondition
// compares. Errors: [ErrNotFound].
func (h *Host) readRecord(ctx context.Context, id refs.RepoID) (record, []byte, error) {
	rec, stored, err := h.catalog.Record(ctx, id)
	if errors.Is(err, refs.ErrRepositoryNotFound) {
		err = fail(ErrRepositoryNotFound, "repository %s not found", id)
	}
	return rec, stored, err
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
