package rest

import (
	"bytes"
	"context"
	"io"
	"sync"

	"packhorse/api/exchange"
	"packhorse/api/problem"
)

// answerStream answers with a JSON value that write writes: with its length if it is short, in
// chunks otherwise. isShort says that the data is in memory already and that the answer has at most
// some hundred KiB.
func answerStream(
	x exchange.Exchange, status int, isShort bool, write func(ctx context.Context, w io.Writer) error,
) error {
	if !isShort {
		x.Stream(status, problem.ContentType, write)
		return nil
	}
	var body bytes.Buffer
	if err := write(x.Context(), &body); err != nil {
		return err
	}
	x.Respond(status, problem.ContentType, body.Bytes())
	return nil
}

// jsonStream writes a long JSON value piece by piece. It keeps its first failure, and end returns
// it. After end it is not used any more.
type jsonStream struct {
	w      io.Writer
	buffer []byte
	pooled *jsonBuffer // where buffer began; nil after end
	err    error
}

// streamBytes is the size of the pieces sent.
const streamBytes = 64 << 10

type jsonBuffer [streamBytes + 4096]byte

// jsonBuffers are those of streams that have ended.
var jsonBuffers = sync.Pool{New: func() any { return new(jsonBuffer) }}

func newJSONStream(w io.Writer) *jsonStream {
	s := &jsonStream{w: w, pooled: jsonBuffers.Get().(*jsonBuffer)}
	s.buffer = s.pooled[:0]
	return s
}

// raw writes text that is JSON already.
func (s *jsonStream) raw(text string) { s.buffer = append(s.buffer, text...) }

// text writes a string, a long one in pieces. Bytes that are not UTF-8, which JSON has no place
// for, become U+FFFD.
func (s *jsonStream) text(value string) {
	s.raw(`"`)
	for len(value) > textPiece {
		piece := []byte(value[:textPiece])
		size := len(piece) - exchange.Unfinished(piece)
		s.inside(value[:size])
		value = value[size:]
		s.flush(streamBytes)
	}
	s.inside(value)
	s.raw(`"`)
}

// inside writes a part of a string.
func (s *jsonStream) inside(part string) {
	start := len(s.buffer)
	s.buffer = appendText(s.buffer, part)
	s.buffer = append(s.buffer[:start], s.buffer[start+1:len(s.buffer)-1]...)
}

// field begins a field of an object.
func (s *jsonStream) field(name string) { s.buffer = appendField(s.buffer, name) }

// textField writes a field with a text.
func (s *jsonStream) textField(name, value string) {
	s.field(name)
	s.text(value)
}

// separate is called before the item of an index, and sends the gathered output. Its error is that
// of end.
func (s *jsonStream) separate(index int) error {
	s.flush(streamBytes)
	if index > 0 {
		s.buffer = append(s.buffer, ',')
	}
	return s.err
}

// page writes the cursor of the next page; "" if there is none.
func (s *jsonStream) page(next string) {
	s.buffer = appendPage(s.buffer, next)
}

// appendPage appends the fields of a page: the cursor of the next one, "" if there is none.
func appendPage(dst []byte, next string) []byte {
	if next != "" {
		return append(dst, `,"next_cursor":"`+next+`","has_more":true`...)
	}
	return append(dst, `,"has_more":false`...)
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
	jsonBuffers.Put(s.pooled)
	s.buffer, s.pooled = nil, nil
	return s.err
}
