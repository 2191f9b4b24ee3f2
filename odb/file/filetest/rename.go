package filetest

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// AtomicRenames returns a file system on which a file that is renamed is always under one of its
// names, as on the machine's: on a [vfs.MemFS] it is for a moment under none.
func AtomicRenames(fs vfs.FS) vfs.FS { return &atomicRenames{FS: fs} }

type atomicRenames struct {
	vfs.FS
	mu sync.RWMutex // exclusive for renames, shared by lookups of a name
}

func (a *atomicRenames) Rename(from, to string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.FS.Rename(from, to)
}

func (a *atomicRenames) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.FS.Open(name, options...)
}

func (a *atomicRenames) Stat(name string) (vfs.FileInfo, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.FS.Stat(name)
}
