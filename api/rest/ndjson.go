package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"sync"

	"packhorse/api/exchange"
)

// Bounds of NDJSON bodies.
const (
	metadataLineMax = 16 << 20
	chunkBytesMax   = 4 << 20
	// chunkLineMax is the size of a line with a chunk in base64, every character escaped, and the JSON
	// around it.
	chunkLineMax = 6*(chunkBytesMax/3*4+4) + 4096
)

// lineReader reads the lines of a body. It returns lines from the one buffer into which it reads;
// the buffer grows to the longest line. The cost of the route includes the first buffer. Before the
// buffer grows, its new size is reserved, plus the size of the old one or of a decoded chunk.
type lineReader struct {
	memory     exchange.Resources
	ctx        context.Context // of the request, for reserving
	release    func()          // releases the reservation
	reserved   int64           // how many bytes that is
	from       io.Reader
	first      *[lineBufferMin]byte // of lineBuffers: the buffer at first
	buffer     []byte
	start, end int   // of the bytes read and not returned yet
	err        error // of the body, after the bytes read
}

// lineBufferMin is the size of the buffer at first.
const lineBufferMin = 256 << 10

var lineBuffers = sync.Pool{New: func() any { return new([lineBufferMin]byte) }}

func newLineReader(x exchange.Exchange, body io.Reader) *lineReader {
	first := lineBuffers.Get().(*[lineBufferMin]byte)
	return &lineReader{
		memory: x, ctx: x.Context(), release: func() {}, from: body, first: first, buffer: first[:],
	}
}

// close releases the memory of the buffer. Lines must not be used any more.
func (l *lineReader) close() {
	l.release()
	l.buffer = nil
	lineBuffers.Put(l.first)
}

// next returns the next line that is not blank, without its end; it is valid until the next call.
// The last line needs no end. It is io.EOF behind the last line, and only at the true end of the
// body.
func (l *lineReader) next(sizeMax int) ([]byte, error) {
	for {
		line, err := l.read(sizeMax)
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

func (l *lineReader) read(sizeMax int) ([]byte, error) {
	for searched := 0; ; {
		pending := l.buffer[l.start:l.end]
		size := bytes.IndexByte(pending[searched:], '\n') + 1
		found := size > 0
		if size += searched; !found {
			size = len(pending)
		}
		switch {
		case size > sizeMax:
			return nil, &exchange.LimitError{Limit: "line of the body", Max: int64(sizeMax)}
		case found, errors.Is(l.err, io.EOF) && size > 0:
			l.start += size
			return pending[:size], nil
		case l.err != nil:
			return nil, l.err
		}
		searched = size
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more of the body, after the pending bytes. It keeps the end or error of the body for
// the reader; its own error says that there is no memory for a longer line.
func (l *lineReader) fill() error {
	if pending := l.buffer[l.start:l.end]; l.start > 0 {
		l.start, l.end = 0, copy(l.buffer, pending)
	} else if l.end == len(l.buffer) {
		if err := l.grow(); err != nil {
			return err
		}
	}
	n, err := l.from.Read(l.buffer[l.end:min(len(l.buffer), l.end+lineBufferMin)])
	l.end += n
	l.err = err
	return nil
}

// grow doubles the buffer. The reservation for the old one is kept during the copy.
func (l *lineReader) grow() error {
	size := 2 * len(l.buffer)
	more := int64(size+size/2) - l.reserved
	release, err := l.memory.Reserve(l.ctx, more)
	if err != nil {
		return err
	}
	before := l.release
	l.reserved += more
	l.release = func() {
		release()
		before()
	}
	l.buffer = append(make([]byte, 0, size), l.buffer[:l.end]...)
	l.buffer = l.buffer[:cap(l.buffer)]
	return nil
}

// blobChunk is one chunk of a content.
type blobChunk struct {
	contentID string
	data      []byte // valid until the decoder's next chunk
	eof       bool
}

// chunkDecoder decodes lines of chunks into memory that it uses again.
type chunkDecoder struct{ data []byte }

// Parts of the line that clients write: a chunk in this order, without spaces or escapes.
var (
	chunkHead   = []byte(`{"blob_chunk":{"content_id":"`)
	chunkMiddle = []byte(`","data":"`)
	chunkMore   = []byte(`","eof":false}}`)
	chunkLast   = []byte(`","eof":true}}`)
)

// decode decodes a line. The common form is decoded in place; anything else goes through the strict
// decoder, and both give the same result.
func (d *chunkDecoder) decode(line []byte) (blobChunk, error) {
	if chunk, ok := d.common(line); ok {
		return chunk, nil
	}
	return d.strict(line)
}

// common decodes the shape that clients write; false leaves the line to the strict decoder.
func (d *chunkDecoder) common(line []byte) (blobChunk, bool) {
	rest, ok := bytes.CutPrefix(line, chunkHead)
	if !ok {
		return blobChunk{}, false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 1 || !plain(rest[:end]) {
		return blobChunk{}, false
	}
	id := rest[:end]
	rest, ok = bytes.CutPrefix(rest[end:], chunkMiddle)
	if !ok {
		return blobChunk{}, false
	}
	chunk, ok := d.ending(rest)
	chunk.contentID = string(id)
	return chunk, ok
}

// ending decodes the rest of the line after the opening quote of the data, in the common form.
func (d *chunkDecoder) ending(rest []byte) (blobChunk, bool) {
	data, eof := bytes.CutSuffix(rest, chunkLast)
	if !eof {
		var ok bool
		if data, ok = bytes.CutSuffix(rest, chunkMore); !ok {
			return blobChunk{}, false
		}
	}
	if err := d.base64(data); err != nil {
		return blobChunk{}, false
	}
	return blobChunk{data: d.data, eof: eof}, true
}

// plain reports whether b needs no escape in a JSON string.
func plain(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

var errChunkTooLarge = &exchange.LimitError{Limit: "blob_chunk.data, decoded,", Max: chunkBytesMax}

// base64 decodes into d.data. Line ends, which the standard library would pass over, are errors.
func (d *chunkDecoder) base64(data []byte) error {
	if bytes.IndexByte(data, '\r') >= 0 || bytes.IndexByte(data, '\n') >= 0 {
		return base64.CorruptInputError(0)
	}
	size := base64.StdEncoding.DecodedLen(len(data))
	if size > chunkBytesMax+2 {
		return errChunkTooLarge
	}
	if cap(d.data) < size {
		d.data = make([]byte, size)
	}
	n, err := base64.StdEncoding.Strict().Decode(d.data[:size], data)
	d.data = d.data[:n]
	if err == nil && n > chunkBytesMax {
		err = errChunkTooLarge
	}
	return err
}

// strict decodes a line of any shape. Members beside the chunk, and unknown ones in it, are passed
// over.
func (d *chunkDecoder) strict(line []byte) (blobChunk, error) {
	var parsed struct {
		Chunk *struct {
			ContentID string `json:"content_id"`
			Data      string `json:"data"`
			EOF       bool   `json:"eof"`
		} `json:"blob_chunk"`
	}
	if err := decodeJSON(line, &parsed); err != nil {
		return blobChunk{}, err
	}
	if parsed.Chunk == nil {
		return blobChunk{}, badRequest("expected a line with blob_chunk")
	}
	if parsed.Chunk.ContentID == "" {
		return blobChunk{}, badRequest("blob_chunk.content_id is required")
	}
	err := d.base64([]byte(parsed.Chunk.Data))
	if errors.Is(err, error(errChunkTooLarge)) {
		return blobChunk{}, badRequest("blob_chunk.data: more than %d bytes in one chunk", chunkBytesMax)
	}
	if err != nil {
		return blobChunk{}, badRequest("blob_chunk.data: expected padded base64: %v", err)
	}
	return blobChunk{contentID: parsed.Chunk.ContentID, data: d.data, eof: parsed.Chunk.EOF}, nil
}
