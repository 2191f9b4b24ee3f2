package rest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"

	"packhorse/api/exchange"
)

// Bounds of NDJSON bodies: targets.md.
const (
	metadataLineMax = 16 << 20
	chunkBytesMax   = 4 << 20
	// chunkLineMax holds a chunk in base64, every character escaped, and what is around it.
	chunkLineMax = 6*(chunkBytesMax/3*4+4) + 4096
)

// lineReader reads the lines of a body, each held in memory once.
type lineReader struct {
	from *bufio.Reader
	line []byte
}

func newLineReader(body io.Reader) *lineReader {
	return &lineReader{from: bufio.NewReaderSize(body, 256<<10)}
}

// next returns the next line that is not blank, without its end; it is valid until the next call. The last line needs no end.
// It is io.EOF behind the last line, and only at the true end of the body.
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
	l.line = l.line[:0]
	for {
		part, err := l.from.ReadSlice('\n')
		if len(l.line)+len(part) > sizeMax {
			return nil, &exchange.LimitError{Limit: "line of the body", Max: int64(sizeMax)}
		}
		if err == nil && len(l.line) == 0 {
			return part, nil
		}
		l.line = append(l.line, part...)
		switch {
		case err == nil:
			return l.line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(l.line) > 0:
			return l.line, nil
		default:
			return nil, err
		}
	}
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

// decode decodes a line. The common shape is taken apart where it stands; anything else goes through the strict decoder, and
// both give the same answer.
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
	data, eof := bytes.CutSuffix(rest, chunkLast)
	if !eof {
		if data, ok = bytes.CutSuffix(rest, chunkMore); !ok {
			return blobChunk{}, false
		}
	}
	if err := d.base64(data); err != nil {
		return blobChunk{}, false
	}
	return blobChunk{contentID: string(id), data: d.data, eof: eof}, true
}

// plain tells whether b stands for itself in a JSON string.
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

// strict decodes a line of any shape. Members beside the chunk, and unknown ones in it, are passed over.
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
