package engine_test

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// powerCut copies a disk as a loss of power would leave it, when a number of operations that change
// it have passed since it was armed.
type powerCut struct {
	disk   *vfs.MemFS
	random *rand.Rand
	lucky  bool // whatever was written stays; otherwise some of what was not synced

	mu    sync.Mutex // guards the fields below
	armed bool
	left  int
	after *vfs.MemFS
}

// wrap returns the disk, watched.
func (p *powerCut) wrap() vfs.FS {
	return errorfs.Wrap(p.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead { // it leaves the disk as it is
			return nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.armed && p.after == nil {
			if p.left--; p.left <= 0 {
				p.cut()
			}
		}
		return nil
	}))
}

// arm lets the power fail after some more operations.
func (p *powerCut) arm(operations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.left = true, operations
}

// isOn reports whether the power has not failed.
func (p *powerCut) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after == nil
}

// rest returns the remaining content of the disk.
func (p *powerCut) rest() vfs.FS {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == nil {
		p.cut()
	}
	return p.after
}

// cut is called with mu held.
func (p *powerCut) cut() {
	percent := 100
	if !p.lucky {
		percent = p.random.IntN(101)
	}
	p.after = p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: p.random})
}
