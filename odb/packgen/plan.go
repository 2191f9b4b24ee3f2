// Package packgen makes packs: it finds the objects to send, from segment summaries, bitmaps or
// walks, and writes them as they are stored wherever base and delta are both sent. Maintenance
// repacks with it.
//
// Start at [Plan], then [PackPlan.WriteTo]; [NewRepack] is maintenance's. The map, by file:
//
//	plan, generate                  the objects of a client's pack, and writing it
//	inventory                       the objects of a view by number, and sets of them
//	whole                           pack reuse: requests that reduce to whole segments
//	reach, treewalk, readahead,     walks: commits, trees, partial-clone filters
//	filter, filterset
//	bitmap, reachbitmap, cover      fill-in traversal with bitmaps
//	bitmapbuild, bitmapwriter,      building and checking bitmaps
//	bitmapcheck
//	search, founddeltas             new deltas, against the client's versions of a path
//	segmentout, entryrun, rebase,   output: runs of stored entries, deltas with another header,
//	wholeout, unpackedout,          objects of the hot tier, packs in an order of their own; what is
//	orderedout, packstream,         to be copied from afar
//	sparseahead
//	repack, repackreach,            one segment of the objects of several layers
//	repacksearch, pacedwriter
//	reachability                    the objects that forks may read
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

// Request describes the pack for a client.
type Request struct {
	// Wants are objects of any type: the pack holds them and all that they reach.
	Wants []object.ID
	// Haves are objects that the client has with all that they reach; the pack leaves these out.
	Haves []object.ID
	// ClientShallow is the boundary of the client's history. Shallow and Unshallow change it, as
	// [revwalk.Deepen] returned them.
	ClientShallow, Shallow, Unshallow []object.ID
	// Filter leaves out objects that the client did not ask for by their ID.
	Filter Filter
	// Thin allows deltas against objects that the client has and the pack does not hold. OFSDelta
	// allows the short form of deltas.
	Thin, OFSDelta bool
	// Tags are the tag objects of the repository. The pack includes one if it includes the object that
	// the tag leads to (include-tag).
	Tags []TagTarget
}

// TagTarget is a tag object with the object that it leads to through any number of tags.
type TagTarget struct{ Tag, Peeled object.ID }

// PackPlan is a planned pack: its objects are counted, not read. It is for one goroutine; the
// caller closes it before the view.
type PackPlan struct {
	inv     *inventory
	history *revwalk.Graph // marks the commits that the client has
	hidden  objectSet      // objects that the client has: trees and blobs, and all that bitmaps cover
	send    objectSet
	request Request
	count   int
	bytes   int64
	whole   int64        // of bytes: segments that are sent with every entry
	deltas  *foundDeltas // made for this pack

	// order lists the objects that a repack writes first, each behind its base; nil otherwise. It has
	// all unpacked objects. The other objects follow in the order of their segments.
	order []handle
	// undone are objects that are written whole although they are stored as deltas, because their
	// chains would become too long.
	undone objectSet

	progress progress.Meter
}

// The phases of making a pack, as git names them.
const (
	phaseEnumerating = "Enumerating objects"
	phaseCompressing = "Compressing objects"
	phaseWriting     = "Writing objects"
)

// Plan finds the objects of a pack: those that git pack-objects would send for the same request.
// Memory is a bit per stored object and about 100 bytes per visited commit. If the wants cover all
// of a repository, Plan visits no commit.
//
// report may be nil; the total that it receives is 0 while it is unknown. The caller closes the
// plan.
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
	inv, err := newInventory(ctx, v.Linked()) // these lead to all other objects
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

// Bytes estimates the size of the pack in bytes from the stored sizes of its objects.
func (p *PackPlan) Bytes() int64 { return p.bytes }

// WholeBytes returns the part of [PackPlan.Bytes] in whole segments, which are copied as they are
// stored.
func (p *PackPlan) WholeBytes() int64 { return p.whole }

// Close releases the files of the plan.
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

// isUndone reports whether an object is written whole, in whatever form it is stored.
func (p *PackPlan) isUndone(h handle) bool { return p.order != nil && p.undone.has(h) }

// measure counts the objects to send and adds up their size.
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
	p.count += p.send.count(p.inv.unpackedLayer())
	return p.send.each(p.inv.unpackedLayer(), func(number uint32) error {
		p.bytes += int64(p.inv.places[number].size)
		return nil
	})
}

// clientHas reports whether the client is known to have the object id with the handle h. A thin
// pack may use such an object as a base.
func (p *PackPlan) clientHas(h handle, id object.ID, t object.Type) bool {
	if t == object.TypeCommit {
		n := p.history.Find(id)
		return n >= 0 && p.history.Has(n, revwalk.MarkHidden) || p.hidden.has(h)
	}
	// With a filter the client may lack objects that its commits reach.
	return p.hidden.has(h) && p.request.Filter.IsZero()
}

// DeltaBytes returns the size in bytes of the deltas that were made for the pack.
func (p *PackPlan) DeltaBytes() int64 { return p.deltas.bytes() }
