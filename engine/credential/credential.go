// Package credential keeps the credentials for upstreams: one user name and password a repository,
// sealed with the server's key and bound to its place.
//
// Start at [Seal], which is the key. A [Row] is a credential as it is stored; the caller commits it
// in its own batch.
package credential

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Secret is a text that is not shown by accident: every way of printing it but a conversion gives
// "(secret)".
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(secret)" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// Login is the user name and password for a repository's upstream.
type Login struct {
	Username Secret // may be empty
	Password Secret
}

// ID names a credential for ever. It begins with its repository's id.
type ID [len(refs.RepoID{}) + 8]byte

// NewID draws an id for a credential of a repository.
func NewID(repo refs.RepoID) (id ID, err error) {
	copy(id[:], repo[:])
	if _, err := rand.Read(id[len(repo):]); err != nil {
		return id, fmt.Errorf("generate an ID: %w", err)
	}
	return id, nil
}

// ParseID returns the id that String wrote, and false for any other text.
func ParseID(text string) (id ID, ok bool) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(id) {
		return id, false
	}
	return ID(data), true
}

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Repo returns the repository that the credential is of.
func (id ID) Repo() refs.RepoID { return refs.RepoID(id[:len(refs.RepoID{})]) }

// table is the first byte of every key of this package. Behind it is a repository's id.
const table = 'k'

// Key is the key of a repository's credential.
func Key(repo refs.RepoID) []byte { return append([]byte{table}, repo[:]...) }

// Row is a credential as it is stored.
type Row struct {
	ID      ID
	Created time.Time
	Sealed  []byte // see [Seal.Open]
}

// storedRow is the form of a Row.
type storedRow struct {
	ID      []byte    `json:"id"`
	Created time.Time `json:"created"`
	Sealed  []byte    `json:"sealed"`
}

// ErrNone says that a repository has no credential.
var ErrNone = errors.New("credential: none")

// Read returns the row of a repository's credential, and the bytes that a precondition compares.
//
// Errors: [ErrNone]; kv.ErrCorrupt.
func Read(ctx context.Context, r kv.Reader, repo refs.RepoID) (row Row, stored []byte, err error) {
	data, err := r.Get(ctx, Key(repo))
	if errors.Is(err, kv.ErrNotFound) {
		return row, nil, ErrNone
	}
	if err != nil {
		return row, nil, fmt.Errorf("read credential of repository %s: %w", repo, err)
	}
	var s storedRow
	if err := json.Unmarshal(data, &s); err != nil || len(s.ID) != len(ID{}) {
		return row, nil, errors.Join(fmt.Errorf("%w: credential of repository %s", kv.ErrCorrupt, repo), err)
	}
	return Row{ID: ID(s.ID), Created: s.Created, Sealed: s.Sealed}, data, nil
}

// Encode returns the row as it is stored.
func (r *Row) Encode() ([]byte, error) {
	data, err := json.Marshal(storedRow{ID: r.ID[:], Created: r.Created, Sealed: r.Sealed})
	if err != nil {
		return nil, fmt.Errorf("encode credential: %w", err)
	}
	return data, nil
}
