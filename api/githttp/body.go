package githttp

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"

	"packhorse/api/code"
	"packhorse/api/exchange"
)

// Limits of a git client's request, in bytes, decompressed.
const (
	fetchRequestMax = 16 << 20
	commandLinesMax = 32 << 20
)

// body returns the request's body, decompressed when git compressed it, sizeMax bytes at most.
func (s *session) body(sizeMax int64) (io.Reader, error) {
	from := s.x.Body()
	switch encoding := s.x.Header("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(from)
		if err != nil {
			return nil, requestError(gzipError(err))
		}
		from = gunzip{plain}
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, code.UnsupportedMediaType,
			fmt.Sprintf("Content-Encoding %q is not understood", encoding))
	}
	return &limitedBody{from: from, left: sizeMax, max: sizeMax}, nil
}

// gunzip distinguishes errors of compression from those of the connection.
type gunzip struct{ from *gzip.Reader }

func (g gunzip) Read(p []byte) (int, error) {
	n, err := g.from.Read(p)
	return n, gzipError(err)
}

func gzipError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return malformed("the request is not what gzip makes")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return exchange.ErrEndedEarly
	}
	return err
}

// limitedBody is a body that fails past its limit instead of ending.
type limitedBody struct {
	from      io.Reader
	left, max int64
}

func (l *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.from.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return n, &exchange.LimitError{Limit: "request body", Max: l.max}
	}
	return n, err
}

// requestError translates an end of the body in the middle of a request.
func requestError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = exchange.ErrEndedEarly
	}
	return fmt.Errorf("read request: %w", err)
}

// readToEnd makes sure that the body is over: nothing commits before its true end has been seen.
func readToEnd(body io.Reader) error {
	var one [1]byte
	_, err := io.ReadFull(body, one[:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return requestError(err)
	}
	return malformed("something follows the request's end")
}

// drain discards the rest of a body.
func drain(body io.Reader) error {
	if _, err := io.Copy(io.Discard, body); err != nil {
		return requestError(err)
	}
	return nil
}
