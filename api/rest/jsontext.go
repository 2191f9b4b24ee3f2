package rest

import (
	"bufio"

	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/exchange"
)

// appendField appends the name of an object's field, with a comma before it unless it is the first
// one.
func appendField(dst []byte, name string) []byte {
	if n := len(dst); n > 0 && dst[n-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(append(dst, '"'), name...), `":`...)
}

// appendTextField appends a field with a text.
func appendTextField(dst []byte, name, text string) []byte {
	return appendText(appendField(dst, name), text)
}

// appendText appends a text in quotes. Bytes that are not UTF-8 become U+FFFD, because JSON cannot
// contain them.
func appendText[T string | []byte](dst []byte, text T) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // the error says that there were such bytes
	return dst
}

// textWriter writes the inside of a JSON text piece by piece.
type textWriter struct {
	out     *bufio.Writer
	rest    []byte // the incomplete character at the end
	buffer  []byte
	size    int64 // bytes of input
	invalid bool  // some of it was not UTF-8
}

// textPiece is the number of bytes quoted at a time.
const textPiece = 32 << 10

func (t *textWriter) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	n := len(p)
	for len(p) > 0 {
		piece := p[:min(len(p), textPiece)]
		p = p[len(piece):]
		if len(t.rest) > 0 {
			piece = append(t.rest, piece...)
			t.rest = nil
		}
		whole := len(piece) - exchange.Unfinished(piece)
		if whole < len(piece) {
			t.rest = append([]byte(nil), piece[whole:]...)
		}
		if err := t.quote(piece[:whole]); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (t *textWriter) quote(piece []byte) error {
	quoted, err := jsontext.AppendQuote(t.buffer[:0], piece)
	t.invalid = t.invalid || err != nil
	t.buffer = quoted
	_, err = t.out.Write(quoted[1 : len(quoted)-1])
	return err
}

// end writes the incomplete character, if any.
func (t *textWriter) end() error {
	rest := t.rest
	t.rest = nil
	return t.quote(rest)
}
