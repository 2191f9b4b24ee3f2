package segment

import (
	"bytes"
	"context"
	"crypto/sha1" // the trailer of a packfile is a SHA-1
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"slices"

	"packhorse/odb/file"
	"packhorse/pack"
	"packhorse/pack/object"
)

// FileCheck verifies the bytes of a pool's file, as they pass, against the checksums that the file
// contains: those of its pack, its blocks and its footer. It covers every byte. It is for one
// goroutine.
type FileCheck struct {
	layer LayerID
	parts []checkedPart // in the order of the file
	at    int64
	sum   hash.Hash // of the part that at lies in; nil at its begin
}

// checkedPart is a part of a file that one checksum covers.
type checkedPart struct {
	what string
	end  int64
	pack bool   // the checksum is the SHA-1 of a pack, else a CRC-32C
	want []byte // the checksum
}

// CheckFile reads the layout and the checksums of the file of that name, and returns a check for
// its content. Errors: [ErrCorrupt], also when the name is not that of a pool's file.
func CheckFile(ctx context.Context, name string, f file.File) (*FileCheck, error) {
	layer, ok := LayerOfFile(name)
	if !ok {
		return nil, &CorruptError{Why: fmt.Sprintf("%q is not the name of a pool's file", name)}
	}
	c := &FileCheck{layer: layer}
	var err error
	if name == KindBorrowed.FileName(layer) {
		err = c.planBorrowed(ctx, f)
	} else {
		err = c.planSections(ctx, name, f)
	}
	return c, c.damaged(err)
}

// damaged turns a failed check into a [CorruptError].
func (c *FileCheck) damaged(err error) error {
	if errors.Is(err, ErrFormat) {
		return &CorruptError{Layer: c.layer, Why: err.Error()}
	}
	return err
}

// planBorrowed covers a file that ends in a checksum of all before.
func (c *FileCheck) planBorrowed(ctx context.Context, f file.File) error {
	head, sum := make([]byte, BorrowedHead), make([]byte, crc32.Size)
	body := f.Size() - crc32.Size
	if body < BorrowedHead {
		return fmt.Errorf("%w: %d bytes", ErrFormat, f.Size())
	}
	if err := errors.Join(ReadFull(ctx, f, head, 0), ReadFull(ctx, f, sum, body)); err != nil {
		return err
	}
	if string(head[:MagicSize]) != BorrowedMagic || !bytes.Equal(head[MagicSize+4:][:len(c.layer)], c.layer[:]) {
		return fmt.Errorf("%w: it is another file", ErrFormat)
	}
	c.add(checkedPart{what: "the file", end: body, want: sum})
	return c.addRead(ctx, f, "the checksum", f.Size())
}

// planSections covers a sectioned file.
func (c *FileCheck) planSections(ctx context.Context, name string, f file.File) error {
	g := &File{Layer: c.layer, Handle: f}
	for _, kind := range sectioned {
		if name == kind.FileName(c.layer) {
			g.magic = kind.magic()
		}
	}
	if err := g.readFooter(ctx); err != nil {
		return err
	}
	if err := g.checkWidths(); err != nil {
		return err
	}
	if g.DataSize > 0 {
		if g.DataSize < pack.HeaderSize+pack.TrailerSize {
			return fmt.Errorf("%w: a pack of %d bytes", ErrFormat, g.DataSize)
		}
		trailer := make([]byte, pack.TrailerSize)
		if err := ReadFull(ctx, f, trailer, g.DataSize-pack.TrailerSize); err != nil {
			return err
		}
		c.add(checkedPart{what: "the pack", end: g.DataSize - pack.TrailerSize, pack: true, want: trailer})
		if err := c.addRead(ctx, f, "the pack's checksum", g.DataSize); err != nil {
			return err
		}
	}
	sections := slices.SortedFunc(slices.Values(g.sections[:]), func(a, b section) int { return int(a.offset - b.offset) })
	for i := range sections {
		s := &sections[i]
		if s.size == 0 {
			continue
		}
		if s.offset != c.planned() {
			return fmt.Errorf("%w: no checksum covers what is at %d", ErrFormat, c.planned())
		}
		for n, sum := range s.sums {
			size := min(int64(n+1)*int64(s.perBlock()*s.width), s.size)
			want := binary.BigEndian.AppendUint32(nil, sum)
			c.add(checkedPart{what: "a block", end: s.offset + size, want: want})
		}
	}
	// The footer has passed its checksum, so a second reading must return the same bytes.
	tail := make([]byte, 4)
	if err := ReadFull(ctx, f, tail, f.Size()-tailSize); err != nil {
		return err
	}
	if c.planned() != f.Size()-tailSize-int64(binary.BigEndian.Uint32(tail)) {
		return fmt.Errorf("%w: no checksum covers what is at %d", ErrFormat, c.planned())
	}
	return c.addRead(ctx, f, "the footer", f.Size())
}

// planned returns the offset up to which the file is covered.
func (c *FileCheck) planned() int64 {
	if len(c.parts) == 0 {
		return 0
	}
	return c.parts[len(c.parts)-1].end
}

func (c *FileCheck) add(p checkedPart) { c.parts = append(c.parts, p) }

// addRead covers the bytes up to end by the checksum of their present content.
func (c *FileCheck) addRead(ctx context.Context, f file.File, what string, end int64) error {
	data := make([]byte, end-c.planned())
	if err := ReadFull(ctx, f, data, c.planned()); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	_, _ = sum.Write(data) // a hash takes everything
	c.add(checkedPart{what: what, end: end, want: sum.Sum(nil)})
	return nil
}

// Write takes the next bytes of the file. Errors: [ErrCorrupt] at the end of a part that fails its
// checksum.
func (c *FileCheck) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if len(c.parts) == 0 {
			return done, c.fail("it is longer than it says")
		}
		part := &c.parts[0]
		if c.sum == nil {
			c.sum = part.newSum()
		}
		piece := p[done:][:min(int64(len(p)-done), part.end-c.at)]
		_, _ = c.sum.Write(piece)
		done += len(piece)
		c.at += int64(len(piece))
		if c.at < part.end {
			break
		}
		if !bytes.Equal(c.sum.Sum(nil), part.want) {
			return done, c.fail(part.what + " fails its checksum")
		}
		c.sum, c.parts = nil, c.parts[1:]
	}
	return done, nil
}

func (p *checkedPart) newSum() hash.Hash {
	if p.pack {
		return sha1.New()
	}
	return crc32.New(castagnoli)
}

// End returns nil if the whole file has passed and every checksum holds. Errors: [ErrCorrupt].
func (c *FileCheck) End() error {
	if len(c.parts) > 0 {
		return c.fail(fmt.Sprintf("it ends at %d", c.at))
	}
	return nil
}

func (c *FileCheck) fail(why string) error {
	return &CorruptError{Layer: c.layer, Object: object.ZeroID, Why: why}
}
