// Package brrr stands in for the Brotli codec that fasthttp imports. All of its functions fail.
//
// Packhorse neither sends nor accepts Brotli, so nothing calls this package: it only has the names
// that fasthttp compiles against. The main module replaces github.com/molecule-man/go-brrr by it,
// because module proxies refuse the source of that module and a fresh clone could not be built.
package brrr

import (
	"errors"
	"io"
)

// Levels of compression, from RFC 7932's reference encoder.
const (
	BestSpeed       = 0
	BestCompression = 11
)

// ErrUnsupported is the answer to every attempt to code.
var ErrUnsupported = errors.New("brotli is not supported")

// Reader fails to decompress.
type Reader struct{}

// NewReader returns a Reader.
func NewReader(io.Reader) *Reader { return &Reader{} }

// Reset does nothing.
func (*Reader) Reset(io.Reader) {}

// Read returns [ErrUnsupported].
func (*Reader) Read([]byte) (int, error) { return 0, ErrUnsupported }

// Writer fails to compress.
type Writer struct{}

// NewWriter returns a Writer.
func NewWriter(io.Writer, int) (*Writer, error) { return &Writer{}, nil }

// Reset does nothing.
func (*Writer) Reset(io.Writer) {}

// Write returns [ErrUnsupported].
func (*Writer) Write([]byte) (int, error) { return 0, ErrUnsupported }

// Flush returns [ErrUnsupported].
func (*Writer) Flush() error { return ErrUnsupported }

// Close returns [ErrUnsupported].
func (*Writer) Close() error { return ErrUnsupported }
