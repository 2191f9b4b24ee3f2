package packgen

import (
	"context"
	"fmt"

	"packhorse/odb/file"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// foundDelta is a delta that was made for one pack. [foundDeltas] holds its bytes.
type foundDelta struct {
	base       object.ID
	kind       object.Type
	size       uint32 // of the delta
	packedSize uint32 // deflated
	at         int64
}

// madeDelta is a delta that has been computed and not been added to [foundDeltas] yet.
type madeDelta struct {
	foundDelta
	packed []byte
}

// makeDelta deflates a delta.
func makeDelta(base object.ID, kind object.Type, program []byte) madeDelta {
	packed := pack.Deflate(nil, program, pack.LevelDefault)
	return madeDelta{
		foundDelta{base: base, kind: kind, size: uint32(len(program)), packedSize: uint32(len(packed))}, packed,
	}
}

// foundDeltas holds the deltas made for one pack. Each takes about 60 bytes of memory. Their
// content is in memory up to a few MiB, and in a scratch file beyond. A nil one is empty. It is for
// one goroutine at a time.
type foundDeltas struct {
	entries map[handle]foundDelta
	content *file.SpillBuffer // deflated
}

func newFoundDeltas(files file.Store, memBytes int) *foundDeltas {
	return &foundDeltas{entries: make(map[handle]foundDelta), content: file.NewSpillBuffer(files, memBytes)}
}

func (d *foundDeltas) count() int {
	if d == nil {
		return 0
	}
	return len(d.entries)
}

// bytes returns the total size of the deltas.
func (d *foundDeltas) bytes() int64 { return d.content.Size() }

// get returns the delta that was found for an object.
func (d *foundDeltas) get(h handle) (foundDelta, bool) {
	if d == nil {
		return foundDelta{}, false
	}
	found, ok := d.entries[h]
	return found, ok
}

// add stores the delta of an object.
func (d *foundDeltas) add(ctx context.Context, h handle, made *madeDelta) error {
	made.at = d.bytes()
	d.entries[h] = made.foundDelta
	return d.content.Write(ctx, made.packed)
}

// packed appends the deflated bytes of a delta to dst.
func (d *foundDeltas) packed(dst []byte, found *foundDelta) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, found.packedSize)...)
	if err := segment.ReadFullAt(d.content, dst[start:], found.at); err != nil {
		return nil, fmt.Errorf("read scratch file: %w", err)
	}
	return dst, nil
}

// close removes the content.
func (d *foundDeltas) close() error {
	if d == nil {
		return nil
	}
	return d.content.Close()
}
