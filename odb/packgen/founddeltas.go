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

// foundDeltas holds the deltas made for one pack. Each takes about 60 bytes of memory. A few MiB of
// their content are in memory, the rest in a scratch file. A nil one is empty. It is for one
// goroutine at a time.
type foundDeltas struct {
	files    file.Store
	entries  map[handle]foundDelta
	latest   []byte       // the newest content
	scratch  file.Scratch // the older content; nil if there is none
	inFile   int64        // the size of scratch
	memBytes int          // the largest size of latest
}

func newFoundDeltas(files file.Store, memBytes int) *foundDeltas {
	return &foundDeltas{files: files, entries: make(map[handle]foundDelta), memBytes: memBytes}
}

func (d *foundDeltas) count() int {
	if d == nil {
		return 0
	}
	return len(d.entries)
}

// bytes returns the total size of the deltas.
func (d *foundDeltas) bytes() int64 { return d.inFile + int64(len(d.latest)) }

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
	d.latest = append(d.latest, made.packed...)
	if len(d.latest) < d.memBytes {
		return nil
	}
	if d.scratch == nil {
		scratch, err := d.files.Scratch(ctx)
		if err != nil {
			return fmt.Errorf("make scratch file: %w", err)
		}
		d.scratch = scratch
	}
	if _, err := d.scratch.Write(d.latest); err != nil {
		return fmt.Errorf("write scratch file: %w", err)
	}
	d.inFile += int64(len(d.latest))
	d.latest = d.latest[:0]
	return nil
}

// packed appends the deflated bytes of a delta to dst.
func (d *foundDeltas) packed(dst []byte, found *foundDelta) ([]byte, error) {
	size := int64(found.packedSize)
	if found.at >= d.inFile {
		at := found.at - d.inFile
		return append(dst, d.latest[at:at+size]...), nil
	}
	start := len(dst)
	dst = append(dst, make([]byte, size)...)
	if err := segment.ReadFullAt(d.scratch, dst[start:], found.at); err != nil {
		return nil, fmt.Errorf("read scratch file: %w", err)
	}
	return dst, nil
}

// close removes the scratch file.
func (d *foundDeltas) close() error {
	if d == nil || d.scratch == nil {
		return nil
	}
	return d.scratch.Close()
}
