package odb

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// HotValue is an object as the hot tier stores it:
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
type HotValue struct {
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
	hotTypeMask      = 0x07
	hotEncodingShift = 3
	hotEncodingMask  = 0x03
	hotDelta         = 0x20
)

func (v *HotValue) encode() []byte {
	dst := make([]byte, 0, 2+2*binary.MaxVarintLen64+object.IDSize+len(v.Payload)+4)
	flags := byte(v.Type) | byte(v.Encoding)<<hotEncodingShift
	if !v.Base.IsZero() {
		flags |= hotDelta
	}
	dst = append(dst, flags, v.Version)
	dst = binary.AppendUvarint(dst, uint64(v.Size))
	if !v.Base.IsZero() {
		dst = binary.AppendUvarint(dst, uint64(v.ContentSize))
		dst = append(dst, v.Base[:]...)
	}
	dst = append(dst, v.Payload...)
	dst = binary.BigEndian.AppendUint32(dst, hotSum(v.ID, dst))
	if invariants.Enabled {
		_, err := decodeHot(v.ID, dst)
		invariants.Check(err == nil && v.Base != v.ID, "odb: the value of object %s, a delta against %s: %v", v.ID, v.Base, err)
	}
	return dst
}

func hotSum(id object.ID, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(id[:], castagnoli), castagnoli, value)
}

// decodeHot decodes the value stored for id; Payload points into data.
func decodeHot(id object.ID, data []byte) (HotValue, error) {
	if len(data) < 4 || hotSum(id, data[:len(data)-4]) != binary.BigEndian.Uint32(data[len(data)-4:]) {
		return HotValue{}, fmt.Errorf("%w: hot value fails its checksum", segment.ErrFormat)
	}
	d := decoder{data: data[:len(data)-4]}
	flags := d.take(1)[0]
	v := HotValue{
		ID:       id,
		Type:     object.Type(flags & hotTypeMask),
		Encoding: Encoding(flags >> hotEncodingShift & hotEncodingMask),
		Version:  d.take(1)[0],
	}
	size := d.uvarint()
	contentSize := size
	if flags&hotDelta != 0 {
		contentSize = d.uvarint()
		v.Base = d.id()
	}
	if d.failed || !v.Type.Valid() || v.Encoding > EncodingRaw || max(size, contentSize) > math.MaxInt64 {
		return HotValue{}, fmt.Errorf("%w: hot value", segment.ErrFormat)
	}
	v.Size, v.ContentSize, v.Payload = int64(size), int64(contentSize), d.data
	return v, nil
}

func (v *HotValue) step() step {
	return step{
		Info:        Info{Type: v.Type, Size: v.Size},
		ContentSize: v.ContentSize,
		Delta:       !v.Base.IsZero(),
		BaseOrdinal: segment.NoOrdinal,
		Base:        v.Base,
	}
}

// content returns the object or the delta that the payload holds. It may be the payload itself.
func (v *HotValue) content() ([]byte, error) {
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
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256*kibibyte),
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
