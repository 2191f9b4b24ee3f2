package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

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
// Numbers are big-endian. A file is opened by reading its tail and footer; every block is verified
// when it is read.

// SectionKind names a section within a file. The numbers are stored.
type SectionKind uint8

// The kinds, each with the size in bytes of its items.
const (
	sectionFanout  SectionKind = 1 // 256 times 4: how many IDs have a first byte up to this one
	SectionIDs     SectionKind = 2 // 20: object IDs, sorted
	sectionRecords SectionKind = 3 // 24: a Record per ID
	sectionOrder   SectionKind = 4 // 4: ordinals in the order of their entries
	// 17: a block stream: ordinal, index of its first block, block count, end of the last; sorted.
	sectionStreams SectionKind = 5
	// 13: a block: offset in its zlib stream, Adler-32 of its content, CRC-32C as stored.
	sectionStreamBlocks SectionKind = 6
	sectionRows         SectionKind = 7  // 40: a graph row per ID: tree, seconds, generation, first parent, parent count
	sectionParents      SectionKind = 8  // 20: parent IDs, commit after commit
	sectionTips         SectionKind = 9  // 20: tips of the summary, sorted
	SectionThinBases    SectionKind = 10 // 20: thin-pack bases of the summary, sorted
	SectionExternal     SectionKind = 11 // 20: external references of the summary, sorted
	SectionBitmapLayers SectionKind = 12 // 20: a segment that the bitmaps cover: layer, object count; oldest first
	SectionBitmapTypes  SectionKind = 13 // 16: the bitmaps of all commits, trees, blobs and tags, as in the next section
	// 16: a bitmap per ID: offset and size of its bytes, index of the bitmap that it is XORed with.
	SectionBitmapRows  SectionKind = 14
	SectionBitmapBytes SectionKind = 15 // 1: bitmaps
	SectionFilterRows  SectionKind = 16 // 12: offset and size of the path filter of each ID
	SectionFilterBytes SectionKind = 17 // 1: path filters
	// 1: one item if the segment is delta-incomplete: a search among more objects finds better deltas.
	sectionProvisional  SectionKind = 18
	SectionHistories    SectionKind = 19 // 8: first row and row count of the history of each ID
	SectionHistoryRows  SectionKind = 20 // 84: commits that changed a path, history after history
	SectionHistoryLines SectionKind = 21 // 1: changed lines
	SectionTrigramRows  SectionKind = 22 // 12: offset and size of the trigrams of each ID
	SectionTrigramBytes SectionKind = 23 // 1: trigrams
	sectionKindEnd      SectionKind = 24
)

// bitmapRowSize is the size in bytes of a row of a bitmap file: 8 offset, 4 size, 4 index of the
// bitmap that it is XORed with.
const bitmapRowSize = 8 + 4 + 4

const (
	// MagicSize is the length of the magic that ends, or begins, every file.
	MagicSize = 12
	// FormatVersion is the format version in every file.
	FormatVersion = 1
)

const (
	// BlockSizeMax is the size in bytes up to which items share a block and its checksum.
	BlockSizeMax = 64 << 10
	footerHead   = 16 + 8 + 8 + 1
	sectionHead  = 1 + 2 + 8 + 8
	tailSize     = 4 + 4 + 4 + MagicSize
	// footerSizeMax bounds the memory that a damaged tail can ask for. A footer needs 4 bytes per 64
	// KiB, and a segment has at most 256 GiB.
	footerSizeMax = 16 << 20
	// openReadSize is the number of bytes read from the end of a file. One such read gets tail and
	// footer of all but the largest files.
	openReadSize = 4 << 10
	// indexSizeAhead is the size in bytes up to which all sections of a file are copied from afar when
	// it is opened.
	indexSizeAhead = 8 << 20
)

// The magics of sectioned files.
const (
	segmentMagic = "packhorseSEG"
	graphMagic   = "packhorseGRA"
	bitmapMagic  = "packhorseBIT"
	FilterMagic  = "packhorseFIL" // of changed-path filters
	HistoryMagic = "packhorseHIS"
	TrigramMagic = "packhorseTRI"
	// BorrowedMagic begins a visibility set, which is no sectioned file.
	BorrowedMagic = "packhorseBOR"
	BorrowedHead  = MagicSize + 4 + 16 + 1 // size in bytes of its head: magic, version, layer, form
)

// castagnoli is the polynomial of all checksums except those of entries, which are the CRC-32 of
// pack indexes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// section is the place of a section and the checksums of its blocks.
type section struct {
	width  int
	offset int64
	size   int64
	sums   []uint32
}

// perBlock returns the number of items in a block: at least 1, also for a missing section.
func (s *section) perBlock() int { return BlockSizeMax / max(s.width, 1) }

func (s *section) count() int { return int(s.size / int64(max(s.width, 1))) }

// File reads an open sectioned file. Its blocks go through the cache of its [Env].
type File struct {
	env      *Env
	Layer    LayerID // its name in the cache and in errors
	magic    string
	Handle   file.File // the open file
	DataSize int64     // of the data region, in bytes
	Count    int       // of the IDs
	sections [sectionKindEnd]section
	fanout   [256]uint32
}

// OpenFile reads the tail, footer and fan-out of a file. The File takes over f. Errors:
// [ErrCorrupt] and those of f.
func OpenFile(ctx context.Context, env *Env, layer LayerID, f file.File, magic string) (*File, error) {
	g := &File{env: env, Layer: layer, magic: magic, Handle: f}
	if err := g.readFooter(ctx); err != nil {
		return nil, g.Damaged(err)
	}
	if size := f.Size() - g.DataSize; size <= indexSizeAhead {
		ahead := file.NewAhead(f, f.Size())
		ahead.At(g.DataSize)
	}
	if err := g.readFanout(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// Damaged turns a failed check into a counted [CorruptError]; it returns errors of the file system
// with context.
func (g *File) Damaged(err error) error {
	return g.env.Damage.Wrap(g.FileName(), g.Layer, object.ZeroID, err)
}

// FileName returns the name of the file in the file store.
func (g *File) FileName() string {
	for _, kind := range sectioned {
		if kind.magic() == g.magic {
			return kind.FileName(g.Layer)
		}
	}
	return ""
}

// readFooter reads tail and footer, and checks them.
func (g *File) readFooter(ctx context.Context) error {
	read, err := g.readFooterOnce(ctx)
	if err != nil && isDamage(err) && file.Forget(g.Handle, g.Handle.Size()-read, read) {
		g.sections = [sectionKindEnd]section{}
		_, err = g.readFooterOnce(ctx)
	}
	return err
}

// readFooterOnce also returns how many bytes at the end of the file it has read.
func (g *File) readFooterOnce(ctx context.Context) (read int64, err error) {
	size := g.Handle.Size()
	if size < tailSize+footerHead {
		return 0, fmt.Errorf("%w: %d bytes", ErrFormat, size)
	}
	end := make([]byte, min(size, openReadSize))
	read = int64(len(end))
	if err := ReadFull(ctx, g.Handle, end, size-read); err != nil {
		return read, err
	}
	tail := end[len(end)-tailSize:]
	if string(tail[12:]) != g.magic {
		return read, fmt.Errorf("%w: no magic at the end", ErrFormat)
	}
	if version := binary.BigEndian.Uint32(tail[8:]); version != FormatVersion {
		return read, fmt.Errorf("%w: format version %d", ErrFormat, version)
	}
	footerSize := int64(binary.BigEndian.Uint32(tail))
	if footerSize < footerHead || footerSize > min(footerSizeMax, size-tailSize) {
		return read, fmt.Errorf("%w: footer of %d bytes", ErrFormat, footerSize)
	}
	var footer []byte
	if rest := end[:len(end)-tailSize]; footerSize <= int64(len(rest)) {
		footer = rest[int64(len(rest))-footerSize:]
	} else {
		footer = make([]byte, footerSize)
		read = footerSize + tailSize
		if err := ReadFull(ctx, g.Handle, footer, size-read); err != nil {
			return read, err
		}
	}
	if crc32.Checksum(footer, castagnoli) != binary.BigEndian.Uint32(tail[4:]) {
		return read, fmt.Errorf("%w: footer fails its checksum", ErrFormat)
	}
	return read, g.decodeFooter(footer, size-tailSize-footerSize)
}

// decodeFooter fills g from a footer that begins at offset end and has passed its checksum.
func (g *File) decodeFooter(footer []byte, end int64) error {
	d := footerReader{data: footer}
	if layer := LayerID(d.take(len(LayerID{}))); layer != g.Layer {
		return fmt.Errorf("%w: this is the file of layer %s", ErrFormat, layer)
	}
	dataSize, count := d.uint64(), d.uint64()
	if dataSize > uint64(end) || count >= uint64(NoOrdinal) {
		return fmt.Errorf("%w: impossible sizes", ErrFormat)
	}
	g.DataSize, g.Count = int64(dataSize), int(count)
	for range d.take(1)[0] {
		kind := SectionKind(d.take(1)[0])
		width, offset, size := int(d.uint16()), d.uint64(), d.uint64()
		if d.failed || kind >= sectionKindEnd || width == 0 || offset < dataSize || offset > uint64(end) ||
			size > uint64(end)-offset ||
			size%uint64(width) != 0 {
			return fmt.Errorf("%w: impossible section", ErrFormat)
		}
		s := &g.sections[kind]
		*s = section{width: width, offset: int64(offset), size: int64(size)}
		s.sums = make([]uint32, ceilDiv(s.count(), s.perBlock()))
		for i := range s.sums {
			s.sums[i] = d.uint32()
		}
	}
	if d.failed || len(d.data) > 0 {
		return fmt.Errorf("%w: footer is cut off", ErrFormat)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (g *File) readFanout(ctx context.Context) error {
	if err := g.checkWidths(); err != nil {
		return g.Damaged(err)
	}
	block, err := g.block(ctx, sectionFanout, 0)
	if err != nil {
		return err
	}
	previous := uint32(0)
	for i := range g.fanout {
		g.fanout[i] = binary.BigEndian.Uint32(block[4*i:])
		if g.fanout[i] < previous {
			return g.Damaged(fmt.Errorf("%w: fan-out goes down", ErrFormat))
		}
		previous = g.fanout[i]
	}
	if int(previous) != g.Count {
		return g.Damaged(fmt.Errorf("%w: fan-out counts %d of %d", ErrFormat, previous, g.Count))
	}
	return nil
}

// sectionWidths are the sizes of items.
var sectionWidths = [sectionKindEnd]int{
	sectionFanout:       4,
	SectionIDs:          object.IDSize,
	sectionRecords:      recordSize,
	sectionOrder:        4,
	sectionStreams:      streamItemSize,
	sectionStreamBlocks: streamBlockSize,
	sectionRows:         graphItemSize,
	sectionParents:      object.IDSize,
	sectionTips:         object.IDSize,
	SectionThinBases:    object.IDSize,
	SectionExternal:     object.IDSize,
	sectionProvisional:  1,
	SectionBitmapLayers: len(LayerID{}) + 4,
	SectionBitmapTypes:  bitmapRowSize,
	SectionBitmapRows:   bitmapRowSize,
	SectionBitmapBytes:  1,
	SectionFilterRows:   SizedRowSize,
	SectionFilterBytes:  1,
	SectionHistories:    historyItemSize,
	SectionHistoryRows:  HistoryRowSize,
	SectionHistoryLines: 1,
	SectionTrigramRows:  SizedRowSize,
	SectionTrigramBytes: 1,
}

// checkWidths verifies that every section has the item width of this format version, and that the
// sections with an item per ID are complete.
func (g *File) checkWidths() error {
	perID := []SectionKind{SectionIDs}
	switch g.magic {
	case segmentMagic:
		perID = append(perID, sectionRecords, sectionOrder)
	case bitmapMagic:
		perID = append(perID, SectionBitmapRows)
	case FilterMagic:
		perID = append(perID, SectionFilterRows)
	case TrigramMagic:
		perID = append(perID, SectionTrigramRows)
	case HistoryMagic:
		perID = append(perID, SectionHistories)
	default:
		perID = append(perID, sectionRows)
	}
	for kind := range g.sections {
		if s := &g.sections[kind]; s.width != 0 && s.width != sectionWidths[kind] {
			return fmt.Errorf("%w: section %d has items of %d bytes", ErrFormat, kind, s.width)
		}
	}
	for _, kind := range perID {
		if g.sections[kind].count() != g.Count {
			return fmt.Errorf("%w: section %d is not complete", ErrFormat, kind)
		}
	}
	if g.sections[sectionFanout].count() != len(g.fanout) {
		return fmt.Errorf("%w: no fan-out", ErrFormat)
	}
	return nil
}

// ItemCount returns the number of items in a section.
func (g *File) ItemCount(kind SectionKind) int { return g.sections[kind].count() }

// VerifyBlocks reads every block of the file, past the cache. It calls wait with an upper bound of
// the size in bytes before each block, and found with the damage of each block that fails its
// checksum. An error of either ends the work.
func (g *File) VerifyBlocks(
	ctx context.Context, wait func(ctx context.Context, size int64) error, found func(error) error,
) error {
	for kind := range g.sections {
		s := &g.sections[kind]
		ahead := file.NewAhead(g.Handle, s.offset+s.size)
		for n := range s.sums {
			ahead.At(s.offset + int64(n)*int64(s.perBlock()*s.width))
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := wait(ctx, BlockSizeMax); err != nil {
				return err
			}
			if _, err := g.readBlock(ctx, SectionKind(kind), n); err != nil {
				if err := found(g.Damaged(err)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// block returns a verified block of a section, shared and read-only.
func (g *File) block(ctx context.Context, kind SectionKind, n int) ([]byte, error) {
	key := CacheKey{Layer: g.Layer, section: kind, Block: uint32(n)}
	if cached, ok := g.env.Cache.Get(key); ok {
		return cached.Data, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	block, err := g.readBlock(ctx, kind, n)
	if err != nil {
		return nil, g.Damaged(err)
	}
	g.env.Cache.Set(key, CacheEntry{Data: block})
	return block, nil
}

// readBlock reads a block from the file, past the cache.
func (g *File) readBlock(ctx context.Context, kind SectionKind, n int) ([]byte, error) {
	s := &g.sections[kind]
	if n >= len(s.sums) {
		return nil, fmt.Errorf("%w: no block %d in section %d", ErrFormat, n, kind)
	}
	blockSize := int64(s.perBlock() * s.width)
	start := int64(n) * blockSize
	block := make([]byte, min(blockSize, s.size-start))
	err := ReadChecked(ctx, g.Handle, block, s.offset+start, func(block []byte) error {
		if crc32.Checksum(block, castagnoli) != s.sums[n] {
			return fmt.Errorf("%w: block %d of section %d fails its checksum", ErrFormat, n, kind)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return block, nil
}

// Item returns an item of a section, shared and read-only. Errors: [ErrCorrupt].
func (g *File) Item(ctx context.Context, kind SectionKind, index int) ([]byte, error) {
	s := &g.sections[kind]
	if index < 0 || index >= s.count() {
		return nil, g.Damaged(fmt.Errorf("%w: no item %d in section %d", ErrFormat, index, kind))
	}
	n := index / s.perBlock()
	block, err := g.block(ctx, kind, n)
	if err != nil {
		return nil, err
	}
	at := (index - n*s.perBlock()) * s.width
	return block[at : at+s.width : at+s.width], nil
}

// Items returns count items of a section, from the index first on. They may be shared: the caller
// must not modify them. Errors: [ErrCorrupt].
func (g *File) Items(ctx context.Context, kind SectionKind, first, count int) ([]byte, error) {
	s := &g.sections[kind]
	if total := s.count(); first < 0 || count < 0 || first > total || count > total-first {
		return nil, g.Damaged(fmt.Errorf("%w: no %d items at %d in section %d", ErrFormat, count, first, kind))
	}
	var joined []byte
	for count > 0 {
		n := first / s.perBlock()
		block, err := g.block(ctx, kind, n)
		if err != nil {
			return nil, err
		}
		inBlock := min(count, (n+1)*s.perBlock()-first)
		at := (first - n*s.perBlock()) * s.width
		piece := block[at : at+inBlock*s.width]
		first, count = first+inBlock, count-inBlock
		if joined == nil && count == 0 {
			return piece, nil
		}
		joined = append(joined, piece...)
	}
	return joined, nil
}

// Bytes returns size bytes of a section of single bytes, from offset on. The caller must not modify
// them. Errors: [ErrCorrupt].
func (g *File) Bytes(ctx context.Context, kind SectionKind, offset, size int64) ([]byte, error) {
	if total := g.sections[kind].size; offset < 0 || size < 0 || offset > total || size > total-offset {
		return nil, g.Damaged(fmt.Errorf("%w: no bytes at %d in section %d", ErrFormat, offset, kind))
	}
	var joined []byte
	for size > 0 {
		block, err := g.block(ctx, kind, int(offset/BlockSizeMax))
		if err != nil {
			return nil, err
		}
		piece := block[offset%BlockSizeMax:]
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

// footerReader parses a footer. After a failure it returns zeros, so one check at the end suffices.
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
