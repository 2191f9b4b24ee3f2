package odb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// manifestLayer is a layer in a manifest.
type manifestLayer struct {
	kind        segment.LayerKind
	id          segment.LayerID
	auxiliaries []manifestLayer // without auxiliary files of their own
}

// manifest is the content of a pool. Layers stand in the order in which they joined.
//
//	byte 0      format, 1; 2 with a visibility set, which a reader of format 1 does not know
//	uvarint     version: counts every change
//	uvarint     prune generation: counts the changes that removed objects
//	uvarint     layer count, then per layer:
//	    byte     kind
//	    16       layer ID
//	    uvarint  auxiliary file count, then per auxiliary file: byte kind, 16 ID
//	4           CRC-32C of all before and of the pool's ID
type manifest struct {
	version, prunes uint64
	layers          []manifestLayer
	raw             []byte // the stored bytes, nil of one that was not read
	unborn          bool   // of a pool that does not exist yet; see Store.NewPool
}

const manifestFormat, manifestVisibilityFormat = 1, 2

// The least sizes in bytes of a layer and of an auxiliary file in a manifest.
const (
	layerSize     = auxiliarySize + 1
	auxiliarySize = 1 + len(segment.LayerID{})
)

// castagnoli is the polynomial of the checksums in the key-value store.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifestBytesMax leaves the manifest room below the value limit of the key-value store.
const manifestBytesMax = kv.ValueBytesMax - 4*kibibyte

func (m *manifest) encode(pool PoolID) []byte {
	dst := make([]byte, 0, 32+64*len(m.layers))
	dst = append(dst, manifestFormat)
	dst = binary.AppendUvarint(dst, m.version)
	dst = binary.AppendUvarint(dst, m.prunes)
	dst = binary.AppendUvarint(dst, uint64(len(m.layers)))
	for _, layer := range m.layers {
		dst = append(dst, byte(layer.kind))
		dst = append(dst, layer.id[:]...)
		dst = binary.AppendUvarint(dst, uint64(len(layer.auxiliaries)))
		for _, auxiliary := range layer.auxiliaries {
			if auxiliary.kind == segment.KindVisibility {
				dst[0] = manifestVisibilityFormat
			}
			dst = append(dst, byte(auxiliary.kind))
			dst = append(dst, auxiliary.id[:]...)
		}
	}
	return binary.BigEndian.AppendUint32(dst, manifestSum(pool, dst))
}

// manifestSum includes the pool, so that one pool's manifest under another's key is detected.
func manifestSum(pool PoolID, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(pool[:], castagnoli), castagnoli, body)
}

var errManifest = errors.New("manifest is malformed")

func decodeManifest(pool PoolID, data []byte) (manifest, error) {
	var m manifest
	if len(data) < 4 || manifestSum(pool, data[:len(data)-4]) != binary.BigEndian.Uint32(data[len(data)-4:]) {
		return m, errors.New("manifest fails its checksum")
	}
	if data[0] != manifestFormat && data[0] != manifestVisibilityFormat {
		return m, fmt.Errorf("manifest format %d is unknown", data[0])
	}
	d := decoder{data: data[1 : len(data)-4]}
	m.version, m.prunes = d.uvarint(), d.uvarint()
	count := d.count()
	m.layers = make([]manifestLayer, 0, min(count, len(d.data)/layerSize))
	auxiliaries := make([]manifestLayer, 0, max(0, len(d.data)-count*layerSize)/auxiliarySize) // of all layers
	for range count {
		layer := d.layer()
		first := len(auxiliaries)
		for range d.count() {
			auxiliaries = append(auxiliaries, d.layer())
		}
		if end := len(auxiliaries); end > first {
			layer.auxiliaries = auxiliaries[first:end:end]
		}
		m.layers = append(m.layers, layer)
	}
	if d.failed || len(d.data) > 0 || len(m.layers) == 0 {
		return m, errManifest
	}
	return m, nil
}

// hot returns the layer that takes writes: the last one, which is a hot layer.
func (m *manifest) hot() (segment.LayerID, bool) {
	for _, l := range slices.Backward(m.layers) {
		if l.kind == segment.KindHot {
			return l.id, true
		}
	}
	return segment.LayerID{}, false
}

// check verifies a manifest that is to replace before.
func (m *manifest) check(pool PoolID, before *manifest) {
	_, hot := m.hot()
	invariants.Check(hot, "odb: no layer of pool %s takes writes", pool)
	invariants.Check(m.prunes >= before.prunes, "odb: prune generation %d of pool %s follows %d", m.prunes, pool, before.prunes)
	layers := make(map[segment.LayerID]struct{})
	for _, l := range m.layers {
		invariants.Check(l.kind == segment.KindHot || l.kind == segment.KindSegment, "odb: a layer of kind %d", l.kind)
		_, again := layers[l.id]
		invariants.Check(!again, "odb: pool %s has layer %s twice", pool, l.id)
		layers[l.id] = struct{}{}
		for _, auxiliary := range l.auxiliaries {
			invariants.Check(auxiliary.kind >= segment.KindGraph, "odb: layer %s has an auxiliary file of kind %d", l.id, auxiliary.kind)
		}
	}
	_, err := decodeManifest(pool, m.encode(pool))
	invariants.Check(err == nil, "odb: manifest of pool %s: %v", pool, err)
}

// readManifest returns a pool's manifest with the bytes that a precondition compares. Errors:
// [ErrNoPool], [ErrCorrupt].
func (s *Store) readManifest(ctx context.Context, r kv.Reader, pool PoolID) (manifest, []byte, error) {
	data, err := r.Get(ctx, manifestKey(pool))
	if errors.Is(err, kv.ErrNotFound) {
		return manifest{}, nil, fmt.Errorf("%w: %s", ErrNoPool, pool)
	}
	if err != nil {
		return manifest{}, nil, fmt.Errorf("read manifest of pool %s: %w", pool, err)
	}
	m, err := s.manifestOf(pool, data)
	return m, data, err
}

// manifestOf decodes the stored manifest of a pool. Errors: [ErrCorrupt].
func (s *Store) manifestOf(pool PoolID, data []byte) (manifest, error) {
	m, err := decodeManifest(pool, data)
	if err != nil {
		return manifest{}, s.damage.Corrupt(segment.LayerID(pool), object.ZeroID, "%v", err)
	}
	m.raw = data
	return m, nil
}
