package rest

import (
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonStream writes a long JSON value as it comes. Its first failure is kept and told by end.
type jsonStream struct {
	w      io.Writer
	buffer []byte
	err    error
}

// streamBytes is how much goes out at once.
const streamBytes = 64 << 10

func newJSONStream(w io.Writer) *jsonStream {
	return &jsonStream{w: w, buffer: make([]byte, 0, streamBytes+4096)}
}

// raw writes what is JSON already.
func (s *jsonStream) raw(text string) { s.buffer = append(s.buffer, text...) }

// text writes a string. Bytes that are not UTF-8, which JSON has no place for, become U+FFFD.
func (s *jsonStream) text(value string) {
	s.buffer, _ = jsontext.AppendQuote(s.buffer, value) // its error says that there were such bytes
}

// separate goes before the item of an index, and lets go what has been gathered. Its error is that of end.
func (s *jsonStream) separate(index int) error {
	s.flush(streamBytes)
	if index > 0 {
		s.buffer = append(s.buffer, ',')
	}
	return s.err
}

// page tells where the next page begins, "" for nowhere.
func (s *jsonStream) page(next string) {
	if next != "" {
		s.raw(`,"next_cursor":"` + next + `","has_more":true`)
		return
	}
	s.raw(`,"has_more":false`)
}

func (s *jsonStream) flush(from int) {
	if len(s.buffer) < from {
		return
	}
	if s.err == nil {
		_, s.err = s.w.Write(s.buffer)
	}
	s.buffer = s.buffer[:0]
}

func (s *jsonStream) end() error {
	s.flush(0)
	return s.err
}
