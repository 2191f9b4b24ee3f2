package segment

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"

	"packhorse/pack/object"
)

// SectionWriter appends sections and the footer to a file. It is for one goroutine. An error stays,
// and Finish returns it.
type SectionWriter struct {
	w        *bufio.Writer
	offset   int64 // in the file
	layer    LayerID
	dataSize int64
	sections []writtenSection
	block    []byte // of the current section
}

type writtenSection struct {
	kind SectionKind
	section
}

// NewSectionWriter returns a writer of the sections behind a data region of dataSize bytes.
func NewSectionWriter(w io.Writer, layer LayerID, dataSize int64) *SectionWriter {
	return &SectionWriter{w: bufio.NewWriterSize(w, BlockSizeMax), offset: dataSize, layer: layer, dataSize: dataSize}
}

// Begin ends the current section and begins another one.
func (s *SectionWriter) Begin(kind SectionKind) {
	s.flush()
	s.sections = append(s.sections,
		writtenSection{kind: kind, section: section{width: sectionWidths[kind], offset: s.offset}})
}

// Add appends an item to the current section.
func (s *SectionWriter) Add(item []byte) {
	current := &s.sections[len(s.sections)-1]
	s.block = append(s.block, item...)
	if len(s.block) == current.perBlock()*current.width {
		s.flush()
	}
}

// AddBytes appends to a section of single bytes.
func (s *SectionWriter) AddBytes(p []byte) {
	for len(p) > 0 {
		piece := p[:min(len(p), BlockSizeMax-len(s.block))]
		s.block = append(s.block, piece...)
		p = p[len(piece):]
		if len(s.block) == BlockSizeMax {
			s.flush()
		}
	}
}

// flush writes the current block. An error of a bufio.Writer stays, and the flush of the footer
// returns it.
func (s *SectionWriter) flush() {
	if len(s.block) == 0 {
		return
	}
	current := &s.sections[len(s.sections)-1]
	current.sums = append(current.sums, crc32.Checksum(s.block, castagnoli))
	current.size += int64(len(s.block))
	s.offset += int64(len(s.block))
	_, _ = s.w.Write(s.block)
	s.block = s.block[:0]
}

// addIDs writes the sections of sorted IDs.
func (s *SectionWriter) addIDs(ids []object.ID) {
	var fanout [256]uint32
	s.Begin(SectionIDs)
	for i := range ids {
		s.Add(ids[i][:])
		fanout[ids[i][0]]++
	}
	for i := 1; i < len(fanout); i++ {
		fanout[i] += fanout[i-1]
	}
	s.AddFanout(&fanout)
}

// AddFanout writes the section that counts IDs by their first byte.
func (s *SectionWriter) AddFanout(fanout *[256]uint32) {
	s.Begin(sectionFanout)
	for _, count := range fanout {
		s.Add(binary.BigEndian.AppendUint32(nil, count))
	}
}

// Finish writes the rest of the sections. It returns the footer with its tail, which the caller
// writes at the end of the file.
func (s *SectionWriter) Finish(count int, magic string) ([]byte, error) {
	s.flush()
	footer := append([]byte(nil), s.layer[:]...)
	footer = binary.BigEndian.AppendUint64(footer, uint64(s.dataSize))
	footer = binary.BigEndian.AppendUint64(footer, uint64(count))
	footer = append(footer, byte(len(s.sections)))
	for i := range s.sections {
		current := &s.sections[i]
		footer = append(footer, byte(current.kind))
		footer = binary.BigEndian.AppendUint16(footer, uint16(current.width))
		footer = binary.BigEndian.AppendUint64(footer, uint64(current.offset))
		footer = binary.BigEndian.AppendUint64(footer, uint64(current.size))
		for _, sum := range current.sums {
			footer = binary.BigEndian.AppendUint32(footer, sum)
		}
	}
	size := len(footer)
	sum := crc32.Checksum(footer, castagnoli)
	footer = binary.BigEndian.AppendUint32(footer, uint32(size))
	footer = binary.BigEndian.AppendUint32(footer, sum)
	footer = binary.BigEndian.AppendUint32(footer, FormatVersion)
	return append(footer, magic...), s.w.Flush()
}
