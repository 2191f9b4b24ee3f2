package packgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/progress"
	"packhorse/odb/rescue"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// RepackOptions are the settings of a rewrite of layers. The zero value works.
type RepackOptions struct {
	// Workers is the number of goroutines that search deltas; 0 means 1.
	Workers int
	// Pause is the length of rests as a share of the time of work: 0 means no rests, 1 means rests for
	// half of the time.
	Pause float64
	// Owner is that of the pool; see [odb.View.For].
	Owner string
	// Anew searches a delta for every object and reuses none, as git repack -F does.
	Anew bool
	// Room, if set, is called with a size in bytes before the work writes, and again now and then. It
	// returns an error if the disk has no room for them, which ends the work.
	Room func(size int64) error
	// Progress, if set, receives the progress of the phases.
	Progress progress.Func
}

// Repack makes one segment of all objects of some layers, or of a part of them. It copies stored
// entries, and searches deltas for objects that would be stored whole. The pack goes through the
// ingest of a push: that hashes and checks each object, and makes index, graph rows and segment
// summary.
type Repack struct {
	*odb.Rewrite
	fresh   []bool // segments whose deltas are not reused
	Full    bool   // redo the delta search of delta-incomplete segments
	plan    *PackPlan
	options RepackOptions
	streams []segment.BlockStream // the tables of copied block streams
}

// NewRepack returns a repack of the layers that rewrite has chosen, or will choose. The caller
// closes it before rewrite.
func NewRepack(ctx context.Context, rewrite *odb.Rewrite, options RepackOptions) (*Repack, error) {
	options.Workers = cmp.Or(options.Workers, 1)
	linked := rewrite.View().For(options.Owner).Linked() // objects that a fork may not read are kept, too
	inv, err := newInventory(ctx, linked)
	if err != nil {
		return nil, err
	}
	r := &Repack{Rewrite: rewrite, fresh: make([]bool, len(inv.segments)), options: options}
	inv.pace = linked.Store().NewPacer(options.Pause)
	r.plan = &PackPlan{
		undone: inv.newSet(), inv: inv, request: Request{OFSDelta: true}, history: revwalk.NewGraph(linked),
		hidden: inv.newSet(), send: inv.newSet(),
	}
	r.plan.progress.Report = options.Progress
	return r, nil
}

// Count returns the number of objects that the new segment takes.
func (r *Repack) Count() int { return r.plan.count }

// Rest returns at once, or after a rest if one is due. Errors: that of ctx.
func (r *Repack) Rest(ctx context.Context) error { return r.plan.inv.pace.Rest(ctx) }

// Close discards the plan. The caller closes the rewrite after it.
func (r *Repack) Close() error { return r.plan.Close() }

// TakeAll takes every object of the chosen layers once, except hot objects that one of the pool's
// own segments holds, too.
func (r *Repack) TakeAll(ctx context.Context) error {
	inv, send := r.plan.inv, &r.plan.send
	var picked []int
	for i, l := range inv.layers {
		if !r.IsChosen(l.ID) {
			continue
		}
		send.addAll(i)
		for _, newer := range picked {
			if err := send.removeDuplicates(ctx, newer, i); err != nil {
				return err
			}
		}
		picked = append(picked, i)
	}
	return r.eachHot(ctx, func(h handle) { send.add(h) })
}

// eachHot calls visit with the objects of the chosen hot layers that no segment holds. Borrowed
// segments do not count: a fork can always read its own copy, but only visible objects of a
// borrowed segment.
func (r *Repack) eachHot(ctx context.Context, visit func(h handle)) error {
	inv := r.plan.inv
	for layer := range r.Chosen() {
		for id, err := range r.HotObjects(ctx, layer) {
			if err != nil {
				return err
			}
			if err := inv.pace.Rest(ctx); err != nil {
				return err
			}
			h, err := inv.locate(ctx, id)
			if err != nil {
				return err
			}
			held, err := r.ownSegmentHolds(ctx, id)
			if err != nil {
				return err
			}
			if !held {
				visit(h)
			}
		}
	}
	return nil
}

func (r *Repack) ownSegmentHolds(ctx context.Context, id object.ID) (bool, error) {
	for i, g := range r.plan.inv.segments {
		if r.View().IsBorrowed(r.plan.inv.layers[i]) {
			continue
		}
		if _, ok, err := g.Lookup(ctx, id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// Prepare makes deltas for the taken objects and the order of those from hot layers. It follows
// [Repack.TakeAll] or [Repack.TakeReachable].
func (r *Repack) Prepare(ctx context.Context) error {
	p := r.plan
	p.count, p.bytes = 0, 0
	if err := p.measure(ctx); err != nil {
		return err
	}
	if err := r.askForRoom(); err != nil {
		return err
	}
	if err := r.findStreams(ctx); err != nil {
		return err
	}
	for i, g := range p.inv.segments {
		r.fresh[i] = r.IsChosen(p.inv.layers[i].ID) && (r.options.Anew || (r.Full && g.IsProvisional()))
	}
	paths, err := r.paths(ctx)
	if err != nil {
		return fmt.Errorf("find paths: %w", err)
	}
	if err := r.arrange(paths); err != nil {
		return err
	}
	return r.search(ctx, paths)
}

// askForRoom returns an error unless the disk has room for the segment with its auxiliary files,
// and for the deltas in their scratch file.
func (r *Repack) askForRoom() error {
	if r.options.Room == nil {
		return nil
	}
	const besideObject = 100 // about: index, graph row, path filter and bitmaps
	if err := r.options.Room(2*r.plan.bytes + besideObject*int64(r.plan.count)); err != nil {
		return fmt.Errorf("ask for room: %w", err)
	}
	return nil
}

// isProvisional reports whether the new segment is delta-incomplete.
func (r *Repack) isProvisional() bool {
	if r.Full || r.options.Anew {
		return false
	}
	provisional := r.plan.send.count(r.plan.inv.unpackedLayer()) > 0
	for i, g := range r.plan.inv.segments {
		provisional = provisional || (r.IsChosen(r.plan.inv.layers[i].ID) && g.IsProvisional())
	}
	return provisional
}

// findStreams collects the tables of the block streams that are taken.
func (r *Repack) findStreams(ctx context.Context) error {
	for layer, g := range r.plan.inv.segments {
		for ordinal, err := range g.BlockStreams(ctx) {
			if err != nil {
				return err
			}
			if !r.plan.send.has(newHandle(layer, ordinal)) {
				continue
			}
			record, err := g.Record(ctx, ordinal)
			if err != nil {
				return err
			}
			s := segment.BlockStream{}
			if s.ID, err = g.ID(ctx, ordinal); err != nil {
				return err
			}
			if s.Table, s.Sums, err = g.BlockTable(ctx, ordinal, record.Size); err != nil {
				return err
			}
			r.streams = append(r.streams, s)
		}
	}
	return nil
}

// paths returns the taken versions of each path, the newest first, and the commits as one more
// path.
func (r *Repack) paths(ctx context.Context) ([]pathVersions, error) {
	walk := newReaching(r.plan.inv, &r.plan.request, &r.plan.progress)
	walk.keepPaths, walk.within = true, &r.plan.send
	commits, err := r.commits(ctx)
	if err != nil {
		return nil, err
	}
	all := pathVersions{kind: object.TypeCommit}
	roots := pathVersions{kind: object.TypeTree}
	for _, c := range commits {
		all.sent = append(all.sent, c.h)
		tree, err := r.plan.inv.linked(ctx, c.tree)
		if err != nil {
			return nil, err
		}
		if r.plan.send.has(tree) && walk.seen.add(tree) {
			roots.sent = append(roots.sent, tree)
		}
	}
	w := newTreeWalk(walk)
	w.add(treeGroup{trees: roots.sent})
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	paths := append([]pathVersions{all, roots}, walk.paths...)
	slices.SortStableFunc(paths, func(a, b pathVersions) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.nameHash, b.nameHash))
	})
	return paths, nil
}

// takenCommit is a commit that the new segment takes.
type takenCommit struct {
	h          handle
	tree       object.ID
	seconds    int64
	generation uint32 // orders commits of one second
}

// commits returns the taken commits, the newest first.
func (r *Repack) commits(ctx context.Context) ([]takenCommit, error) {
	var commits []takenCommit
	add := func(h handle) error {
		if err := r.plan.inv.pace.Rest(ctx); err != nil {
			return err
		}
		id, err := r.plan.inv.id(ctx, h)
		if err != nil {
			return err
		}
		row, err := r.plan.inv.view.Graph(ctx, id)
		commits = append(commits, takenCommit{h: h, tree: row.Tree, seconds: row.Seconds, generation: row.Generation})
		return err
	}
	for layer, g := range r.plan.inv.segments {
		records := segment.NewRecordReader(g)
		err := r.plan.send.each(layer, func(ordinal uint32) error {
			t, _, _, err := records.Info(ctx, ordinal)
			if err != nil || t != object.TypeCommit {
				return err
			}
			return add(newHandle(layer, ordinal))
		})
		if err != nil {
			return nil, err
		}
	}
	layer := r.plan.inv.unpackedLayer()
	err := r.plan.send.each(layer, func(number uint32) error {
		info, err := r.plan.inv.stat(ctx, newHandle(layer, number))
		if err != nil || info.Type != object.TypeCommit {
			return err
		}
		return add(newHandle(layer, number))
	})
	slices.SortStableFunc(commits, func(a, b takenCommit) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(b.generation, a.generation))
	})
	return commits, err
}

// arrange orders the newly packed objects as git packs do: commits, then trees, then blobs. The
// newest version of each path comes first, for shallow clones, and then the rest path by path.
func (r *Repack) arrange(paths []pathVersions) error {
	p := r.plan
	p.order = []handle{}
	seen := p.inv.newSet()
	add := func(h handle) {
		if (h.layer() == p.inv.unpackedLayer() || r.fresh[h.layer()]) && p.send.has(h) && seen.add(h) {
			p.order = append(p.order, h)
		}
	}
	for len(paths) > 0 { // sorted by type
		count := slices.IndexFunc(paths, func(path pathVersions) bool { return path.kind != paths[0].kind })
		if count < 0 {
			count = len(paths)
		}
		for _, path := range paths[:count] {
			if len(path.sent) > 0 {
				add(path.sent[0])
			}
		}
		for _, path := range paths[:count] {
			for _, h := range path.sent {
				add(h)
			}
		}
		paths = paths[count:]
	}
	for layer := range p.inv.unpackedLayer() + 1 { // objects that no path leads to
		err := p.send.each(layer, func(number uint32) error {
			add(newHandle(layer, number))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Write makes the segment and gives it to the rewrite.
func (r *Repack) Write(ctx context.Context) error {
	group, groupCtx := rescue.WithContext(ctx)
	from, to := io.Pipe()
	paced := &pacedWriter{ctx: groupCtx, dst: to, pace: r.plan.inv.pace, room: r.options.Room}
	group.Go(func() error {
		err := rescue.Do(func() error { // else a panic would leave the reader waiting
			_, err := r.plan.WriteTo(groupCtx, paced, r.options.Progress)
			return err
		})
		return errors.Join(err, to.CloseWithError(err))
	})
	var in *ingest.Ingest
	own := &ingest.OwnPack{
		Streams: r.streams, Provisional: r.isProvisional(), Workers: r.options.Workers, Rest: r.plan.inv.pace.Rest,
	}
	group.Go(func() error {
		err := rescue.Do(func() (err error) { // and the writer
			in, err = ingest.Read(groupCtx, r.View(), from, ingest.Options{Own: own})
			return err
		})
		return errors.Join(err, from.CloseWithError(err))
	})
	if err := group.Wait(); err != nil {
		if in != nil {
			in.Close()
		}
		return fmt.Errorf("write segment: %w", err)
	}
	q, _, err := in.Resolve(ctx, r.options.Progress)
	if err != nil {
		return err
	}
	if q.Count() != r.plan.count {
		return errors.Join(fmt.Errorf("odb: rewrote %d objects instead of %d", q.Count(), r.plan.count), q.Close())
	}
	return r.Put(q)
}
