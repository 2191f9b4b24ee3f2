package kv

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Pebble's logs and manifests are sequences of chunks in blocks of 32 KiB; no chunk crosses a
// block. All numbers little endian:
//
//	manifest     crc (4) ‖ length (2) ‖ kind 1-4 (1) ‖ payload
//	first log    crc (4) ‖ length (2) ‖ kind 5-8 (1) ‖ log number (4) ‖ payload
//	other logs   crc (4) ‖ length (2) ‖ kind 9-12 (1) ‖ log number (4) ‖ bytes synced (8) ‖ payload
//	their end    0 (4) ‖ 0 (2) ‖ kind 5 (1) ‖ log number + 1 (4)
//
// A kind is full, first, middle or last, in this order. The checksum covers everything after the
// length. A new store begins its first log before it knows its format. See package record of
// Pebble, whose own reader takes a chunk with the next log number as the end, without any other
// check.
const (
	blockBytes     = 32 << 10
	chunkKindFull  = 1
	chunkKindFirst = 2
	chunkKindLast  = 4
	chunkKindEnd   = 5
)

// chunkFormat is one of the three: the size of its header, and the number to subtract from its
// kinds.
type chunkFormat struct {
	header   int
	kindBase int
}

var (
	manifestFormat = chunkFormat{header: 7}
	firstLogFormat = chunkFormat{header: 11, kindBase: 4}
	logFormat      = chunkFormat{header: 19, kindBase: 8}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkFile reads the chunks of a log or a manifest.
type chunkFile struct {
	file   io.ReaderAt
	log    bool
	number uint32 // of the log
}

// chunk is one of a file; payload is valid until the next.
type chunk struct {
	start   bool // of a record
	behind  bool // the damage
	synced  int64
	payload []byte
}

// walk calls visit with every intact chunk, even behind a damaged one. It returns the position of
// the first bytes that are no chunk or end mark, and whether the file ends there as it should: a
// log with its end mark, a manifest with the file.
func (c *chunkFile) walk(visit func(chunk)) (end int64, clean bool, err error) {
	buffer := make([]byte, blockBytes)
	damaged := false
	for block := int64(0); ; block += blockBytes {
		n, err := c.file.ReadAt(buffer, block)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
		data := buffer[:n]
		at := 0
		for at < n {
			size, got := c.parse(data[at:])
			switch {
			case size > 0:
				got.behind = damaged
				visit(got)
				at += size
			case damaged:
				at++
			case c.padding(data[at:], n == blockBytes):
				at = n
			default:
				end, clean, damaged = block+int64(at), c.isEnd(data[at:]), true
				if clean {
					return end + int64(firstLogFormat.header), true, nil
				}
			}
		}
		if n < blockBytes {
			if !damaged {
				return block + int64(n), !c.log, nil
			}
			return end, false, nil
		}
	}
}

// parse returns the chunk at the start of data and its size, or 0 if there is no intact one.
func (c *chunkFile) parse(data []byte) (int, chunk) {
	if len(data) < manifestFormat.header {
		return 0, chunk{}
	}
	format := manifestFormat
	switch {
	case c.log && int(data[6]) > logFormat.kindBase:
		format = logFormat
	case c.log:
		format = firstLogFormat
	}
	kind := int(data[6]) - format.kindBase
	size := format.header + int(binary.LittleEndian.Uint16(data[4:]))
	if kind < chunkKindFull || kind > chunkKindLast || size > len(data) {
		return 0, chunk{}
	}
	if c.log && binary.LittleEndian.Uint32(data[7:]) != c.number {
		return 0, chunk{}
	}
	sum := crc32.Checksum(data[6:size], castagnoli)
	if binary.LittleEndian.Uint32(data) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0, chunk{}
	}
	got := chunk{start: kind <= chunkKindFirst, payload: data[format.header:size]}
	if format == logFormat {
		got.synced = int64(binary.LittleEndian.Uint64(data[11:]))
	}
	return size, got
}

// padding reports whether rest is the padding at the end of a whole block: zeros, where no header
// fits.
func (c *chunkFile) padding(rest []byte, whole bool) bool {
	header := manifestFormat.header
	if c.log {
		header = logFormat.header
	}
	if !whole || len(rest) >= header {
		return false
	}
	for _, b := range rest {
		if b != 0 {
			return false
		}
	}
	return true
}

// isEnd reports whether data begins with the end mark of the log.
func (c *chunkFile) isEnd(data []byte) bool {
	if !c.log || len(data) < firstLogFormat.header {
		return false
	}
	return binary.LittleEndian.Uint32(data) == 0 && binary.LittleEndian.Uint16(data[4:]) == 0 &&
		data[6] == chunkKindEnd && binary.LittleEndian.Uint32(data[7:]) == c.number+1
}
