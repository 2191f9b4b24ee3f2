package kv

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The end of a table: format version (4, little endian) ‖ magic (8). Up to version 5, which
// FormatWALSyncChunks writes, no checksum covers them, and a table that is read as one of another
// version ends in a panic or in anything.
const (
	footerBytes  = 12
	footerMagic  = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"
	tableVersion = 5
)

// Open implements vfs.FS. It refuses tables whose footer is damaged.
func (f *watchedFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, options...)
	if err != nil || !isTable(name) {
		return file, err
	}
	if err := checkFooter(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
	}
	return file, nil
}

func checkFooter(file vfs.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var footer [footerBytes]byte
	if info.Size() < footerBytes {
		return ErrCorrupt
	}
	if _, err := file.ReadAt(footer[:], info.Size()-footerBytes); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(footer[:]) != tableVersion || string(footer[4:]) != footerMagic {
		return ErrCorrupt
	}
	return nil
}
