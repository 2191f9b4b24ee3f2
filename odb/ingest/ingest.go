// Package ingest receives packs, as git index-pack --fix-thin --strict does: it reads a pack once
// and stores the bytes, resolves deltas on all cores in bounded memory, hashes and checks every
// object, and checks every link against the pack and the pool. The result is a quarantine.
//
// Start at [Read], then [Ingest.Resolve]. The map, by file:
//
//	ingest, ingestmemory, ownpack   reading a pack, its bounds of memory, packs of our own
//	intake, lanes, examine          pass one: stored, and hashed and checked while it is read
//	packtable, keptdeltas,          the state of each entry; deltas that wait for their base
//	refdeltas, basecache, buffers
//	resolve, resolver,              pass two: deltas
//	resolveworker, resolvecontent
//	thinbase, deduplicate           bases from the pool; packs that hold an object twice
//	links, connect, nesting,        links, connectivity, the depth of trees, generation numbers
//	generation
//	settle                          into the hot tier or a segment
//	badpack, objections, busyclock  refusals, tolerated faults, the limit of computing time
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/progress"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// The phases of an incoming pack, as git names them.
const (
	phaseReceiving = "Receiving objects"
	phaseResolving = "Resolving deltas"
	phaseChecking  = "Checking connectivity"
)

// Options are the settings of [Read]. The zero value works.
type Options struct {
	// Progress, if set, receives the number of objects that have been read.
	Progress progress.Func
	// Shallow are the commits at which the sender's history ends. A [MissingError] says if it is about
	// a parent of one of them.
	Shallow []object.ID
	// WholeBytes is the size in bytes up to which an object or a delta base is held in memory. 0 means
	// 32 MiB, the maximum.
	WholeBytes int64
	// LinkCount is the number of object IDs that are held in memory before they are sorted onto
	// scratch files. 0 means 1,000,000.
	LinkCount int

	Own *OwnPack // set by the rewrite of layers, else nil
}

// Stats describes an ingested pack: the numbers of its objects and of the deltas among them,
// and the fields below.
type Stats struct {
	ObjectCount, DeltaCount int
	// BaseCount is the number of thin-pack bases that were added to the pack of a segment.
	BaseCount int
	// PackedBytes is the size of the received pack, InflatedBytes that of its objects and deltas.
	PackedBytes, InflatedBytes int64
	// ReadTime and ResolveTime are the durations of the two passes, including waits for the sender.
	ReadTime, ResolveTime time.Duration
}

// Ingest is an incoming pack that has been read and stored, and is not resolved yet. [Read] makes
// it; [Ingest.Resolve] or [Ingest.Close] ends it.
//
// Reading and resolving together hold about as much as [odb.Options.IngestMemoryBytes] and the free
// memory allow, tables of 40 bytes an object, and a few times the largest commit, tree or tag: see
// ingestmemory.go.
type Ingest struct {
	view       *odb.View
	store      *odb.Store
	options    Options
	limits     odb.Limits
	quarantine *odb.Quarantine
	intake     intake
	memory     *ingestMemory
	table      packTable
	refs       refDeltas
	kept       []keptDeltas // by lane
	links      *linkSet
	progress   progress.Meter
	clock      busyClock
	inflated   atomic.Int64
	stats      Stats

	distinct int             // objects, added bases included, once connected
	summary  segment.Summary // of the segment, once connected

	mu        sync.Mutex // guards the fields below
	found     []finding  // of a pack that is in memory
	commits   commitNotes
	nested    treeNesting
	dotfiles  map[odb.Dotfile]struct{}
	thin      []thinBase
	sentBases map[object.ID]struct{} // bases in thin that the pack contains, too
	emptyTree bool                   // must be stored, too
}

// finding is an object of the pack that has been examined.
type finding struct {
	row     segment.Row // without Base
	ordinal uint32
	base    uint32 // ordinal, or segment.NoOrdinal
}

// Read is pass one: it reads a pack from r, exactly to the end of r, and stores it. It hashes and
// checks whole objects, and deltas whose bases lie close before them. No view sees the objects.
//
// Errors: [ErrBadPack], [pack.ErrCorrupt], also for bytes after the pack, [pack.ErrLimit],
// [object.ErrCollision], and those of r. After an error Read has removed what it stored.
func Read(ctx context.Context, v *odb.View, r io.Reader, options Options) (*Ingest, error) {
	start := time.Now()
	in := newIngest(ctx, v, options)
	if err := in.read(ctx, r); err != nil {
		in.Close()
		return nil, fmt.Errorf("ingest pack: %w", causeOf(ctx, err))
	}
	in.clock.stop()
	in.stats.ReadTime = time.Since(start)
	return in, nil
}

func newIngest(ctx context.Context, v *odb.View, options Options) *Ingest {
	options.WholeBytes = cmp.Or(options.WholeBytes, segment.WholeMax)
	options.WholeBytes = min(options.WholeBytes, segment.WholeMax)
	options.LinkCount = cmp.Or(options.LinkCount, 1_000_000)
	s := v.Store()
	in := &Ingest{
		view:       v,
		store:      s,
		options:    options,
		limits:     s.Limits(),
		quarantine: v.NewQuarantine(ctx),
		intake:     intake{ctx: ctx, store: s},
		memory:     newIngestMemory(ctx, s.Options().IngestMemoryBytes),
		links:      newLinkSet(s.Env().Files, options.LinkCount),
		progress:   progress.Meter{Report: options.Progress},
		clock:      busyClock{limit: s.Limits().InflateTime},
		dotfiles:   make(map[odb.Dotfile]struct{}),
		sentBases:  make(map[object.ID]struct{}),
	}
	in.intake.allow = in.quarantine.Allow
	if options.Own != nil {
		liftLimits(&in.limits)
		in.clock.limit = in.limits.InflateTime
	}
	in.links.bound(min(options.LinkCount, in.memory.links()))
	// An entry too large for the hot tier moves the pack to a segment before its end. The few bytes
	// more may be the pack's trailer.
	in.intake.full, in.intake.fullAt = in.spill, s.Limits().HotBytes+segment.CopyBufferSize
	return in
}

// Count returns the number of objects in the pack.
func (in *Ingest) Count() int { return in.table.count() }

// PackedBytes returns the size of the pack in bytes.
func (in *Ingest) PackedBytes() int64 { return in.stats.PackedBytes }

// Close removes the stored pack, unless Resolve has succeeded. Only the first call has an effect.
func (in *Ingest) Close() {
	q := in.quarantine
	if q == nil {
		return
	}
	in.quarantine = nil
	if err := errors.Join(in.links.close(), in.intake.abort(), q.Close()); err != nil {
		in.store.Env().Log.Warn("failed to remove the files of an incoming pack", "error", err)
	}
}

// read is pass one.
func (in *Ingest) read(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sender := in.clock.reader(ctx, r)
	reader := pack.NewReader(sender, pack.ReaderOptions{Raw: &in.intake, Limits: in.packLimits()})
	header, err := reader.Header()
	if err != nil {
		return err
	}
	if int64(header.Count) > int64(in.limits.HotCount) || in.options.Own != nil {
		if err := in.spill(ctx); err != nil {
			return err
		}
	}
	lanes := newLanes(ctx, in, int(header.Count), cancel)
	err = fair.Do(ctx, func(turn context.Context) error {
		sender.ctx, in.progress.Turn = turn, turn
		return in.readEntries(turn, reader, lanes, int64(header.Count))
	})
	sender.ctx, in.progress.Turn = ctx, nil
	if err != nil {
		cancel(err)
	}
	if err := lanes.finish(ctx); err != nil {
		cancel(err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // the first of the errors
	}
	in.table.end(reader.Offset() - pack.TrailerSize)
	in.stats.PackedBytes = reader.Offset()
	in.stats.ObjectCount, in.stats.DeltaCount = in.table.count(), in.table.deltas
	return in.expectEnd(reader.Rest())
}

func (in *Ingest) readEntries(ctx context.Context, reader *pack.Reader, lanes *lanes, total int64) error {
	for {
		if err := in.options.Own.rest(ctx); err != nil {
			return err
		}
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			in.progress.End(phaseReceiving, total, total)
			return nil
		}
		if err != nil {
			return err
		}
		if err := in.readEntry(ctx, reader, lanes, &entry); err != nil {
			return err
		}
		if err := in.clock.check(); err != nil {
			return err
		}
		in.progress.Step(phaseReceiving, int64(in.table.count()), total)
	}
}

// tablePage is the number of objects between two requests for more room in the tables.
const tablePage = 1 << 16

// readEntry passes one entry to the lane of its delta family.
func (in *Ingest) readEntry(ctx context.Context, reader *pack.Reader, lanes *lanes, entry *pack.Entry) error {
	ordinal := uint32(in.table.count())
	if ordinal%tablePage == tablePage-1 {
		if err := in.needTables(ctx, int(ordinal)+tablePage, 0); err != nil {
			return err
		}
	}
	base, lane := segment.NoOrdinal, 0
	if entry.Kind.IsDelta() && entry.Size < delta.SizeMin {
		return &BadEntryError{Offset: entry.Offset, Err: errShortDelta}
	}
	switch entry.Kind {
	case pack.KindOFSDelta:
		at, ok := in.table.at(entry.BaseOffset)
		if !ok {
			return &BadEntryError{Offset: entry.Offset, Err: errBaseOffset}
		}
		base, lane = at, in.table.states[at].lane()
	case pack.KindRefDelta:
		in.refs.add(entry.BaseID, ordinal)
	default:
		if entry.Size > in.options.WholeBytes && entry.Kind != pack.KindBlob {
			return structureTooLarge(entry.Kind.Type(), entry.Size, in.options.WholeBytes)
		}
		if entry.Kind != pack.KindBlob && entry.Size > in.memory.queued() {
			if err := in.needTables(ctx, int(ordinal), entry.Size); err != nil {
				return err
			}
		}
		lane = lanes.idlest()
	}
	if entry.Size > in.memory.queued() {
		in.memory.spare(ctx)
	}
	if err := lanes.read(ctx, lane, reader, item{ordinal: ordinal, base: base}); err != nil {
		return err
	}
	read := reader.Entry()
	in.table.add(&read, base, lane)
	if read.PackedSize > int64(in.limits.HotValueBytes) || reader.Offset() > int64(in.limits.HotBytes) {
		return in.spill(ctx)
	}
	return nil
}

var (
	errBaseOffset = fmt.Errorf("%w: delta base offset is not an entry", pack.ErrCorrupt)
	errShortDelta = fmt.Errorf("%w: shorter than %d bytes, which git does not read", delta.ErrCorrupt, delta.SizeMin)
)

// structureTooLarge refuses commits, trees and tags that exceed the memory for whole objects.
func structureTooLarge(t object.Type, size, most int64) error {
	return &pack.LimitError{Limit: "size of a " + t.String(), Value: size, Max: most}
}

// expectEnd returns an error unless both the pack and its source end here.
func (in *Ingest) expectEnd(rest io.Reader) error {
	var probe [1]byte
	n, err := io.ReadFull(rest, probe[:])
	switch {
	case n > 0:
		return fmt.Errorf("%w: trailing bytes after the pack", pack.ErrCorrupt)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return fmt.Errorf("read the end of the pack: %w", err)
	}
}

func (in *Ingest) packLimits() pack.Limits {
	return pack.Limits{
		ObjectSizeMax:    in.limits.ObjectBytes,
		CountMax:         int64(in.limits.PackCount),
		PackSizeMax:      in.limits.PackBytes,
		InflatedMax:      in.limits.InflatedBytes,
		InflatedRatioMax: in.limits.InflatedRatio,
	}
}

// addInflated counts inflated bytes and refuses a pack that has too many.
func (in *Ingest) addInflated(size int64) error {
	sum := in.inflated.Add(size)
	if most := max(in.limits.InflatedBytes, in.limits.InflatedRatio*in.intake.size.Load()); sum > most {
		return &pack.LimitError{Limit: "inflated size", Value: sum, Max: most}
	}
	return nil
}

// keep records examined objects: in the index of the segment, or in memory while the pack is there.
func (in *Ingest) keep(ctx context.Context, found []finding) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.intake.segment == nil {
		in.found = append(in.found, found...)
		return nil
	}
	return in.addRows(ctx, found)
}

// spill moves the pack from memory to a segment, unless it is there already.
func (in *Ingest) spill(ctx context.Context) error {
	if in.intake.segment != nil {
		return nil
	}
	in.memory.spare(ctx)
	in.links.bound(min(in.options.LinkCount, in.memory.links()))
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.intake.spill(); err != nil {
		return err
	}
	err := in.addRows(ctx, in.found)
	in.found = nil
	return err
}

// addRows adds the rows of examined objects to the segment. mu is held.
func (in *Ingest) addRows(ctx context.Context, found []finding) error {
	for i := range found {
		if err := in.intake.segment.AddRow(ctx, found[i].row); err != nil {
			return err
		}
	}
	return nil
}
