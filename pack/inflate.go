package pack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

const (
	zlibHeaderSize  = 2
	zlibTrailerSize = 4

	// trustedSize is the number of bytes allocated on a claim alone.
	trustedSize = 1 << 20
)

// Inflate appends to dst the content of the zlib stream at the front of packed, which must inflate
// to exactly size bytes. consumed is the length of the stream.
//
// packed is only read and must not overlap dst, which best has room for one byte more than size.
// The caller has bounded size; a short stream that claims a long content gets memory as it
// delivers, not before. Errors: [ErrCorrupt], also when packed ends inside the stream.
func Inflate(dst, packed []byte, size int64) (content []byte, consumed int, err error) {
	m := memoryInflaters.Get().(*memoryInflater)
	defer memoryInflaters.Put(m)
	return m.inflate(dst, packed, size)
}

var memoryInflaters = sync.Pool{New: func() any { return newMemoryInflater() }}

// memoryInflater inflates streams that are completely in memory.
type memoryInflater struct {
	decoder *flateDecoder
	src     bytes.Reader
	flate   io.ReadCloser // of src, for streams that decoder does not support
}

func newMemoryInflater() *memoryInflater {
	m := &memoryInflater{decoder: newFlateDecoder()}
	m.flate = flate.NewReader(&m.src)
	return m
}

// errShort says that the stream continues behind the given bytes.
var errShort = fmt.Errorf("%w: zlib stream cut off: %w", ErrCorrupt, io.ErrUnexpectedEOF)

// inflate is [Inflate]; it returns errShort itself when packed ends too early.
func (m *memoryInflater) inflate(dst, packed []byte, size int64) (content []byte, consumed int, err error) {
	if len(packed) < zlibHeaderSize {
		return dst, 0, errShort
	}
	if !zlibHeaderValid(packed) {
		return dst, 0, corrupt("bad zlib header")
	}
	if size <= trustedSize {
		content = slices.Grow(dst, int(size))[:len(dst)+int(size)]
		consumed, err = m.decoder.decode(content[len(dst):], packed[zlibHeaderSize:])
	} else {
		content, consumed, err = m.inflateLarge(dst, packed[zlibHeaderSize:], size)
	}
	if err != nil {
		return dst, 0, err
	}
	consumed += zlibHeaderSize
	if len(packed)-consumed < zlibTrailerSize {
		return dst, 0, errShort
	}
	if binary.BigEndian.Uint32(packed[consumed:]) != updateAdler(1, content[len(dst):]) {
		return dst, 0, corrupt("zlib checksum mismatch")
	}
	return content, consumed + zlibTrailerSize, nil
}

// inflateLarge appends the content of a deflate stream that is not believed to be as long as is
// said.
func (m *memoryInflater) inflateLarge(dst, body []byte, size int64) (content []byte, consumed int, err error) {
	m.src.Reset(body)
	defer m.src.Reset(nil)
	if err := m.flate.(flate.Resetter).Reset(&m.src, nil); err != nil {
		return dst, 0, err
	}
	if content, err = readExactly(dst, m.flate, size); err != nil {
		return dst, 0, inflateError(err)
	}
	return content, len(body) - m.src.Len(), nil
}

// readExactly appends size bytes of src to dst and expects the end there.
func readExactly(dst []byte, src io.Reader, size int64) ([]byte, error) {
	start := len(dst)
	for {
		have := int64(len(dst) - start)
		// One byte more than the rest is asked for, so that the end is seen in the same call.
		dst = slices.Grow(dst, int(min(size-have+1, max(trustedSize, have))))
		n, err := src.Read(dst[len(dst):min(cap(dst), start+int(size)+1)])
		dst = dst[:len(dst)+n]
		switch have = int64(len(dst) - start); {
		case have > size, errors.Is(err, io.EOF) && have < size:
			return dst, errSize
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

var errSize = corrupt("content does not have the stated size")

// zlibHeaderValid checks the two bytes that begin a zlib stream: method deflate, window at most 32
// KiB, no dictionary, check bits.
func zlibHeaderValid(b []byte) bool {
	return b[0]&0x0f == 8 && b[0]>>4 <= 7 && b[1]&0x20 == 0 && binary.BigEndian.Uint16(b)%31 == 0
}

// inflateError gives the errors of flate our kinds.
func inflateError(err error) error {
	var (
		corruptInput flate.CorruptInputError
		internal     flate.InternalError // how flate calls some codes that no stream may have
	)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errShort
	case errors.As(err, &corruptInput), errors.As(err, &internal):
		return corrupt("bad deflate stream: %v", err)
	default:
		return err
	}
}

// Inflater inflates one zlib stream as it is read, with the memory of earlier ones. It is an
// [io.ReadCloser] for one goroutine; Close gives the memory back.
type Inflater struct {
	src   *bufio.Reader
	flate io.ReadCloser
	sum   uint32
	done  error // the result of Read after the end of the stream
	start bool
}

// inflaterBufferSize is the read-ahead of a streaming Inflater.
const inflaterBufferSize = 16 << 10

var inflaters = sync.Pool{New: func() any {
	src := bufio.NewReaderSize(nil, inflaterBufferSize)
	return &Inflater{src: src, flate: flate.NewReader(src)}
}}

// NewInflater returns an Inflater of the zlib stream at the front of src. It reads ahead in src, up
// to 16 KiB.
func NewInflater(src io.Reader) *Inflater {
	z := inflaters.Get().(*Inflater)
	z.src.Reset(src)
	z.sum, z.done, z.start = 1, nil, true
	return z
}

// Read implements [io.Reader]. Errors: [io.EOF] at the end of the stream, whose checksum has been
// verified then, [ErrCorrupt], and those of the source.
func (z *Inflater) Read(p []byte) (int, error) {
	if z.done == nil && z.start {
		z.done = z.begin()
	}
	if z.done != nil {
		return 0, z.done
	}
	n, err := z.flate.Read(p)
	z.sum = updateAdler(z.sum, p[:n])
	if errors.Is(err, io.EOF) {
		err = z.end()
	} else if err != nil {
		err = inflateError(err)
	}
	z.done = err
	return n, err
}

func (z *Inflater) begin() error {
	z.start = false
	header, err := z.src.Peek(zlibHeaderSize)
	if err != nil {
		return inflateError(err)
	}
	if !zlibHeaderValid(header) {
		return corrupt("bad zlib header")
	}
	if _, err := z.src.Discard(zlibHeaderSize); err != nil {
		return err
	}
	return z.flate.(flate.Resetter).Reset(z.src, nil)
}

// end verifies the checksum and returns [io.EOF] if it is right.
func (z *Inflater) end() error {
	trailer, err := z.src.Peek(zlibTrailerSize)
	if err != nil {
		return inflateError(err)
	}
	if binary.BigEndian.Uint32(trailer) != z.sum {
		return corrupt("zlib checksum mismatch")
	}
	if _, err := z.src.Discard(zlibTrailerSize); err != nil {
		return err
	}
	return io.EOF
}

// buffered returns how many bytes have been taken from the source and not used.
func (z *Inflater) buffered() int { return z.src.Buffered() }

// Close gives the Inflater's memory back. It must not be used afterwards.
func (z *Inflater) Close() error {
	z.src.Reset(nil)
	inflaters.Put(z)
	return nil
}
