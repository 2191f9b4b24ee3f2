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

// RepackOptions are the settings of what rewrites layers. The zero value works.
type RepackOptions struct {
	// Workers is how many goroutines search deltas; 1 when 0.
	Workers int
	// Pause is how long the work rests, as a share of the time that it works; 0 does not rest, 1 rests
	// half of the time.
	Pause float64
	// Anew searches a delta for every object and reuses none, as git repack -F does.
	Anew bool
	// Room is asked before anything is written whether so many bytes fit on the disk, and again from
	// time to time; nil: they do. Its error ends the work.
	Room func(size int64) error
	// Progress hears of the phases; nil: nobody does.
	Progress progress.Func
}

// Repack makes one segment of exactly the objects of some layers, or of those of them that are
// kept. Entries are copied as they are stored, deltas are searched for what would lie there whole,
// and the pack goes the way of every other that comes in: each object is hashed and checked, and
// index, graph rows and outline come from there.
type Repack struct {
	*odb.Rewrite
	fresh   []bool // segments none of whose deltas is reused
	Full    bool   // redo the delta search of provisional segments
	plan    *PackPlan
	options RepackOptions
	streams []segment.BlockStream // the tables of block streams that are copied
}

// NewRepack plans for the layers that rewrite has chosen, or will choose. The caller closes it
// before rewrite.
func NewRepack(ctx context.Context, rewrite *odb.Rewrite, options RepackOptions) (*Repack, error) {
	options.Workers = cmp.Or(options.Workers, 1)
	linked := rewrite.View().Linked() // what a fork may not read is kept like all that is stored
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

// Count is how many objects are taken.
func (r *Repack) Count() int { return r.plan.count }

// Rest returns at once, or after a rest when one is due. Errors: that of ctx.
func (r *Repack) Rest(ctx context.Context) error { return r.plan.inv.pace.Rest(ctx) }

// Close forgets the plan, and comes before that of the rewrite.
func (r *Repack) Close() error { return r.plan.Close() }

// TakeAll takes every object of the chosen layers once. Of hot objects those are left out that a
// segment of the pool's own holds too.
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
// segments do not count: a fork may read what is own in it, and not for certain what it took.
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

// Prepare finds deltas and the order of what comes from hot layers, once it is known what is taken.
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

// askForRoom makes sure that the segment fits on the disk, with its auxiliary files, and the deltas in
// their scratch file before.
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

// isProvisional reports whether the segment will hold deltas that were found among few objects.
func (r *Repack) isProvisional() bool {
	if r.Full || r.options.Anew {
		return false
	}
	provisional := r.plan.send.count(r.plan.inv.looseLayer()) > 0
	for i, g := range r.plan.inv.segments {
		provisional = provisional || (r.IsChosen(r.plan.inv.layers[i].ID) && g.IsProvisional())
	}
	return provisional
}

// findStreams gathers the tables of the block streams that are taken.
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

// paths returns the versions of each path among what is taken, the newest first, and the commits as
// one more.
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

// takenCommit is a commit that is taken.
type takenCommit struct {
	h          handle
	tree       object.ID
	seconds    int64
	generation uint32 // of many in one second
}

// commits returns the commits that are taken, the newest first.
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
	loose := r.plan.inv.looseLayer()
	err := r.plan.send.each(loose, func(number uint32) error {
		info, err := r.plan.inv.stat(ctx, newHandle(loose, number))
		if err != nil || info.Type != object.TypeCommit {
			return err
		}
		return add(newHandle(loose, number))
	})
	slices.SortStableFunc(commits, func(a, b takenCommit) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(b.generation, a.generation))
	})
	return commits, err
}

// arrange lets what is packed anew lie as git packs have it: commits, then trees, then blobs. The
// newest version of each path comes first, which is what a shallow clone takes, and then each path
// by itself.
func (r *Repack) arrange(paths []pathVersions) error {
	p := r.plan
	p.order = []handle{}
	seen := p.inv.newSet()
	add := func(h handle) {
		if (h.layer() == p.inv.looseLayer() || r.fresh[h.layer()]) && p.send.has(h) && seen.add(h) {
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
	for layer := range p.inv.looseLayer() + 1 { // what no path leads to
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

// Write makes the segment, and hands it to the rewrite.
func (r *Repack) Write(ctx context.Context) error {
	group, groupCtx := rescue.WithContext(ctx)
	from, to := io.Pipe()
	group.Go(func() error {
		_, err := r.plan.WriteTo(groupCtx, &pacedWriter{ctx: groupCtx, dst: to, pace: r.plan.inv.pace, room: r.options.Room},
			r.options.Progress)
		return errors.Join(err, to.CloseWithError(err))
	})
	var in *ingest.Ingest
	own := &ingest.OwnPack{
		Streams: r.streams, Provisional: r.isProvisional(), Workers: r.options.Workers, Rest: r.plan.inv.pace.Rest,
	}
	group.Go(func() (err error) {
		in, err = ingest.Read(groupCtx, r.View(), from, ingest.Options{Own: own})
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
		return errors.Join(fmt.Errorf("odb: %d objects where %d were to be rewritten", q.Count(), r.plan.count), q.Close())
	}
	return r.Put(q)
}
