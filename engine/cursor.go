package engine

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// cursors encodes the cursors of listings, which are opaque to clients: a byte that names the
// listing, then the position in it, in base64. Before those of a listing at a moment stand a byte
// that says so and the moment, so that they do not continue one at another moment.
type cursors struct {
	moment uint64 // a position of the journal; 0 is now
}

// cursorMoment is the first byte of a cursor at a moment, and of no listing.
const cursorMoment = '@'

// cursors returns the cursors of the repository's listings.
func (r *Repository) cursors() cursors { return cursors{r.MomentSequence()} }

func (c cursors) encode(listing byte, position []byte) string {
	var data []byte
	if c.moment != 0 {
		data = binary.BigEndian.AppendUint64([]byte{cursorMoment}, c.moment)
	}
	return base64.RawURLEncoding.EncodeToString(append(append(data, listing), position...))
}

// decode returns the position in a cursor of the listing, which has size bytes, or at least one
// when size is 0.
func (c cursors) decode(listing byte, cursor string, size int) ([]byte, error) {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	var moment uint64
	if err == nil && len(data) > 9 && data[0] == cursorMoment {
		moment, data = binary.BigEndian.Uint64(data[1:]), data[9:]
	}
	if err != nil || len(data) < 2 || data[0] != listing || size != 0 && len(data) != 1+size {
		return nil, fail(ErrInvalidCursor, "invalid cursor %.100q", cursor)
	}
	if moment != c.moment {
		return nil, fail(ErrInvalidCursor, "cursor %.100q belongs to a listing at another moment", cursor)
	}
	return data[1:], nil
}

// cursorQuery stands in a cursor for what was asked for: it does not continue something else.
type cursorQuery [8]byte

// queryOf returns the query that a format and its values describe.
func queryOf(format string, values ...any) cursorQuery {
	sum := sha256.Sum256(fmt.Appendf(nil, format, values...))
	return cursorQuery(sum[:len(cursorQuery{})])
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
