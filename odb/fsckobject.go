package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// objectChecker checks single objects. For one goroutine.
type objectChecker struct {
	fsck    *fsck
	view    *View
	summary *summaryChecker // nil: no summary to check
	links   map[object.ID]knownLink
}

// knownLink is an object that another one names and that exists.
type knownLink struct {
	kind  object.Type
	noted bool // the summary checker has noted it
}

// linksMax bounds the links that a checker remembers.
const linksMax = 1 << 16

// check reads an object from the layer that at names, and checks its ID, its format, its links and
// its graph row.
func (c *objectChecker) check(ctx context.Context, at Location) error {
	s, err := at.layer.step(ctx, at)
	if err != nil {
		return err
	}
	if s.Size > segment.WholeMax {
		return c.checkStream(ctx, at, s.Info)
	}
	t, data, err := c.view.ReadAt(ctx, at)
	if err != nil {
		return err
	}
	if t != s.Type || int64(len(data)) != s.Size {
		return fmt.Errorf("%w: a %s of %d bytes, not a %s of %d", ErrDisagree, t, len(data), s.Type, s.Size)
	}
	id, err := object.Hash(t, data)
	if err != nil {
		return err
	}
	if id != at.id {
		return fmt.Errorf("%w: its content is that of %s", ErrDisagree, id)
	}
	if err := c.checkContent(ctx, at, t, data); err != nil {
		return err
	}
	if segment.IsRefusedDelta(s.Delta, s.Size) {
		if entry, err := at.layer.entry(ctx, at); err != nil || entry.ContentSize < delta.SizeMin {
			c.fsck.warn(at.layer.layerID(), at.id, errRefusedDelta)
		}
	}
	counts := c.summary != nil && c.summary.counts(id)
	err = object.Links(t, data, func(link object.ID, want object.Type) error {
		return c.checkLink(ctx, link, want, counts)
	})
	if err != nil {
		return err
	}
	if t == object.TypeCommit {
		return c.checkGraphRow(ctx, at, data)
	}
	return nil
}

// checkStream checks the ID of a large object.
func (c *objectChecker) checkStream(ctx context.Context, at Location, info Info) error {
	if info.Type != object.TypeBlob {
		return fmt.Errorf("%s of %d bytes: %w", info.Type, info.Size, ErrTooLarge)
	}
	o, err := c.view.openAt(ctx, at)
	if err != nil {
		return err
	}
	hasher := object.NewHasher(info.Type, info.Size)
	_, err = o.WriteTo(hasher)
	if err = errors.Join(err, o.Close()); err != nil {
		return err
	}
	id, err := hasher.Sum()
	if err == nil && id != at.id {
		err = fmt.Errorf("%w: its content is that of %s", ErrDisagree, id)
	}
	return err
}

// checkLink checks a link of an object, and passes it to the summary checker if it counts.
func (c *objectChecker) checkLink(ctx context.Context, link object.ID, want object.Type, counts bool) error {
	known, ok := c.links[link]
	if !ok {
		at, ok, err := c.view.locate(ctx, link)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %s", ErrMissing, link)
		}
		info, err := at.layer.stat(ctx, at)
		if err != nil {
			return err
		}
		known.kind = info.Type
	}
	if counts && !known.noted {
		if err := c.summary.note(ctx, link); err != nil {
			return err
		}
		known.noted = true
	}
	if len(c.links) >= linksMax {
		clear(c.links)
	}
	c.links[link] = known
	if want != 0 && known.kind != want {
		return fmt.Errorf("%w: %s is a %s, not a %s", ErrMissing, link, known.kind, want)
	}
	return nil
}

// checkGraphRow compares the row of a commit in the same layer, if there is one, with the commit.
func (c *objectChecker) checkGraphRow(ctx context.Context, at Location, data []byte) error {
	row, ok, err := at.layer.graph(ctx, at.id)
	if !ok || err != nil {
		return err
	}
	want, err := segment.ParseGraphRow(data)
	if err != nil {
		return err
	}
	generations := make([]uint32, len(want.Parents))
	for i, parent := range want.Parents {
		known, err := c.view.Graph(ctx, parent)
		if err != nil {
			return err
		}
		generations[i] = known.Generation
	}
	want.Generation = segment.NextGeneration(generations)
	if row.Generation == 0 || want.Generation == 0 { // unknown, which is allowed
		row.Generation, want.Generation = 0, 0
	}
	if !row.Equal(&want) {
		return fmt.Errorf("%w: its graph row says %v, the commit %v", ErrDisagree, row, want)
	}
	return nil
}

// errRefusedDelta is fsck's warning about such a delta.
var errRefusedDelta = fmt.Errorf("it is stored as a delta that makes nothing, which git does not read below %d bytes; "+
	"clients get it whole, and maintenance writes it so", delta.SizeMin)
