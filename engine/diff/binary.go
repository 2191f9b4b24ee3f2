package diff

import (
	"bufio"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"packhorse/pack"
	"packhorse/pack/delta"
)

// writeBinary writes the header and a GIT binary patch: forward and reverse.
func (p *part) writeBinary(ctx context.Context, w io.Writer, header []byte) error {
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, "%sGIT binary patch\n", header)
	for _, direction := range [][2]*content{{&p.old, &p.new}, {&p.new, &p.old}} {
		if err := writeBinaryHunk(ctx, out, direction[0], direction[1]); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// writeBinaryHunk writes a content, deflated, or the delta that makes it of another one if both are
// in memory and that is shorter.
func writeBinaryHunk(ctx context.Context, out *bufio.Writer, from, to *content) error {
	if to.size > 0 && to.data == nil {
		return writeLiteralStream(ctx, out, to)
	}
	packed := pack.Deflate(nil, to.data, pack.LevelDefault)
	if len(from.data) > 0 && len(to.data) > 0 {
		if program, ok := delta.NewIndex(from.data).Create(nil, to.data, len(packed)); ok {
			if packedDelta := pack.Deflate(nil, program, pack.LevelDefault); len(packedDelta) < len(packed) {
				fmt.Fprintf(out, "delta %d\n", len(program))
				return writeBase85(out, packedDelta)
			}
		}
	}
	fmt.Fprintf(out, "literal %d\n", len(to.data))
	return writeBase85(out, packed)
}

func writeBase85(out *bufio.Writer, data []byte) error {
	spelled := base85Writer{out: out}
	if _, err := spelled.Write(data); err != nil {
		return err
	}
	return spelled.flush()
}

// writeLiteralStream writes a content that is too large to be held only for this.
func writeLiteralStream(ctx context.Context, out *bufio.Writer, c *content) error {
	fmt.Fprintf(out, "literal %d\n", c.size)
	blob, err := c.objects.Open(ctx, c.id)
	if err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	defer blob.Close()
	spelled := base85Writer{out: out}
	deflated := zlib.NewWriter(&spelled)
	if _, err := blob.WriteTo(deflated); err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	if err := deflated.Close(); err != nil {
		return err
	}
	return spelled.flush()
}

// base85Writer spells bytes as git does, in lines of 52 bytes:
//
//	length, A-Z for 1 to 26 and a-z for 27 to 52 | five characters for each four bytes, zeros filled up | line feed
type base85Writer struct {
	out  *bufio.Writer
	line [base85LineSize]byte
	used int
}

const (
	base85LineSize = 52
	base85Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)

func (b *base85Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		taken := copy(b.line[b.used:], p)
		b.used += taken
		p = p[taken:]
		if b.used == base85LineSize {
			if err := b.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// flush ends the line that has begun.
func (b *base85Writer) flush() error {
	if b.used == 0 {
		return nil
	}
	var text [1 + base85LineSize/4*5 + 1]byte
	if text[0] = byte('A' + b.used - 1); b.used > 26 {
		text[0] = byte('a' + b.used - 27)
	}
	clear(b.line[b.used:])
	size := 1
	for i := 0; i < b.used; i += 4 {
		group := binary.BigEndian.Uint32(b.line[i:])
		for k := 4; k >= 0; k-- {
			text[size+k] = base85Alphabet[group%85]
			group /= 85
		}
		size += 5
	}
	text[size] = '\n'
	b.used = 0
	_, err := b.out.Write(text[:size+1])
	return err
}
