package kv

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// witness knows how far Pebble's newest log and newest manifest are on the disk, by watching their
// syncs. Every batch writes a statement of it to the log, and a [mark] holds another one. [inspect]
// checks the files against the statements before Pebble reads them.
//
// Pebble has such statements of its own in its log chunks (FormatWALSyncChunks), but up to version
// 2.1.7, and on its main branch in May 2026, they leave out whole blocks. They fall behind by
// between a third and all of the bytes that commits of some kilobytes write: a flipped bit there
// ended the log silently, and acknowledged commits with it. For the manifest it has none at all.
type witness struct {
	log      atomic.Uint64 // file number << 32 | bytes synced
	manifest atomic.Uint64

	// Of the log: how many syncs there were, how long they took together, and how long the last one
	// took.
	syncs     atomic.Uint64
	syncNanos atomic.Int64
	lastNanos atomic.Int64
}

// syncTime returns how long the syncs of the log took together.
func (w *witness) syncTime() time.Duration { return time.Duration(w.syncNanos.Load()) }

// A statement in the log, inside a LogData record, which Pebble keeps out of tables:
//
//	"packhorse\x01" ‖ log number (4) ‖ bytes synced (4) ‖ manifest number (4) ‖ bytes synced (4), big endian
const (
	statementMagic = "packhorse\x01"
	statementBytes = len(statementMagic) + 16
)

// statement is a claim of a witness.
type statement struct {
	log, manifest uint64 // as in witness
}

// now returns the current statement.
func (w *witness) now() statement {
	return statement{log: w.log.Load(), manifest: w.manifest.Load()}
}

// encode returns the bytes of s.
func (s statement) encode() []byte {
	out := append(make([]byte, 0, statementBytes), statementMagic...)
	out = binary.BigEndian.AppendUint64(out, s.log)
	return binary.BigEndian.AppendUint64(out, s.manifest)
}

// decodeStatement finds the statement in the first chunk of a batch's log record: a header of 12
// bytes, then a LogData record as the first operation.
func decodeStatement(record []byte) (statement, bool) {
	const headerBytes, kindLogData = 12, 3
	if len(record) < headerBytes+2+statementBytes {
		return statement{}, false
	}
	body := record[headerBytes:]
	if body[0] != kindLogData || int(body[1]) != statementBytes {
		return statement{}, false
	}
	return parseStatement(body[2 : 2+statementBytes])
}

// parseStatement decodes a statement.
func parseStatement(encoded []byte) (statement, bool) {
	numbers, ok := bytes.CutPrefix(encoded, []byte(statementMagic))
	if !ok || len(encoded) != statementBytes {
		return statement{}, false
	}
	return statement{log: binary.BigEndian.Uint64(numbers), manifest: binary.BigEndian.Uint64(numbers[8:])}, true
}

// fileOf returns the file of a witness value.
func fileOf(value uint64) uint32 { return uint32(value >> 32) }

// syncedBytes returns the number of synced bytes in a witness value.
func syncedBytes(value uint64) int64 { return int64(uint32(value)) }

// logNumber returns the number in the name of a log, such as 000123.log.
func logNumber(base string) (uint32, bool) {
	digits, ok := strings.CutSuffix(base, ".log")
	return fileNumber(digits, ok)
}

// manifestNumber returns the number in the name of a manifest, such as MANIFEST-000123.
func manifestNumber(base string) (uint32, bool) {
	digits, ok := strings.CutPrefix(base, "MANIFEST-")
	return fileNumber(digits, ok)
}

func fileNumber(digits string, ok bool) (uint32, bool) {
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}
