package kv

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble names its manifest by a marker file, which it creates, and whose predecessor it removes,
// before it syncs the directory once for both. A file system that keeps entries of a directory in
// any order may then have the new marker and not the manifest, or no marker at all. So the
// directory is synced before a marker is created and before one is removed, which is once for each
// manifest.

const markerPrefix = "marker."

// Remove implements vfs.FS.
func (f *watchedFS) Remove(name string) error {
	if err := f.settleMarker(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// settleMarker syncs the directory if name is that of a marker in it.
func (f *watchedFS) settleMarker(name string) error {
	if f.PathDir(name) != f.PathJoin(f.dir) || !strings.HasPrefix(f.PathBase(name), markerPrefix) {
		return nil
	}
	dir, err := f.OpenDir(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

var _ vfs.FS = (*watchedFS)(nil)
