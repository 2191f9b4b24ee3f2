package patch

import (
	"compress/flate"
	"context"
	"errors"
	"io"
	"math"
)

// base85Reader decodes the lines of a binary hunk up to the blank one behind it.
type base85Reader struct {
	ctx    context.Context // a reader is used within one call
	source *source
	at     int64 // of the next line; at the end, behind the blank line
	left   []byte
	done   bool
	buffer [52]byte
}

func (r *base85Reader) Read(b []byte) (int, error) {
	for len(r.left) == 0 {
		if r.done {
			return 0, io.EOF
		}
		l, err := r.source.line(r.ctx, r.at)
		if err != nil {
			return 0, err
		}
		if l.size == 1 {
			r.at++
			r.done = true
			continue
		}
		n, ok := decodeLine(r.buffer[:], l.text)
		if !ok {
			return 0, errBinary
		}
		r.at += l.size
		r.left = r.buffer[:n]
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// decodeLine decodes one line, with its end, into dst and returns the number of decoded bytes.
func decodeLine(dst, text []byte) (int, bool) {
	const least = 7 // "A00000\n"
	if len(text) < least || (len(text)-2)%5 != 0 {
		return 0, false
	}
	room := (len(text) - 2) / 5 * 4
	n := 0
	switch c := text[0]; {
	case 'A' <= c && c <= 'Z':
		n = int(c-'A') + 1
	case 'a' <= c && c <= 'z':
		n = int(c-'a') + 27
	}
	if n == 0 || n > room || n <= room-4 {
		return 0, false
	}
	text = text[1:]
	for done := 0; done < n; done += 4 {
		var group uint64
		for _, c := range text[:5] {
			value := base85Values[c]
			if value == 0 {
				return 0, false
			}
			group = group*85 + uint64(value-1)
		}
		if group > math.MaxUint32 {
			return 0, false
		}
		text = text[5:]
		for i := done; i < min(done+4, n); i++ {
			dst[i] = byte(group >> 24)
			group <<= 8
		}
	}
	return n, true
}

const base85Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// base85Values holds for each character its value, and one more.
var base85Values = func() (values [256]uint8) {
	for i := range len(base85Alphabet) {
		values[base85Alphabet[i]] = uint8(i + 1)
	}
	return values
}()

// isFlate tells whether a deflate stream is to blame.
func isFlate(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}
