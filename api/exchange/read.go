package exchange

import (
	"bytes"
	"io"
)

// ReadBody reads the whole body, sizeMax bytes at most. It allocates at most 64 KiB on the strength
// of the announced size.
//
// Errors: those of Body, and [LimitError].
func ReadBody(x Request, sizeMax int64) ([]byte, error) {
	limit := &LimitError{Limit: "request body", Max: sizeMax}
	length := x.BodyLength()
	if length > sizeMax {
		return nil, limit
	}
	if length == 0 {
		return nil, nil
	}
	var buffer bytes.Buffer
	buffer.Grow(int(min(max(length, 0), 64<<10)) + bytes.MinRead)
	if _, err := buffer.ReadFrom(io.LimitReader(x.Body(), sizeMax+1)); err != nil {
		return nil, err
	}
	if int64(buffer.Len()) > sizeMax {
		return nil, limit
	}
	return buffer.Bytes(), nil
}
