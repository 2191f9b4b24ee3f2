package gitdir

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"packhorse/pack"
	"packhorse/pack/object"
)

// state is what a plan knows of an object.
type state uint8

const (
	isUnknown state = iota
	isHeld          // who gets the pack has it
	isSent
)

// Plan is a pack that is to be written: the objects that some tips reach and others do not.
type Plan struct {
	Count int   // of objects
	Bytes int64 // about the size of the pack

	repository *Repository
	loose      []object.ID // those among them that lie in files of their own
}

// Plan walks from wants to all that they reach, but for what haves reach; those of haves that are
// not here are ignored. It replaces the plan made before. Memory grows by about 13 bytes for each
// object of the packs.
//
// Errors: [ErrMissing], those of damaged files, and of ctx.
func (r *Repository) Plan(ctx context.Context, wants, haves []object.ID) (*Plan, error) {
	w := &walk{repository: r, loose: make(map[object.ID]state)}
	for _, p := range r.packs {
		clear(p.state)
	}
	here := slices.DeleteFunc(slices.Clone(haves), func(id object.ID) bool { return !r.Has(id) })
	if err := w.from(ctx, here, isHeld); err != nil {
		return nil, err
	}
	if err := w.from(ctx, wants, isSent); err != nil {
		return nil, err
	}
	plan := &Plan{repository: r}
	for id, s := range w.loose {
		if s == isSent {
			plan.loose = append(plan.loose, id)
		}
	}
	slices.SortFunc(plan.loose, object.ID.Compare)
	plan.Count = len(plan.loose)
	for _, p := range r.packs {
		for rank, position := range p.order {
			if p.state[position] == isSent {
				begin, end := p.bounds(rank)
				plan.Count++
				plan.Bytes += end - begin
			}
		}
	}
	return plan, nil
}

// walk marks what tips reach.
type walk struct {
	repository *Repository
	loose      map[object.ID]state
	pending    []object.ID // commits, trees and tags that are marked, and were not read yet
}

// from marks all that is reached and not marked yet.
func (w *walk) from(ctx context.Context, tips []object.ID, as state) error {
	for _, id := range tips {
		if err := w.mark(id, as, true); err != nil {
			return err
		}
	}
	for len(w.pending) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		found, err := w.repository.read(id)
		if err != nil {
			return err
		}
		err = object.Links(found.kind, found.data, func(link object.ID, want object.Type) error {
			return w.mark(link, as, want != object.TypeBlob)
		})
		if err != nil {
			return fmt.Errorf("links of %s: %w", id, err)
		}
	}
	return nil
}

// mark marks an object, which is read later if it may have links.
func (w *walk) mark(id object.ID, as state, read bool) error {
	if p, position := w.repository.find(id); p != nil {
		if p.state[position] != isUnknown {
			return nil
		}
		p.state[position] = as
	} else {
		if w.loose[id] != isUnknown {
			return nil
		}
		if _, ok := w.repository.loosePath(id); !ok {
			return fmt.Errorf("%w: %s", ErrMissing, id)
		}
		w.loose[id] = as
	}
	if read {
		w.pending = append(w.pending, id)
	}
	return nil
}

// WriteTo writes the pack. Entries are copied as they are stored, deltas too if their bases are in
// the pack.
func (p *Plan) WriteTo(ctx context.Context, to io.Writer) error {
	buffered := bufio.NewWriterSize(to, 256<<10)
	w := pack.NewWriter(buffered, uint32(p.Count))
	for _, from := range p.repository.packs {
		if err := p.copyPack(ctx, w, from); err != nil {
			return err
		}
	}
	for _, id := range p.loose {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := p.repository.readLoose(id)
		if err != nil {
			return err
		}
		if err := writeWhole(w, found); err != nil {
			return err
		}
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// copyPack writes the entries of one pack, in their order: a base comes before its deltas.
func (p *Plan) copyPack(ctx context.Context, w *pack.Writer, from *packIndex) error {
	written := make([]int64, from.count) // offsets in the new pack by rank; 0: not there
	for rank, position := range from.order {
		if from.state[position] != isSent {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		h, at, size, err := from.header(rank)
		if err != nil {
			return err
		}
		offset := w.Offset()
		copied := true
		if h.Kind == pack.KindOFSDelta {
			begin, _ := from.bounds(rank)
			base, ok := from.rank(begin - h.BaseDistance)
			if copied = ok && written[base] > 0; copied {
				h.BaseDistance = offset - written[base]
			}
		}
		if h.Kind == pack.KindRefDelta {
			base, ok := from.find(h.BaseID)
			copied = ok && from.state[base] == isSent
		}
		if copied {
			_, err = w.WriteDeflatedFrom(h, io.NewSectionReader(from.pack, at, size), size)
		} else {
			var found whole
			if found, err = p.repository.readPacked(place{from, rank}); err == nil {
				err = writeWhole(w, found)
			}
		}
		if err != nil {
			return errors.Join(fmt.Errorf("copy %s", from.id(position)), err)
		}
		written[rank] = offset
	}
	return nil
}

// writeWhole writes an object as an entry that is no delta.
func writeWhole(w *pack.Writer, found whole) error {
	packed := pack.Deflate(nil, found.data, pack.LevelDefault)
	_, err := w.WriteDeflatedFrom(pack.EntryHeader{Kind: pack.EntryKind(found.kind), Size: int64(len(found.data))},
		bytes.NewReader(packed), int64(len(packed)))
	return err
}
