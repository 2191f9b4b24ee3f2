package odb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"packhorse/odb/file"
	"packhorse/pack/object"
)

// A sectioned file is a data region, sections of fixed-size items, and a footer:
//
//	data      a packfile, or nothing
//	section   items, one after another; cut into blocks of whole items, at most 64 KiB each
//	...
//	footer    16 layer ID | 8 data size | 8 item count of the file | 1 section count, then per section:
//	              1 kind | 2 item width | 8 offset | 8 size | 4 CRC-32C per block
//	tail      4 footer size | 4 CRC-32C of the footer | 4 format version | 12 magic
//
// Numbers are big-endian. A file is opened by reading its tail and footer; every block is verified when it is read.

// sectionKind names a section within a file. The numbers are stored.
type sectionKind uint8

const (
	sectionFanout       sectionKind = 1 // 256 times 4: how many IDs have a first byte up to this one
	sectionIDs          sectionKind = 2 // 20: object IDs, sorted
	sectionRecords      sectionKind = 3 // 24: a segmentRecord per ID
	sectionOrder        sectionKind = 4 // 4: ordinals in the order of their entries
	sectionStreams      sectionKind = 5 // 17: a block stream: ordinal, index of its first block, block count, end of the last; sorted
	sectionStreamBlocks sectionKind = 6 // 13: a block: offset in its zlib stream, Adler-32 of its content, CRC-32C as stored
	sectionRows         sectionKind = 7 // 40: a graph row per ID: tree, seconds, generation, first parent, parent count
	sectionParents      sectionKind = 8 // 20: parent IDs, commit after commit
	sectionTips         sectionKind = 9 // 20: of the outline, sorted, and so the next two
	sectionFill         sectionKind = 10
	sectionOutside      sectionKind = 11
	sectionBitmapLayers sectionKind = 12 // 20: a segment that bitmaps are over: layer, object count; oldest first
	sectionBitmapTypes  sectionKind = 13 // 16: the bitmaps of all commits, trees, blobs and tags, as in the next
	sectionBitmapRows   sectionKind = 14 // 16: a bitmap per ID: offset and size of its bytes, index of the one that it is XORed with
	sectionBitmapBytes  sectionKind = 15 // 1: bitmaps
	sectionFilterRows   sectionKind = 16 // 12: where the path filter of each ID lies: offset, size
	sectionFilterBytes  sectionKind = 17 // 1: path filters
	sectionProvisional  sectionKind = 18 // 1: one item where deltas were found among few objects, and a search among more finds better ones
	sectionKindEnd      sectionKind = 19
)

// bitmapRowSize is the size in bytes of a row of a bitmap file: 8 offset, 4 size, 4 index of the bitmap that it is XORed with.
const bitmapRowSize = 8 + 4 + 4

const (
	blockSizeMax  = 64 << 10
	footerHead    = 16 + 8 + 8 + 1
	sectionHead   = 1 + 2 + 8 + 8
	tailSize      = 4 + 4 + 4 + magicSize
	magicSize     = 12
	formatVersion = 1
	// footerSizeMax keeps a damaged tail from asking for more memory than any footer needs: 4 bytes per 64 KiB of 256 GiB.
	footerSizeMax = 16 << 20
	// openReadSize is what is read from the end of a file to have tail and footer of all but the largest in one call.
	openReadSize = 4 << 10
)

// The magics of sectioned files.
const (
	segmentMagic = "packhorseSEG"
	graphMagic   = "packhorseGRA"
	bitmapMagic  = "packhorseBIT"
	filterMagic  = "packhorseFIL"
)

// castagnoli is the polynomial of the checksums of everything but entries, whose checksum is that of pack indexes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// section is where a section lies and how its blocks are verified.
type section struct {
	width  int
	offset int64
	size   int64
	sums   []uint32
}

// perBlock is the number of items in a block, at least 1 also for a section that is not there.
func (s *section) perBlock() int { return blockSizeMax / max(s.width, 1) }

func (s *section) count() int { return int(s.size / int64(max(s.width, 1))) }

// sectionFile reads a sectioned file that is open. Its blocks go through the store's cache.
type sectionFile struct {
	env      *fileEnv
	layer    LayerID // that the cache and errors know it by
	magic    string
	file     file.File
	dataSize int64
	count    int
	sections [sectionKindEnd]section
	fanout   [256]uint32
}

// openSections reads the tail, footer and fan-out of a file. Errors: [ErrCorrupt] and those of f.
func openSections(ctx context.Context, env *fileEnv, layer LayerID, f file.File, magic string) (*sectionFile, error) {
	g := &sectionFile{env: env, layer: layer, magic: magic, file: f}
	if err := g.readFooter(); err != nil {
		return nil, g.damaged(err)
	}
	if err := g.readFanout(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// damaged turns a failed check into a counted [CorruptError]; errors of the file system stay what they are.
func (g *sectionFile) damaged(err error) error {
	return g.env.damage.read(g.fileName(), g.layer, object.ZeroID, err)
}

// fileName is the name that the file store knows the file by.
func (g *sectionFile) fileName() string {
	for _, kind := range []layerKind{layerSegment, layerGraph, layerFilter, layerBitmap} {
		if kind.magic() == g.magic {
			return kind.fileName(g.layer)
		}
	}
	return ""
}

func (g *sectionFile) readFooter() error {
	size := g.file.Size()
	if size < tailSize+footerHead {
		return fmt.Errorf("%w: %d bytes", errFormat, size)
	}
	end := make([]byte, min(size, openReadSize))
	if err := readFullAt(g.file, end, size-int64(len(end))); err != nil {
		return err
	}
	tail := end[len(end)-tailSize:]
	if string(tail[12:]) != g.magic {
		return fmt.Errorf("%w: no magic at the end", errFormat)
	}
	if version := binary.BigEndian.Uint32(tail[8:]); version != formatVersion {
		return fmt.Errorf("%w: format version %d", errFormat, version)
	}
	footerSize := int64(binary.BigEndian.Uint32(tail))
	if footerSize < footerHead || footerSize > min(footerSizeMax, size-tailSize) {
		return fmt.Errorf("%w: footer of %d bytes", errFormat, footerSize)
	}
	var footer []byte
	if rest := end[:len(end)-tailSize]; footerSize <= int64(len(rest)) {
		footer = rest[int64(len(rest))-footerSize:]
	} else {
		footer = make([]byte, footerSize)
		if err := readFullAt(g.file, footer, size-tailSize-footerSize); err != nil {
			return err
		}
	}
	if crc32.Checksum(footer, castagnoli) != binary.BigEndian.Uint32(tail[4:]) {
		return fmt.Errorf("%w: footer fails its checksum", errFormat)
	}
	return g.decodeFooter(footer, size-tailSize-footerSize)
}

// decodeFooter fills g from a footer that begins at offset end and has passed its checksum.
func (g *sectionFile) decodeFooter(footer []byte, end int64) error {
	d := footerReader{data: footer}
	if layer := LayerID(d.take(len(LayerID{}))); layer != g.layer {
		return fmt.Errorf("%w: this is the file of layer %s", errFormat, layer)
	}
	dataSize, count := d.uint64(), d.uint64()
	if dataSize > uint64(end) || count >= uint64(noOrdinal) {
		return fmt.Errorf("%w: impossible sizes", errFormat)
	}
	g.dataSize, g.count = int64(dataSize), int(count)
	for range d.take(1)[0] {
		kind := sectionKind(d.take(1)[0])
		width, offset, size := int(d.uint16()), d.uint64(), d.uint64()
		if d.failed || kind >= sectionKindEnd || width == 0 || offset < dataSize || offset > uint64(end) || size > uint64(end)-offset ||
			size%uint64(width) != 0 {
			return fmt.Errorf("%w: impossible section", errFormat)
		}
		s := &g.sections[kind]
		*s = section{width: width, offset: int64(offset), size: int64(size)}
		s.sums = make([]uint32, ceilDiv(s.count(), s.perBlock()))
		for i := range s.sums {
			s.sums[i] = d.uint32()
		}
	}
	if d.failed || len(d.data) > 0 {
		return fmt.Errorf("%w: footer is cut off", errFormat)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (g *sectionFile) readFanout(ctx context.Context) error {
	if err := g.checkWidths(); err != nil {
		return g.damaged(err)
	}
	block, err := g.block(ctx, sectionFanout, 0)
	if err != nil {
		return err
	}
	previous := uint32(0)
	for i := range g.fanout {
		g.fanout[i] = binary.BigEndian.Uint32(block[4*i:])
		if g.fanout[i] < previous {
			return g.damaged(fmt.Errorf("%w: fan-out goes down", errFormat))
		}
		previous = g.fanout[i]
	}
	if int(previous) != g.count {
		return g.damaged(fmt.Errorf("%w: fan-out counts %d of %d", errFormat, previous, g.count))
	}
	return nil
}

// sectionWidths are the sizes of items.
var sectionWidths = [sectionKindEnd]int{
	sectionFanout:       4,
	sectionIDs:          object.IDSize,
	sectionRecords:      recordSize,
	sectionOrder:        4,
	sectionStreams:      streamItemSize,
	sectionStreamBlocks: streamBlockSize,
	sectionRows:         graphItemSize,
	sectionParents:      object.IDSize,
	sectionTips:         object.IDSize,
	sectionFill:         object.IDSize,
	sectionOutside:      object.IDSize,
	sectionProvisional:  1,
	sectionBitmapLayers: len(LayerID{}) + 4,
	sectionBitmapTypes:  bitmapRowSize,
	sectionBitmapRows:   bitmapRowSize,
	sectionBitmapBytes:  1,
	sectionFilterRows:   filterRowSize,
	sectionFilterBytes:  1,
}

// checkWidths makes sure that every section is what this version writes and that those which have an item per ID have all of them.
func (g *sectionFile) checkWidths() error {
	perID := []sectionKind{sectionIDs}
	switch g.magic {
	case segmentMagic:
		perID = append(perID, sectionRecords, sectionOrder)
	case bitmapMagic:
		perID = append(perID, sectionBitmapRows)
	case filterMagic:
		perID = append(perID, sectionFilterRows)
	default:
		perID = append(perID, sectionRows)
	}
	for kind := range g.sections {
		if s := &g.sections[kind]; s.width != 0 && s.width != sectionWidths[kind] {
			return fmt.Errorf("%w: section %d has items of %d bytes", errFormat, kind, s.width)
		}
	}
	for _, kind := range perID {
		if g.sections[kind].count() != g.count {
			return fmt.Errorf("%w: section %d is not complete", errFormat, kind)
		}
	}
	if g.sections[sectionFanout].count() != len(g.fanout) {
		return fmt.Errorf("%w: no fan-out", errFormat)
	}
	return nil
}

// block returns a verified block of a section, shared and only to be read.
func (g *sectionFile) block(ctx context.Context, kind sectionKind, n int) ([]byte, error) {
	key := cacheKey{layer: g.layer, section: kind, block: uint32(n)}
	if cached, ok := g.env.cache.get(key); ok {
		return cached.data, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	block, err := g.readBlock(kind, n)
	if err != nil {
		return nil, g.damaged(err)
	}
	g.env.cache.set(key, cached{data: block})
	return block, nil
}

// readBlock reads a block from the file, past the cache.
func (g *sectionFile) readBlock(kind sectionKind, n int) ([]byte, error) {
	s := &g.sections[kind]
	if n >= len(s.sums) {
		return nil, fmt.Errorf("%w: block %d of section %d is not there", errFormat, n, kind)
	}
	blockSize := int64(s.perBlock() * s.width)
	start := int64(n) * blockSize
	block := make([]byte, min(blockSize, s.size-start))
	if err := readFullAt(g.file, block, s.offset+start); err != nil {
		return nil, err
	}
	if crc32.Checksum(block, castagnoli) != s.sums[n] {
		return nil, fmt.Errorf("%w: block %d of section %d fails its checksum", errFormat, n, kind)
	}
	return block, nil
}

// item returns an item of a section, shared and only to be read.
func (g *sectionFile) item(ctx context.Context, kind sectionKind, index int) ([]byte, error) {
	s := &g.sections[kind]
	if index < 0 || index >= s.count() {
		return nil, g.damaged(fmt.Errorf("%w: item %d of section %d is not there", errFormat, index, kind))
	}
	n := index / s.perBlock()
	block, err := g.block(ctx, kind, n)
	if err != nil {
		return nil, err
	}
	at := (index - n*s.perBlock()) * s.width
	return block[at : at+s.width : at+s.width], nil
}

// bytes returns size bytes of a section of single bytes, from offset on, only to be read.
func (g *sectionFile) bytes(ctx context.Context, kind sectionKind, offset, size int64) ([]byte, error) {
	if total := g.sections[kind].size; offset < 0 || size < 0 || offset > total || size > total-offset {
		return nil, g.damaged(fmt.Errorf("%w: bytes %d of section %d are not there", errFormat, offset, kind))
	}
	var joined []byte
	for size > 0 {
		block, err := g.block(ctx, kind, int(offset/blockSizeMax))
		if err != nil {
			return nil, err
		}
		piece := block[offset%blockSizeMax:]
		piece = piece[:min(int64(len(piece)), size)]
		offset += int64(len(piece))
		size -= int64(len(piece))
		if joined == nil && size == 0 {
			return piece, nil
		}
		joined = append(joined, piece...)
	}
	return joined, nil
}

// readFullAt fills p; a file that ends before is a malformed one.
func readFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut off at %d", errFormat, off+int64(n))
	}
	return err
}

// footerReader takes apart a footer. After a failure it returns zeros, so that its user checks once.
type footerReader struct {
	data   []byte
	failed bool
}

func (r *footerReader) take(n int) []byte {
	if len(r.data) < n {
		r.failed = true
		r.data = nil
		return make([]byte, n)
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *footerReader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *footerReader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *footerReader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
