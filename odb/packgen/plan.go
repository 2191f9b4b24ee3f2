// Package packgen makes packs: it finds which objects travel, from segment summaries, bitmaps or
// walks, and writes them as they are stored wherever base and delta both travel. Maintenance
// repacks with it.
//
// Start at [Plan], then [PackPlan.WriteTo]; [NewRepack] is maintenance's. The map, by file:
//
//	plan, generate                  what a client gets, and writing it
//	inventory                       the objects of a view by number, and sets of them
//	whole                           requests that come down to whole segments
//	reach, treewalk, readahead,     fill-in traversal: commits, trees, partial-clone filters
//	filter, filterset
//	bitmap, reachbitmap, cover      the same from bitmaps
//	bitmapbuild, bitmapwriter,      making and checking bitmaps
//	bitmapcheck
//	search, founddeltas             deltas for what is stored whole
//	segmentout, entryrun, rebase,   output: runs of entries as they lie, deltas with another header,
//	wholeout, looseout, orderedout, objects of the hot tier, packs in an order of their own
//	packstream
//	repack, repackreach,            one segment of the objects of several layers
//	repacksearch, pacedwriter
//	reachability                    what forks may read
package packgen

import (
	"context"
	"errors"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/progress"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Request says what a pack is for.
type Request struct {
	// Wants are objects of any type: the pack holds them and what they reach.
	Wants []object.ID
	// Haves are objects that the client has with all that they reach; the pack does without it.
	Haves []object.ID
	// ClientShallow is the boundary of the client's history; Shallow and Unshallow are how it moves,
	// as [revwalk.Deepen] answered.
	ClientShallow, Shallow, Unshallow []object.ID
	// Filter leaves out objects that were not asked for by their ID.
	Filter Filter
	// Thin allows deltas against objects that the client has and the pack does not hold, OFSDelta the
	// shorter form of deltas.
	Thin, OFSDelta bool
	// Tags are the tag objects of the repository that are sent along if what they lead to is
	// (include-tag).
	Tags []TagTarget
}

// TagTarget is a tag object with what it leads to in the end.
type TagTarget struct{ Tag, Peeled object.ID }

// PackPlan is a pack that has been decided on: its objects are counted, not read. It is for one
// goroutine; the caller closes it before the view.
type PackPlan struct {
	inv     *inventory
	history *revwalk.Graph // marks the commits that the client has
	hidden  objectSet      // objects that the client has: trees and blobs, and what bitmaps tell
	send    objectSet
	request Request
	count   int
	bytes   int64
	whole   int64        // of bytes: segments that are sent with every entry
	deltas  *foundDeltas // made for this pack

	// order is what is written first, each object behind its base, in the pack of a repack; nil
	// otherwise. Objects outside segments are all in it. What is left follows as it lies in the
	// segments.
	order []handle
	// undone are objects that are written whole though they are stored as deltas: their chains would
	// become too long.
	undone objectSet

	progress progress.Meter
}

// The phases of a pack on its way out, named as git tells them.
const (
	phaseEnumerating = "Enumerating objects"
	phaseCompressing = "Compressing objects"
	phaseWriting     = "Writing objects"
)

// Plan finds the objects of a pack: those that git pack-objects would send for the same request.
// Memory is a bit per stored object and about 100 bytes per commit visited; nothing of a repository
// is visited where the wants cover all of it.
//
// progress may be nil; the total of what it hears is 0 until it is known.
//
// Errors: [odb.ErrNotFound] for a want or a have.
func Plan(ctx context.Context, v *odb.View, request Request, report progress.Func) (*PackPlan, error) {
	for _, ids := range [][]object.ID{request.Wants, request.Haves, request.Unshallow} {
		for _, id := range ids {
			if _, err := v.Find(ctx, id); err != nil {
				return nil, err
			}
		}
	}
	inv, err := newInventory(ctx, v.Linked()) // all else is reached from these
	if err != nil {
		return nil, err
	}
	request.Thin = request.Thin && len(request.Haves) > 0
	p := &PackPlan{inv: inv, request: request}
	p.progress.Report = report
	err = fair.Do(ctx, func(ctx context.Context) error {
		p.progress.Turn = ctx
		return p.find(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Count returns the number of objects in the pack.
func (p *PackPlan) Count() int { return p.count }

// Bytes estimates the size of the pack, from how its objects are stored.
func (p *PackPlan) Bytes() int64 { return p.bytes }

// WholeBytes returns how much of [PackPlan.Bytes] is whole segments, which are copied as they are
// stored.
func (p *PackPlan) WholeBytes() int64 { return p.whole }

// Close releases the files that the plan reads.
func (p *PackPlan) Close() error {
	p.inv.close()
	return p.deltas.close()
}

func (p *PackPlan) find(ctx context.Context) error {
	r := newReaching(p.inv, &p.request, &p.progress)
	if err := r.find(ctx, &p.request); err != nil {
		return err
	}
	p.history, p.hidden, p.send = r.history, r.hidden, r.send
	if err := p.addTags(ctx); err != nil {
		return err
	}
	if err := p.measure(ctx); err != nil {
		return err
	}
	p.progress.End(phaseEnumerating, int64(p.count), int64(p.count))
	return p.search(ctx, r.paths)
}

// addTags adds the tags whose targets are sent.
func (p *PackPlan) addTags(ctx context.Context) error {
	for _, tag := range p.request.Tags {
		target, err := p.inv.locate(ctx, tag.Peeled)
		if err != nil {
			return err
		}
		if !p.send.has(target) {
			continue
		}
		_, _, chain, err := revwalk.Peel(ctx, p.inv.view, tag.Tag)
		if err != nil {
			return err
		}
		for _, id := range chain {
			h, err := p.inv.locate(ctx, id)
			if err != nil {
				return err
			}
			p.send.add(h)
		}
	}
	return nil
}

// isUndone reports whether an object is written whole however it is stored.
func (p *PackPlan) isUndone(h handle) bool { return p.order != nil && p.undone.has(h) }

// measure counts what is sent and adds up its size.
func (p *PackPlan) measure(ctx context.Context) error {
	p.bytes = pack.HeaderSize + pack.TrailerSize
	for layer, g := range p.inv.segments {
		count := p.send.count(layer)
		p.count += count
		if count == g.Count {
			p.whole += g.DataSize - pack.HeaderSize - pack.TrailerSize
			continue
		}
		records := segment.NewRecordReader(g)
		err := p.send.each(layer, func(ordinal uint32) error {
			_, _, packedSize, err := records.Info(ctx, ordinal)
			p.bytes += packedSize
			return err
		})
		if err != nil {
			return err
		}
	}
	p.bytes += p.whole
	p.count += p.send.count(p.inv.looseLayer())
	return p.send.each(p.inv.looseLayer(), func(number uint32) error {
		p.bytes += int64(p.inv.looseSizes[number])
		return nil
	})
}

// clientHas reports whether the client is known to have the object of id, whose handle is h, and so
// whether a thin pack may build on it.
func (p *PackPlan) clientHas(h handle, id object.ID, t object.Type) bool {
	if t == object.TypeCommit {
		n := p.history.Find(id)
		return n >= 0 && p.history.Has(n, revwalk.MarkHidden) || p.hidden.has(h)
	}
	// With a filter the client may lack what its commits reach.
	return p.hidden.has(h) && p.request.Filter.IsZero()
}

// DeltaBytes is the size in bytes of the deltas that were made for the pack.
func (p *PackPlan) DeltaBytes() int64 { return p.deltas.bytes() }
