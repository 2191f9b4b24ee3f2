package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/maintain"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/span"
	"packhorse/refs"
)

// MaintainOptions are the settings of [Host.Maintain]. Zero times take those of the host's
// settings; a negative time is none.
type MaintainOptions struct {
	// Grace is the time that unreachable objects stay, ReaderGrace the time that unused files stay. A
	// Grace that is given also bounds the time for which the past can be read, unless the organization
	// has its own.
	Grace, ReaderGrace time.Duration
	// All makes one segment of each repository's own objects, instead of a few that grow
	// geometrically.
	All bool
	// Settle does so for repositories much of which was packed a little at a time; see
	// [repack.CompactOptions].
	Settle bool
	// PruneShare is the least share of unreachable objects for which layers are rewritten.
	PruneShare float64
	// Waiting, if not nil, is called when another maintenance is under way, whose end is waited for.
	Waiting func()
	// Begins, if not nil, is called with the name of each repository before it is maintained.
	Begins func(org, repository string)
	packgen.RepackOptions
}

// Maintained is what [Host.Maintain] did for one repository.
type Maintained struct {
	Org, Name string
	maintain.Report
	// Err is the failure of the repository's maintenance; the other repositories are maintained
	// nevertheless.
	Err error
}

// Maintain maintains every repository in turn, waits for bitmaps and path filters, and then removes
// the data that no repository uses any more. It may run while the host serves; only one maintenance
// runs at a time.
//
// An error ends the walk, as does a store that is away; another failure of one repository is in its
// [Maintained].
func (h *Host) Maintain(ctx context.Context, options MaintainOptions) iter.Seq2[Maintained, error] {
	settings := h.maintenance
	options.Room = h.space.Room
	keep := settings.KeepHistory
	if options.Grace != 0 {
		keep = min(keep, max(options.Grace, 0))
	}
	options.Grace = cmp.Or(options.Grace, settings.Grace)
	options.ReaderGrace = cmp.Or(options.ReaderGrace, settings.ReaderGrace)
	settings.Grace, settings.ReaderGrace = options.Grace, options.ReaderGrace
	settings.SetDefaults()
	settings.KeepHistory = keep
	return func(yield func(Maintained, error) bool) {
		if err := h.beginMaintenance(ctx, options.Waiting); err != nil {
			yield(Maintained{}, err)
			return
		}
		defer h.endMaintenance()
		trimmed := h.names.TrimFeeds(ctx, h.now().Add(-max(settings.JournalAge, settings.Grace)))
		for pair, err := range h.keys.Scan(ctx, catalog.Records(refs.RepoID{})) {
			if err != nil {
				yield(Maintained{}, fmt.Errorf("scan repositories: %w", err))
				return
			}
			id, ok := catalog.RecordOf(pair.Key)
			if !ok {
				continue // fsck reports it
			}
			done, err := h.maintainOne(ctx, id, pair.Value, &options, &settings)
			if errors.Is(err, refs.ErrRepositoryNotFound) || errors.Is(err, odb.ErrNoPool) {
				continue // deleted since the scan began
			}
			if err := cmp.Or(ctx.Err(), away(err)); err != nil {
				yield(Maintained{}, err)
				return
			}
			done.Err = err
			if !yield(done, nil) {
				return
			}
		}
		awaited := errors.Join(h.auxiliaries.Await(ctx), h.histories.Await(ctx))
		if err := errors.Join(trimmed, awaited, h.sweep(ctx, &settings)); err != nil {
			yield(Maintained{}, err)
		}
	}
}

// away returns err if it says that the store cannot be reached: what follows would meet the same.
func away(err error) error {
	if errors.Is(err, kv.ErrUnavailable) {
		return err
	}
	return nil
}

// maintainOne maintains the repository of a record. One that was deleted since the record was read
// has no journal: refs.ErrRepositoryNotFound.
func (h *Host) maintainOne(
	ctx context.Context, id refs.RepoID, stored []byte, options *MaintainOptions, settings *maintain.Settings,
) (Maintained, error) {
	rec, err := decodeRecord(id, stored)
	if err != nil {
		return Maintained{}, err
	}
	keep := h.window(rec.Org, settings.KeepHistory)
	job := maintain.Job{
		Objects: h.objects, Names: h.names, Repo: id, Pool: rec.Pool, Now: h.now,
		Grace: settings.Grace, KeepHistory: keep, JournalAge: settings.JournalAge, PruneShare: options.PruneShare,
		Compact: repack.CompactOptions{RepackOptions: options.RepackOptions, All: options.All, Settle: options.Settle},
	}
	job.Compact.Owner = rec.Org
	done := Maintained{Org: rec.Org, Name: rec.Name}
	if options.Begins != nil {
		options.Begins(rec.Org, rec.Name)
	}
	done.Report, err = job.Run(h.processors.Background(ctx, fair.Tenant{Org: rec.Org, Repo: rec.Name}))
	if err = errors.Join(err, h.quotas.Changed(context.WithoutCancel(ctx), rec.Pool)); err != nil {
		err = fmt.Errorf("maintain repository %s: %w", id, err)
	}
	return done, err
}

// sweep purges the repositories that were deleted long enough ago, removes obsolete layers, files
// and pools, what servers that have gone and deleted repositories have left, and expired
// idempotency records.
func (h *Host) sweep(ctx context.Context, settings *maintain.Settings) error {
	swept := h.purgeDue(ctx, settings.KeepHistory)
	_, err := h.objects.Sweep(ctx, settings.ReaderGrace)
	swept = errors.Join(swept, err, h.objects.Collect(ctx, settings.ReaderGrace), h.removed.Sweep(ctx))
	if err := h.names.DropReceipts(ctx); err != nil {
		return errors.Join(swept, fmt.Errorf("remove expired idempotency records: %w", err))
	}
	return swept
}

// beginMaintenance waits until no other maintenance runs in this process. That guards no invariant:
// it keeps work from being done twice.
//
// waiting, if not nil, is called when it has to.
func (h *Host) beginMaintenance(ctx context.Context, waiting func()) error {
	select {
	case h.maintaining <- struct{}{}:
		return nil
	default:
	}
	if waiting != nil {
		waiting()
	}
	select {
	case h.maintaining <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Host) endMaintenance() { <-h.maintaining }

// MaintenanceStats returns the counters of background maintenance.
func (h *Host) MaintenanceStats() maintain.Stats { return h.worker.Stats() }

// background implements maintain.Host.
type background struct{ *Host }

// Compact implements [maintain.Host].
func (b background) Compact(
	ctx context.Context, pool odb.PoolID, options repack.CompactOptions,
) (done repack.Compacted, err error) {
	if err := b.beginMaintenance(ctx, nil); err != nil {
		return repack.Compacted{}, err
	}
	defer b.endMaintenance()
	ctx, s := span.Begin(span.With(ctx, b.tracer, span.Link{}), "maintenance compaction")
	if s != nil {
		s.Text("packhorse.pool.id", pool.String())
		defer func() {
			s.Count("packhorse.layers", int64(done.LayerCount))
			s.Count("packhorse.objects", int64(done.ObjectCount))
			s.End(err)
		}()
	}
	options.Room = b.space.Room
	ctx = b.processors.Background(ctx, fair.Tenant{Org: options.Owner})
	done, err = repack.Compact(ctx, b.objects, pool, options)
	err = errors.Join(err, b.quotas.Changed(context.WithoutCancel(ctx), pool))
	if errors.Is(err, odb.ErrNoPool) { // the repository has been deleted
		return repack.Compacted{}, nil
	}
	return done, err
}

// roundKey holds when the last round of maintenance began that came to its end.
var roundKey = []byte{tableRound}

// UntilRound implements [maintain.Host]. The clock of a store begins when it is first served.
func (b background) UntilRound(ctx context.Context, interval time.Duration) (time.Duration, error) {
	now := b.now()
	value, err := b.keys.Get(ctx, roundKey)
	if errors.Is(err, kv.ErrNotFound) {
		return interval, b.storeRound(ctx, now)
	}
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: the time of the last round has %d bytes", ErrCorrupt, len(value))
	}
	last := time.Unix(0, int64(binary.BigEndian.Uint64(value)))
	return last.Add(interval).Sub(now), nil
}

// storeRound stores when a round began; that this survives a crash is not waited for.
func (b background) storeRound(ctx context.Context, begun time.Time) error {
	batch := kv.NewBatch()
	batch.Put(roundKey, binary.BigEndian.AppendUint64(nil, uint64(begun.UnixNano())))
	_, err := b.keys.Apply(ctx, batch)
	return err
}

// Round implements [maintain.Host]. One that is cancelled counts for nothing: the next start begins
// it again.
func (b background) Round(ctx context.Context, options packgen.RepackOptions) error {
	begun := b.now()
	err := b.round(ctx, options)
	if ctx.Err() != nil {
		return err
	}
	return cmp.Or(err, b.storeRound(ctx, begun))
}

func (b background) round(ctx context.Context, options packgen.RepackOptions) (err error) {
	ctx, s := span.Begin(span.With(ctx, b.tracer, span.Link{}), "maintenance round")
	repositories := int64(0)
	defer func() {
		s.Count("packhorse.repositories", repositories)
		s.End(err)
	}()
	var failed, waits error
	for done, err := range b.Maintain(ctx,
		MaintainOptions{RepackOptions: options, PruneShare: b.maintenance.PruneShare, Settle: true}) {
		if err != nil {
			return err
		}
		repositories++
		if maintain.IsPostponed(done.Err) {
			waits = done.Err
		} else {
			failed = errors.Join(failed, done.Err)
		}
	}
	return cmp.Or(failed, waits)
}

// Sweep implements [maintain.Host].
func (b background) Sweep(ctx context.Context) error {
	if err := b.beginMaintenance(ctx, nil); err != nil {
		return err
	}
	defer b.endMaintenance()
	ctx, s := span.Begin(span.With(ctx, b.tracer, span.Link{}), "maintenance sweep")
	err := b.sweep(ctx, &b.maintenance)
	s.End(err)
	return err
}
