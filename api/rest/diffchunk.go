package rest

import (
	"bytes"
	"errors"
)

// The common form of a chunk of a patch; the data and its end follow as in a blob_chunk.
var diffHead = []byte(`{"diff_chunk":{"data":"`)

// diff decodes a line with a chunk of a patch, which has no content_id. As with decode, the common
// form is decoded in place.
func (d *chunkDecoder) diff(line []byte) (blobChunk, error) {
	if rest, ok := bytes.CutPrefix(line, diffHead); ok {
		if chunk, ok := d.ending(rest); ok {
			return chunk, nil
		}
	}
	var parsed struct {
		Chunk *struct {
			Data string `json:"data"`
			EOF  bool   `json:"eof"`
		} `json:"diff_chunk"`
	}
	if err := decodeJSON(line, &parsed); err != nil {
		return blobChunk{}, err
	}
	if parsed.Chunk == nil {
		return blobChunk{}, badRequest("expected a line with diff_chunk")
	}
	err := d.base64([]byte(parsed.Chunk.Data))
	if errors.Is(err, error(errChunkTooLarge)) {
		return blobChunk{}, badRequest("diff_chunk.data: more than %d bytes in one chunk", chunkBytesMax)
	}
	if err != nil {
		return blobChunk{}, badRequest("diff_chunk.data: expected padded base64: %v", err)
	}
	return blobChunk{data: d.data, eof: parsed.Chunk.EOF}, nil
}
