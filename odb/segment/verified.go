package segment

import (
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/file"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// ErrCopyDamaged says that the local copy of stored bytes failed a check after a part of them was
// passed on, and that the stored bytes are right: a repeated read returns them.
var ErrCopyDamaged = errors.New("odb: the local copy of stored bytes was damaged")

// ReadFull fills p with the bytes of a file at off. Errors: [ErrFormat] for a file that ends
// before.
func ReadFull(ctx context.Context, r file.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(ctx, p, off)
	return filled(p, off, n, err)
}

// ReadFullAt is [ReadFull] for what this process writes and reads back.
func ReadFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	return filled(p, off, n, err)
}

// filled returns nil if a read of p at off returned all of its bytes.
func filled(p []byte, off int64, n int, err error) error {
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut off at %d", ErrFormat, off+int64(n))
	}
	return err
}

// ReadChecked is [ReadFull] for bytes that check accepts. If it refuses them and they are a copy
// ([file.Cached]), they are copied and checked once more. Errors: also that of check.
func ReadChecked(ctx context.Context, r file.ReaderAt, p []byte, off int64, check func(p []byte) error) error {
	err := ReadFull(ctx, r, p, off)
	if err == nil {
		err = check(p)
	} else if !isDamage(err) {
		return err
	}
	if err == nil || !file.Forget(r, off, int64(len(p))) {
		return err
	}
	if err := ReadFull(ctx, r, p, off); err != nil {
		return err
	}
	return check(p)
}

// isDamage reports whether err is the failed check of stored bytes, and not one of a file system.
func isDamage(err error) bool {
	for _, check := range []error{ErrFormat, pack.ErrCorrupt, delta.ErrCorrupt, delta.ErrTooLarge, object.ErrMalformed} {
		if errors.Is(err, check) {
			return true
		}
	}
	return false
}
