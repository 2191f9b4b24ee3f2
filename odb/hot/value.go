package hot

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// Encoding is the compression of the bytes of a stored entry. The numbers are stored.
type Encoding uint8

// The encodings.
const (
	// EncodingZlib is a zlib stream, as packs hold it: it can be sent as it is.
	EncodingZlib Encoding = 0
	// EncodingZstd is a zstd frame, the form of objects that the API wrote to the hot tier.
	EncodingZstd Encoding = 1
	// EncodingRaw is not compressed.
	EncodingRaw Encoding = 2
)

// Value is an object as the hot tier stores it:
//
//	1        type (bits 0-2) | encoding (3-4) | delta (5)
//	1        number in a chain of skip-deltas, 0 for whole objects and for what arrived in a pack
//	uvarint  size of the object
//	delta only: uvarint size of the delta | 20 ID of the base
//	payload  compressed as the encoding says
//	4        CRC-32C of the object's ID and of all before
//
// The value has its own checksum, which covers the ID. It does not rely on the guarantees of a
// key-value store.
type Value struct {
	ID          object.ID
	Type        object.Type
	Encoding    Encoding
	Version     uint8
	Size        int64
	Base        object.ID // zero for a whole object
	ContentSize int64     // inflated size of Payload: of the object, or the delta
	Payload     []byte
}

const (
	typeMask      = 0x07
	encodingShift = 3
	encodingMask  = 0x03
	deltaFlag     = 0x20
)

var errValue = fmt.Errorf("%w: hot value", segment.ErrFormat)

// Encode returns the stored form of v.
func (v *Value) Encode() []byte {
	dst := make([]byte, 0, 2+2*binary.MaxVarintLen64+object.IDSize+len(v.Payload)+sumSize)
	flags := byte(v.Type) | byte(v.Encoding)<<encodingShift
	if !v.Base.IsZero() {
		flags |= deltaFlag
	}
	dst = append(dst, flags, v.Version)
	dst = binary.AppendUvarint(dst, uint64(v.Size))
	if !v.Base.IsZero() {
		dst = binary.AppendUvarint(dst, uint64(v.ContentSize))
		dst = append(dst, v.Base[:]...)
	}
	dst = appendSum(v.ID, append(dst, v.Payload...))
	if invariants.Enabled {
		_, err := Decode(v.ID, dst)
		invariants.Check(err == nil && v.Base != v.ID, "hot: the value of object %s, a delta against %s: %v", v.ID, v.Base, err)
	}
	return dst
}

// Decode decodes the value stored for id; Payload points into data. Errors: [segment.ErrFormat].
func Decode(id object.ID, data []byte) (Value, error) {
	body, ok := checked(id, data)
	if !ok {
		return Value{}, fmt.Errorf("%w: hot value fails its checksum", segment.ErrFormat)
	}
	if len(body) < 2 {
		return Value{}, errValue
	}
	v := Value{
		ID:       id,
		Type:     object.Type(body[0] & typeMask),
		Encoding: Encoding(body[0] >> encodingShift & encodingMask),
		Version:  body[1],
	}
	isDelta := body[0]&deltaFlag != 0
	size, n := binary.Uvarint(body[2:])
	if n <= 0 {
		return Value{}, errValue
	}
	body = body[2+n:]
	contentSize := size
	if isDelta {
		if contentSize, n = binary.Uvarint(body); n <= 0 || len(body) < n+object.IDSize {
			return Value{}, errValue
		}
		v.Base = object.ID(body[n:][:object.IDSize])
		body = body[n+object.IDSize:]
	}
	if !v.Type.Valid() || v.Encoding > EncodingRaw || max(size, contentSize) > math.MaxInt64 {
		return Value{}, errValue
	}
	v.Size, v.ContentSize, v.Payload = int64(size), int64(contentSize), body
	return v, nil
}

// Content returns the object or the delta that the payload holds. It may be the payload itself.
// Errors: [segment.ErrFormat].
func (v *Value) Content() ([]byte, error) {
	switch v.Encoding {
	case EncodingZlib:
		content, consumed, err := pack.Inflate(nil, v.Payload, v.ContentSize)
		if err == nil && consumed != len(v.Payload) {
			err = fmt.Errorf("%w: trailing bytes after a zlib stream", segment.ErrFormat)
		}
		return content, err
	case EncodingZstd:
		if v.ContentSize > segment.WholeMax {
			return nil, fmt.Errorf("%w: zstd frame of %d bytes", segment.ErrFormat, v.ContentSize)
		}
		content, err := unzstd(make([]byte, 0, v.ContentSize), v.Payload)
		if err == nil && int64(len(content)) != v.ContentSize {
			err = fmt.Errorf("%w: zstd frame has %d bytes instead of %d", segment.ErrFormat, len(content), v.ContentSize)
		}
		return content, err
	default:
		if int64(len(v.Payload)) != v.ContentSize {
			return nil, fmt.Errorf("%w: raw value has %d bytes instead of %d", segment.ErrFormat, len(v.Payload), v.ContentSize)
		}
		return v.Payload, nil
	}
}

// zstd coders are pooled, each for one goroutine at a time: they start no goroutines, and frames
// carry no checksum since the value does.
var (
	zstdEncoders = sync.Pool{New: func() any {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10),
			zstd.WithSingleSegment(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return encoder
	}}
	zstdDecoders = sync.Pool{New: func() any {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(2*segment.WholeMax))
		if err != nil {
			panic(err) // the options are constants
		}
		return decoder
	}}
)

func appendZstd(dst, data []byte) []byte {
	encoder := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(encoder)
	return encoder.EncodeAll(data, dst)
}

func unzstd(dst, frame []byte) ([]byte, error) {
	decoder := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(decoder)
	content, err := decoder.DecodeAll(frame, dst)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", segment.ErrFormat, err)
	}
	return content, nil
}

// compressMin is the size in bytes below which compression costs 10 µs to save next to nothing:
// most deltas are smaller.
const compressMin = 128

// Compress returns v with content, the object or a delta, as its payload: zstd or, if that is not
// smaller, uncompressed.
func Compress(v Value, content []byte) Value {
	if len(content) < compressMin {
		v.Encoding, v.Payload = EncodingRaw, content
		return v
	}
	v.Encoding, v.Payload = EncodingZstd, appendZstd(nil, content)
	if len(v.Payload) >= len(content) {
		v.Encoding, v.Payload = EncodingRaw, content
	}
	return v
}
