package odb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// layerKind says what a layer or a companion is. The numbers are stored.
type layerKind uint8

const (
	layerHot     layerKind = 1
	layerSegment layerKind = 2

	// Companions.
	layerGraph    layerKind = 3 // of a segment: commit-graph rows
	layerFilter   layerKind = 4 // of a segment: changed-path filters of its commits
	layerBitmap   layerKind = 5 // of a segment: what commits reach in the layers up to this one
	layerBorrowed layerKind = 6 // of a layer that a fork took: what of it may be read
)

// manifestLayer is a layer in a manifest.
type manifestLayer struct {
	kind       layerKind
	id         LayerID
	companions []manifestLayer // without companions of their own
}

// manifest is what a pool consists of. Layers stand in the order in which they joined.
//
//	byte 0      format, 1
//	uvarint     version: counts every change
//	uvarint     drop count: counts the changes that removed objects
//	uvarint     layer count, then per layer:
//	    byte     kind
//	    16       layer ID
//	    uvarint  companion count, then per companion: byte kind, 16 ID
//	4           CRC-32C of all before and of the pool's ID
type manifest struct {
	version, drops uint64
	layers         []manifestLayer
}

const manifestFormat = 1

// manifestBytesMax leaves the manifest room below the value limit of the key-value store.
const manifestBytesMax = kv.ValueBytesMax - 4*kibibyte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *manifest) encode(pool PoolID) []byte {
	dst := make([]byte, 0, 32+64*len(m.layers))
	dst = append(dst, manifestFormat)
	dst = binary.AppendUvarint(dst, m.version)
	dst = binary.AppendUvarint(dst, m.drops)
	dst = binary.AppendUvarint(dst, uint64(len(m.layers)))
	for _, layer := range m.layers {
		dst = append(dst, byte(layer.kind))
		dst = append(dst, layer.id[:]...)
		dst = binary.AppendUvarint(dst, uint64(len(layer.companions)))
		for _, companion := range layer.companions {
			dst = append(dst, byte(companion.kind))
			dst = append(dst, companion.id[:]...)
		}
	}
	return binary.BigEndian.AppendUint32(dst, manifestSum(pool, dst))
}

// manifestSum includes the pool, so that one pool's manifest under another's key is found out.
func manifestSum(pool PoolID, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(pool[:], castagnoli), castagnoli, body)
}

var errManifest = errors.New("manifest is malformed")

func decodeManifest(pool PoolID, data []byte) (manifest, error) {
	var m manifest
	if len(data) < 4 || manifestSum(pool, data[:len(data)-4]) != binary.BigEndian.Uint32(data[len(data)-4:]) {
		return m, errors.New("manifest fails its checksum")
	}
	if data[0] != manifestFormat {
		return m, fmt.Errorf("manifest format %d is unknown", data[0])
	}
	d := decoder{data: data[1 : len(data)-4]}
	m.version, m.drops = d.uvarint(), d.uvarint()
	for range d.count() {
		layer := d.layer()
		for range d.count() {
			layer.companions = append(layer.companions, d.layer())
		}
		m.layers = append(m.layers, layer)
	}
	if d.failed || len(d.data) > 0 || len(m.layers) == 0 {
		return m, errManifest
	}
	return m, nil
}

// hot returns the layer that takes writes: the last one, which is a hot layer.
func (m *manifest) hot() (LayerID, bool) {
	for _, l := range slices.Backward(m.layers) {
		if l.kind == layerHot {
			return l.id, true
		}
	}
	return LayerID{}, false
}

// readManifest returns a pool's manifest with the bytes that a precondition compares. Errors: [ErrNoPool], [ErrCorrupt].
func (s *Store) readManifest(ctx context.Context, r kv.Reader, pool PoolID) (manifest, []byte, error) {
	data, err := r.Get(ctx, manifestKey(pool))
	if errors.Is(err, kv.ErrNotFound) {
		return manifest{}, nil, fmt.Errorf("%w: %s", ErrNoPool, pool)
	}
	if err != nil {
		return manifest{}, nil, fmt.Errorf("read manifest of pool %s: %w", pool, err)
	}
	m, err := decodeManifest(pool, data)
	if err != nil {
		return manifest{}, nil, s.corrupt(LayerID(pool), object.ZeroID, "%v", err)
	}
	return m, data, nil
}

// decoder takes apart a short value. After a failure it returns zeros, so that its user checks once.
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

// count returns a number of things that take at least a byte each, so that a lie cannot make anyone loop for long.
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
	kind := layerKind(d.take(1)[0])
	return manifestLayer{kind: kind, id: LayerID(d.take(len(LayerID{})))}
}

func (d *decoder) id() object.ID { return object.ID(d.take(object.IDSize)) }
