package odb

import (
	"bytes"
	"context"
	"crypto/sha1" // the trailer of a packfile is a SHA-1
	"errors"
	"fmt"
	"hash"

	"packhorse/odb/file"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// packChecker reads a data region from its first byte to its last and checks it against the index.
type packChecker struct {
	fsck    *fsck
	segment segment.Segment
	sum     hash.Hash
	offset  int64
	damaged bool // an entry is, and so is the checksum over all
}

func newPackChecker(f *fsck, g segment.Segment) *packChecker {
	return &packChecker{fsck: f, segment: g, sum: sha1.New()}
}

func (c *packChecker) check(ctx context.Context) error {
	g := c.segment
	head := make([]byte, pack.HeaderSize)
	err := segment.ReadChecked(ctx, g.Handle, head, 0, func(head []byte) error {
		header, err := pack.ParseHeader(head)
		if err != nil {
			return fmt.Errorf("%w: %w", segment.ErrFormat, err)
		}
		if int(header.Count) != g.Count {
			return fmt.Errorf("%w: the pack counts %d objects, the index %d", ErrDisagree, header.Count, g.Count)
		}
		return nil
	})
	if errors.Is(err, ErrDisagree) {
		c.fsck.problem(g.Layer, object.ZeroID, err)
	} else if err != nil {
		return err
	}
	c.sum.Write(head)
	c.offset = pack.HeaderSize
	ahead := file.NewAhead(g.Handle, g.DataSize)
	seen := make([]bool, g.Count)
	for ordinal, err := range g.InPackOrder(ctx, 0, uint32(g.Count)) {
		if err != nil {
			return err
		}
		if int(ordinal) >= g.Count || seen[ordinal] {
			return fmt.Errorf("%w: the pack order names %d twice", ErrDisagree, ordinal)
		}
		seen[ordinal] = true
		ahead.At(c.offset)
		if err := c.entry(ctx, ordinal); err != nil {
			return err
		}
	}
	trailer := make([]byte, pack.TrailerSize)
	failed := fmt.Errorf("%w: the pack fails its checksum", segment.ErrFormat)
	err = segment.ReadChecked(ctx, g.Handle, trailer, g.DataSize-pack.TrailerSize, func(trailer []byte) error {
		if c.offset != g.DataSize-pack.TrailerSize || !c.damaged && !bytes.Equal(c.sum.Sum(nil), trailer) {
			return failed
		}
		return nil
	})
	if errors.Is(err, failed) {
		c.fsck.problem(g.Layer, object.ZeroID, err)
		return nil
	}
	return err
}

// entry reads one entry.
func (c *packChecker) entry(ctx context.Context, ordinal uint32) error {
	g := c.segment
	r, err := g.Record(ctx, ordinal)
	if err != nil {
		return err
	}
	if r.Offset != c.offset {
		return fmt.Errorf("%w: an entry at %d where %d was expected", ErrDisagree, r.Offset, c.offset)
	}
	c.offset += r.PackedSize
	if err := c.fsck.wait(ctx, r.PackedSize); err != nil {
		return err
	}
	var head []byte
	sum, err := g.Region().Stream(ctx, r, object.ZeroID, func(piece []byte) error {
		if missing := pack.EntryHeaderSizeMax - len(head); missing > 0 {
			head = append(head, piece[:min(missing, len(piece))]...)
		}
		_, err := c.sum.Write(piece)
		return err
	})
	if err != nil {
		return err
	}
	id, err := g.ID(ctx, ordinal)
	if err != nil {
		return err
	}
	if err := g.Region().CheckSum(ctx, r, id, sum); err != nil {
		c.damaged = true // the sum has been fed with other bytes
		if errors.Is(err, segment.ErrCopyDamaged) {
			return nil
		}
		return c.fsck.noted(g.Layer, id, err)
	}
	return c.fsck.noted(g.Layer, id, c.base(ctx, head, r))
}

// base compares the base in an entry's header with the base in the index.
func (c *packChecker) base(ctx context.Context, head []byte, r segment.Record) error {
	g := c.segment
	header, _, err := pack.ParseEntryHeader(head)
	if err != nil {
		return fmt.Errorf("%w: %w", segment.ErrFormat, err)
	}
	if !header.Kind.IsDelta() {
		if r.Base != segment.NoOrdinal || header.Kind.Type() != r.Type || header.Size != r.Size {
			return fmt.Errorf("%w: the entry is a %s of %d bytes", ErrDisagree, header.Kind, header.Size)
		}
		return nil
	}
	if r.Base == segment.NoOrdinal {
		return fmt.Errorf("%w: the entry is a delta, the index knows no base", ErrDisagree)
	}
	base, err := g.Record(ctx, r.Base)
	if err != nil {
		return err
	}
	baseID, err := g.ID(ctx, r.Base)
	if err != nil {
		return err
	}
	if (header.Kind == pack.KindOFSDelta && r.Offset-header.BaseDistance != base.Offset) ||
		(header.Kind == pack.KindRefDelta && header.BaseID != baseID) {
		return fmt.Errorf("%w: the index names %s as its base", ErrDisagree, baseID)
	}
	return nil
}
