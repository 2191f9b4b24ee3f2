package refs

import (
	"fmt"

	"github.com/google/uuid"
)

// RepoID identifies a repository for ever, across renames and deletion. IDs sort by their time of
// creation.
type RepoID [16]byte

// NewRepoID returns an ID that was never returned before, a UUID of version 7.
func NewRepoID() RepoID { return RepoID(uuid.Must(uuid.NewV7())) }

// ParseRepoID returns the ID that String wrote. Errors: [ErrInvalidRepoID].
func ParseRepoID(s string) (RepoID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s {
		return RepoID{}, fmt.Errorf("%w: %.64q", ErrInvalidRepoID, s)
	}
	return RepoID(id), nil
}

// String returns the canonical form of a UUID.
func (id RepoID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether id identifies no repository.
func (id RepoID) IsZero() bool { return id == RepoID{} }

// MarshalText implements [encoding.TextMarshaler] as String does.
func (id RepoID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [ParseRepoID] does.
func (id *RepoID) UnmarshalText(text []byte) error {
	parsed, err := ParseRepoID(string(text))
	*id = parsed
	return err
}
