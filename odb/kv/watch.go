package kv

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFS stands between Pebble and its files. It reports the syncs of logs and manifests to a
// witness, refuses tables with a damaged footer, settles markers, and calls failed after every
// failure that makes the content of the disk unknown: Pebble itself panics on most of them, and
// some of these panics cannot be recovered.
//
// It watches only files directly in dir: files of the same names in a checkpoint do not belong to
// the running store.
type watchedFS struct {
	vfs.FS
	dir     string
	witness *witness
	failed  func(error)
}

// report passes a failure to failed and returns it.
func (f *watchedFS) report(err error) error {
	if err != nil {
		f.failed(err)
	}
	return err
}

// Create implements vfs.FS.
func (f *watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.settleMarker(name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, category)
	return f.watch(name, file, err)
}

// ReuseForWrite implements vfs.FS.
func (f *watchedFS) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldName, newName, category)
	return f.watch(newName, file, err)
}

// OpenDir implements vfs.FS.
func (f *watchedFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil || f.PathJoin(name) != f.PathJoin(f.dir) {
		return file, err
	}
	return &watchedDir{File: file, fs: f}, nil
}

// Unwrap implements vfs.FS.
func (f *watchedFS) Unwrap() vfs.FS { return f.FS }

// watch wraps file if it is a log or a manifest.
func (f *watchedFS) watch(name string, file vfs.File, err error) (vfs.File, error) {
	base := f.PathBase(name)
	if f.PathDir(name) != f.PathJoin(f.dir) {
		return file, err
	}
	if number, ok := logNumber(base); ok {
		if err != nil {
			return nil, f.report(err)
		}
		return &watchedFile{File: file, fs: f, number: number, synced: &f.witness.log}, nil
	}
	if number, ok := manifestNumber(base); ok && err == nil {
		return &watchedFile{File: file, fs: f, number: number, synced: &f.witness.manifest}, nil
	}
	return file, err
}

// watchedDir is a directory of a watchedFS.
type watchedDir struct {
	vfs.File
	fs *watchedFS
}

// Sync implements vfs.File.
func (d *watchedDir) Sync() error { return d.fs.report(d.File.Sync()) }

// watchedFile counts the bytes written from its beginning, and reports its syncs.
type watchedFile struct {
	vfs.File
	fs      *watchedFS
	number  uint32
	written atomic.Uint64
	synced  *atomic.Uint64 // of the witness
}

// Write implements vfs.File.
func (f *watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.written.Add(uint64(n))
	return n, f.fs.report(err)
}

// Sync implements vfs.File.
func (f *watchedFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *watchedFile) SyncData() error { return f.sync(f.File.SyncData) }

// Close implements vfs.File.
func (f *watchedFile) Close() error { return f.fs.report(f.File.Close()) }

func (f *watchedFile) sync(sync func() error) error {
	written, begin := f.written.Load(), time.Now()
	if err := sync(); err != nil {
		return f.fs.report(err)
	}
	f.synced.Store(uint64(f.number)<<32 | min(written, 1<<32-1))
	if witness := f.fs.witness; f.synced == &witness.log {
		took := int64(time.Since(begin))
		witness.syncs.Add(1)
		witness.syncNanos.Add(took)
		witness.lastNanos.Store(took)
	}
	return nil
}
