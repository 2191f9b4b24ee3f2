package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markName is the file of a mark, beside the logs.
const markName = "SYNCED"

// markEveryDefault is how often a busy store writes its mark.
const markEveryDefault = time.Second

// mark is a file with a statement of the witness. It survives if a log loses its end, unlike the
// statements in the log. [inspect] checks logs and manifest against it.
//
// It states the bytes that were synced before it was written, so each version of it that a crash
// leaves is true: this one, an older one, or none. It is therefore written without a sync while the
// store is busy, and synced when the store is idle. Two slots are written in turns, so that a torn
// write destroys only the older statement. All intact statements count:
//
//	at 0 and at 4096: statement, as in the log ‖ its checksum, CRC-32C (4, big endian)
//
// One goroutine at a time calls its methods: the opening one, then syncLoop, then the closing one.
type mark struct {
	fs     vfs.FS
	dir    string
	logger *slog.Logger

	file    vfs.File // nil before the first write
	last    statement
	next    int  // slot
	synced  bool // all that was written
	failing bool // the last write has failed, which was logged
}

const (
	markSlots     = 2
	markSlotBytes = 4 << 10 // a page, so that the slots are written to the disk apart
)

// path returns the name of the file.
func (m *mark) path() string { return m.fs.PathJoin(m.dir, markName) }

// load returns the statements in the file: none when it does not exist, or holds none that is
// whole, as after a crash at its creation.
func (m *mark) load() ([]statement, error) {
	file, err := m.fs.Open(m.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content := make([]byte, markSlots*markSlotBytes)
	n, err := file.ReadAt(content, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	var whole []statement
	for i := range markSlots {
		s, ok := decodeMark(content[min(i*markSlotBytes, n):n])
		if !ok {
			continue
		}
		whole = append(whole, s)
		if s.log >= m.last.log {
			m.last, m.next = s, (i+1)%markSlots
		}
	}
	if len(whole) == 0 {
		m.logger.Warn("kv: failed to read the sync watermark, accepting the log as it is",
			"path", m.path(), "bytes", n)
	}
	return whole, nil
}

// write replaces the older statement by s. With sync it returns when s is on the disk. The first of
// several consecutive failures is logged: a failure weakens only the detection of damage. write
// reports whether it succeeded.
func (m *mark) write(s statement, sync bool) bool {
	err := m.put(s, sync)
	if err != nil && !m.failing {
		m.logger.Error("kv: failed to write the sync watermark: a log truncated while the server is stopped "+
			"would not be detected", "path", m.path(), "error", err)
	}
	m.failing = err != nil
	return err == nil
}

func (m *mark) put(s statement, sync bool) error {
	created := m.file == nil
	if created {
		if err := m.open(); err != nil {
			return err
		}
	}
	if s != m.last {
		m.synced = false
		if _, err := m.file.WriteAt(encodeMark(s), int64(m.next)*markSlotBytes); err != nil {
			return err
		}
		m.last, m.next = s, (m.next+1)%markSlots
	}
	if m.synced || !sync && !created {
		return nil
	}
	if err := m.file.SyncData(); err != nil {
		return err
	}
	m.synced = true
	return nil
}

// open makes the file, in its full size, if it does not exist.
func (m *mark) open() (err error) {
	file, err := m.fs.OpenReadWrite(m.path(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if missing := markSlots*markSlotBytes - info.Size(); missing > 0 {
		if _, err := file.WriteAt(make([]byte, missing), info.Size()); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	folder, err := m.fs.OpenDir(m.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	m.file = file
	return nil
}

// close closes the file.
func (m *mark) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// encodeMark returns the bytes of a slot.
func encodeMark(s statement) []byte {
	out := s.encode()
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// decodeMark returns the statement at the start of a slot, if it is whole.
func decodeMark(slot []byte) (statement, bool) {
	if len(slot) < statementBytes+crc32.Size {
		return statement{}, false
	}
	said, sum := slot[:statementBytes], binary.BigEndian.Uint32(slot[statementBytes:])
	if crc32.Checksum(said, castagnoli) != sum {
		return statement{}, false
	}
	return parseStatement(said)
}

// LossError says that a log or a manifest has lost synced bytes, or is missing. It matches
// [ErrCorrupt].
type LossError struct {
	// Path names the log or the manifest.
	Path string
	// Synced is the number of its bytes that were synced, Intact the number of intact ones, or -1 when
	// there is no such file.
	Synced, Intact int64
	// Mark is the path of the mark if the claim comes from it. Without that file the store opens with
	// the remaining data. It is empty if the claim comes from other logs.
	Mark string
}

// Error names the loss and the remedy.
func (e *LossError) Error() string {
	state := fmt.Sprintf("ends at %d and was synced to %d", e.Intact, e.Synced)
	if e.Intact < 0 {
		state = fmt.Sprintf("is missing and was synced to %d", e.Synced)
	}
	advice := "restore a backup"
	if e.Mark != "" {
		advice += fmt.Sprintf(", or remove %s to go on without what is lost", e.Mark)
	}
	return fmt.Sprintf("%v: %s %s: writes that were acknowledged are lost; %s", ErrCorrupt, e.Path, state, advice)
}

// Is reports whether target is ErrCorrupt.
func (e *LossError) Is(target error) bool { return target == ErrCorrupt }
