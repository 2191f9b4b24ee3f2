// Package organization keeps the public keys and the settings of organizations as rows of the
// key-value store, for servers that share it.
//
// An organization is what its folder would be: files by name, whose content package auth
// understands. Start at [Update], which changes organizations, and at [Load], which reads what has
// changed. Every change gives the organization and the whole a new [Version], so one row says
// whether anything has changed, and another one whether an organization has. The map, by file:
//
//	organization  versions, the keys of all rows, limits
//	load          what is stored, as of one instant
//	update        batches that change it
//
// A writer reads the row at [Key] with what it depends on anyway, and so knows at no further trip
// whether what it has in memory of the organization is current. No batch requires that row: all
// writes of an organization would wait for each other.
package organization

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"packhorse/odb/kv"
)

// Table is the first byte of every key: nothing -> the [Version] of all organizations; 'o', the
// name of an organization -> its version; 'f', the name, NUL, the name of a file -> its content.
const Table = 'A'

// Limits of one organization, so that it fits a batch and a server that reads it.
const (
	FileBytesMax = kv.ValueBytesMax // of a file
	FileCountMax = 1000
	BytesMax     = 4 << 20 // of all its files
)

// Version is drawn anew with each change. The zero value is that of what does not exist.
type Version [16]byte

// Files are the content of an organization by file name.
type Files map[string][]byte

// Organization is one of them as it is stored.
type Organization struct {
	Version Version
	Files   Files
}

// State is all organizations by name, as of one instant. It is not changed.
type State struct {
	// Version is zero if there has never been an organization.
	Version Version
	Orgs    map[string]Organization
}

// VersionKey is the key of the version of all organizations.
func VersionKey() []byte { return []byte{Table} }

// Key is the key of the version of an organization.
func Key(org string) []byte { return append([]byte{Table, 'o'}, org...) }

func fileKey(org, file string) []byte { return append(filesOf(org), file...) }

// filesOf is what the keys of the files of an organization begin with.
func filesOf(org string) []byte { return append(append([]byte{Table, 'f'}, org...), 0) }

// fileOf reads back what fileKey wrote.
func fileOf(key []byte) (org, file string, err error) {
	org, file, found := strings.Cut(string(key[2:]), "\x00")
	if !found {
		return "", "", fmt.Errorf("%w: key %q of a file of an organization", kv.ErrCorrupt, key)
	}
	return org, file, nil
}

// ParseVersion reads a version as it is stored; nil is the zero value. Errors: [kv.ErrCorrupt].
func ParseVersion(stored []byte) (Version, error) {
	if stored != nil && len(stored) != len(Version{}) {
		return Version{}, fmt.Errorf("%w: the version of an organization has %d bytes", kv.ErrCorrupt, len(stored))
	}
	var v Version
	copy(v[:], stored)
	return v, nil
}

func drawVersion() (v Version) {
	_, _ = rand.Read(v[:]) // does not fail
	return v
}

// Current returns the version of all organizations, in one trip. Errors: [kv.ErrCorrupt].
func Current(ctx context.Context, keys kv.Reader) (Version, error) {
	return readVersion(ctx, keys, VersionKey())
}

func readVersion(ctx context.Context, keys kv.Reader, key []byte) (Version, error) {
	stored, err := keys.Get(ctx, key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return Version{}, fmt.Errorf("read the version of organizations: %w", err)
	}
	return ParseVersion(stored)
}
