package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"packhorse/odb"
	"packhorse/odb/file"
)

// sum is a SHA-256.
type sum [sha256.Size]byte

// pieceBytes is the number of bytes copied between two checks of the context.
const pieceBytes = 1 << 20

// has reports whether the folder holds a file of that name and size.
func (c *copier) has(ctx context.Context, is entry) (bool, error) {
	stored, err := c.dest.Open(ctx, is.stored())
	if errors.Is(err, file.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return stored.Size() == is.size, stored.Close()
}

// sumOf returns the checksum of a content of size bytes.
func sumOf(ctx context.Context, content io.Reader, size int64) (sum, error) {
	hash := sha256.New()
	err := copyBytes(ctx, hash, content, size)
	return sum(hash.Sum(nil)), err
}

// checkStored copies a file of a backup to w. Errors: [ErrDamaged] when it differs from is; w has
// received it nevertheless.
func checkStored(ctx context.Context, from file.Store, is entry, w io.Writer) (err error) {
	stored, err := from.Open(ctx, is.stored())
	if errors.Is(err, file.ErrNotFound) {
		return &DamagedError{is.stored(), "is missing"}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	if stored.Size() != is.size {
		return &DamagedError{is.stored(), "has not the size that it had"}
	}
	hash := sha256.New()
	if err := copyBytes(ctx, io.MultiWriter(hash, w), file.NewReader(ctx, stored), is.size); err != nil {
		return err
	}
	if sum(hash.Sum(nil)) != is.sum {
		return &DamagedError{is.stored(), "fails its checksum"}
	}
	return nil
}

// checkCopy holds a file of a backup against its SHA-256 and, if it is one of pools, against its
// own checksums. Errors: [ErrDamaged].
func checkCopy(ctx context.Context, from file.Store, is entry) (err error) {
	if err := checkStored(ctx, from, is, io.Discard); err != nil || is.kind != kindFile {
		return err
	}
	stored, err := from.Open(ctx, is.stored())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	if _, err = sumFile(ctx, is.name, stored, io.Discard); errors.Is(err, odb.ErrCorrupt) {
		return &DamagedError{is.stored(), "was damaged when it was copied: " + err.Error()}
	}
	return err
}

// copyBytes copies size bytes, and no fewer, until ctx ends.
func copyBytes(ctx context.Context, w io.Writer, r io.Reader, size int64) error {
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(w, r, min(size, pieceBytes))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		size -= n
	}
	return nil
}
