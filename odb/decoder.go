package odb

import (
	"encoding/binary"

	"packhorse/odb/segment"
)

// decoder parses a short value. After a failure it returns zeros, so one check at the end suffices.
type decoder struct {
	data   []byte
	failed bool
}

func (d *decoder) uvarint() uint64 {
	value, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.failed = true
		d.data = nil
		return 0
	}
	d.data = d.data[n:]
	return value
}

// count returns a number of items that take at least a byte each, so that a false count cannot
// cause a long loop.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.data)) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if len(d.data) < n {
		d.failed = true
		d.data = nil
		return make([]byte, n)
	}
	taken := d.data[:n]
	d.data = d.data[n:]
	return taken
}

func (d *decoder) layer() manifestLayer {
	kind := segment.LayerKind(d.take(1)[0])
	return manifestLayer{kind: kind, id: segment.LayerID(d.take(len(segment.LayerID{})))}
}
