package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"packhorse/odb/file"
)

// sum is a SHA-256.
type sum [sha256.Size]byte

// pieceBytes is how much is copied between two looks at the context.
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

// copy writes a file into the folder and fills in its checksum; open begins its content, at the begin each time. What an interrupted backup
// left under the name is kept if it is the same, and else replaced.
func (c *copier) copy(ctx context.Context, is *entry, open func() io.Reader) (copied bool, err error) {
	out, err := c.dest.Create(ctx, is.stored())
	if errors.Is(err, file.ErrExists) {
		if is.sum == (sum{}) {
			if is.sum, err = sumOf(ctx, open(), is.size); err != nil {
				return false, err
			}
		}
		if checkStored(ctx, c.dest, *is, io.Discard) == nil {
			return false, nil
		}
		if err := c.dest.Delete(ctx, is.stored()); err != nil {
			return false, err
		}
		out, err = c.dest.Create(ctx, is.stored())
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }() // nothing, after Seal
	hash := sha256.New()
	if err := copyBytes(ctx, io.MultiWriter(hash, out), open(), is.size); err != nil {
		return false, err
	}
	is.sum = sum(hash.Sum(nil))
	if err := out.Seal(ctx); err != nil {
		return false, err
	}
	return true, c.dest.Settle(ctx, is.stored())
}

// sumOf returns the checksum of a content of size bytes.
func sumOf(ctx context.Context, content io.Reader, size int64) (sum, error) {
	hash := sha256.New()
	err := copyBytes(ctx, hash, content, size)
	return sum(hash.Sum(nil)), err
}

// checkStored copies a file of a backup to w. Errors: [ErrDamaged] when it is not what is says; w has then got it all the same.
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
	if err := copyBytes(ctx, io.MultiWriter(hash, w), io.NewSectionReader(stored, 0, is.size), is.size); err != nil {
		return err
	}
	if sum(hash.Sum(nil)) != is.sum {
		return &DamagedError{is.stored(), "fails its checksum"}
	}
	return nil
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
