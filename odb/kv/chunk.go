package kv

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Pebble's logs and manifests are sequences of chunks in blocks of 32 KiB; no chunk crosses a block. All numbers little endian:
//
//	manifest   crc (4) ‖ length (2) ‖ kind 1-4 (1) ‖ payload
//	log        crc (4) ‖ length (2) ‖ kind 9-12 (1) ‖ log number (4) ‖ bytes synced (8) ‖ payload
//	its end    0 (4) ‖ 0 (2) ‖ kind 5 (1) ‖ log number + 1 (4)
//
// A kind is full, first, middle or last, in this order. The checksum covers all that follows the length. See package record of
// Pebble, whose own reader takes a chunk with the next log number for the end without looking at anything else.
const (
	blockBytes          = 32 << 10
	chunkKindFull       = 1
	chunkKindFirst      = 2
	chunkKindLast       = 4
	chunkKindLogEnd     = 5
	chunkKindLog        = 8 // plus full, first, middle or last
	manifestHeaderBytes = 7
	logEndBytes         = 11
	logHeaderBytes      = 19
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
	behind  bool // what is damaged
	synced  int64
	payload []byte
}

// walk calls visit with every intact chunk, also with those behind a damaged one. It returns where the first bytes are that are not
// a chunk, and whether the file ends there as it should: a log with its end mark, a manifest with the file.
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
					return end, true, nil
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

// parse returns the chunk at the start of data and its size, or 0 if there is none that is intact.
func (c *chunkFile) parse(data []byte) (int, chunk) {
	header, kindBase := manifestHeaderBytes, 0
	if c.log {
		header, kindBase = logHeaderBytes, chunkKindLog
	}
	if len(data) < header {
		return 0, chunk{}
	}
	kind := int(data[6]) - kindBase
	size := header + int(binary.LittleEndian.Uint16(data[4:]))
	if kind < chunkKindFull || kind > chunkKindLast || size > len(data) {
		return 0, chunk{}
	}
	got := chunk{start: kind <= chunkKindFirst, payload: data[header:size]}
	if c.log {
		if binary.LittleEndian.Uint32(data[7:]) != c.number {
			return 0, chunk{}
		}
		got.synced = int64(binary.LittleEndian.Uint64(data[11:]))
	}
	sum := crc32.Checksum(data[6:size], castagnoli)
	if binary.LittleEndian.Uint32(data) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0, chunk{}
	}
	return size, got
}

// padding reports whether rest is what a writer leaves at the end of a whole block.
func (c *chunkFile) padding(rest []byte, whole bool) bool {
	header := manifestHeaderBytes
	if c.log {
		header = logHeaderBytes
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
	if !c.log || len(data) < logEndBytes {
		return false
	}
	return binary.LittleEndian.Uint32(data) == 0 && binary.LittleEndian.Uint16(data[4:]) == 0 &&
		data[6] == chunkKindLogEnd && binary.LittleEndian.Uint32(data[7:]) == c.number+1
}
