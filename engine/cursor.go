package engine

import (
	"encoding/base64"
	"errors"
)

// A cursor is opaque to clients: a byte that names its listing, then the position of the listing,
// in base64.

func encodeCursor(listing byte, position []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{listing}, position...))
}

// decodeCursor returns the position in a cursor of the listing, which has size bytes, or at least
// one when size is 0.
func decodeCursor(listing byte, cursor string, size int) ([]byte, error) {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) < 2 || data[0] != listing || size != 0 && len(data) != 1+size {
		return nil, invalid("invalid cursor %.100q", cursor)
	}
	return data[1:], nil
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
