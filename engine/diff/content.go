package diff

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"packhorse/engine/diff/lines"
	"packhorse/odb"
	"packhorse/pack/object"
)

// content is one side of a file: nothing, a blob, or the line that git shows for a submodule.
type content struct {
	objects Objects
	id      object.ID
	size    int64
	binary  bool
	data    []byte // nil before it is read
	text    lines.Text
}

// storedWholeMax is the size in bytes up to which the object database reads an object at once:
// [odb.View.Read].
const storedWholeMax = 32 << 20

// openContent opens a content. Up to 8 MiB it is read at once; a larger one is only probed whether
// it is binary.
func openContent(ctx context.Context, objects Objects, e *Entry, sizeMax int64) (content, error) {
	c := content{objects: objects, id: e.ID}
	switch {
	case !e.Exists():
		return c, nil
	case !e.hasContent():
		c.data = fmt.Appendf(nil, "Subproject commit %s\n", e.ID)
		c.size = int64(len(c.data))
		return c, nil
	}
	info, err := objects.Stat(ctx, e.ID)
	if err != nil {
		return c, fmt.Errorf("read blob %s: %w", e.ID, err)
	}
	c.size = info.Size
	if c.size <= wholeMax {
		err = c.readWhole(ctx)
		c.binary = IsBinary(c.data) || c.size > sizeMax
		return c, err
	}
	if c.binary = c.size > sizeMax; c.binary {
		return c, nil
	}
	head := make([]byte, binaryProbe)
	if err := c.section(ctx, 0, head); err != nil {
		return c, err
	}
	c.binary = IsBinary(head)
	return c, nil
}

// readWhole makes sure that the content is in memory.
func (c *content) readWhole(ctx context.Context) error {
	if c.data != nil || c.size == 0 {
		return nil
	}
	if c.size <= storedWholeMax {
		t, data, err := c.objects.Read(ctx, c.id)
		if err == nil && t != object.TypeBlob {
			err = &odb.TypeError{Object: c.id, Type: t, Want: object.TypeBlob}
		}
		if err != nil {
			return fmt.Errorf("read blob %s: %w", c.id, err)
		}
		c.data = data
		return nil
	}
	blob, err := c.objects.Open(ctx, c.id)
	if err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	defer blob.Close()
	data := bytes.NewBuffer(make([]byte, 0, blob.Size+bytes.MinRead))
	if _, err := blob.WriteTo(data); err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	c.data = data.Bytes()
	return nil
}

// section reads the part of a stored content that begins at an offset.
func (c *content) section(ctx context.Context, offset int64, part []byte) error {
	blob, err := c.objects.Open(ctx, c.id)
	if err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	defer blob.Close()
	section, err := blob.Section(offset, int64(len(part)))
	if err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	defer section.Close() //nolint:errcheck // it was only read
	if _, err := io.ReadFull(section, part); err != nil {
		return fmt.Errorf("read blob %s: %w", c.id, err)
	}
	return nil
}

// endsInNewline reports whether the last byte is a line feed.
func (c *content) endsInNewline(ctx context.Context) (bool, error) {
	last := [1]byte{}
	switch {
	case c.size == 0:
	case c.data != nil:
		last[0] = c.data[len(c.data)-1]
	default:
		if err := c.section(ctx, c.size-1, last[:]); err != nil {
			return false, err
		}
	}
	return last[0] == '\n', nil
}

// EndsInNewline reports whether the last byte of an entry's content is a line feed, if possible
// without reading the bytes before.
func EndsInNewline(ctx context.Context, objects Objects, e *Entry) (bool, error) {
	c, err := openContent(ctx, objects, e, 0)
	if err != nil {
		return false, err
	}
	return c.endsInNewline(ctx)
}
