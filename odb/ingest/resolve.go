package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/progress"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Resolve is pass two, after [Read]. It resolves the remaining deltas, those of a thin pack against
// readable objects of the pool, hashes and checks every object, and verifies that every named
// object exists and has the right type. It returns a quarantine with the objects, which the caller
// closes. No other view sees them.
//
// report may be nil. After an error everything stored is removed; the errors are those of [Read],
// and of the stores.
func (in *Ingest) Resolve(ctx context.Context, report progress.Func) (*odb.Quarantine, Stats, error) {
	if in.quarantine == nil {
		return nil, in.stats, odb.ErrClosed
	}
	start := time.Now()
	in.progress.Report = report
	ctx, cancel := in.clock.limited(ctx)
	defer cancel()
	if err := in.resolve(ctx); err != nil {
		in.Close()
		err = causeOf(ctx, err)
		return nil, in.stats, fmt.Errorf("resolve pack: %w", err)
	}
	q := in.quarantine
	in.quarantine = nil
	in.stats.InflatedBytes = in.inflated.Load()
	in.stats.ResolveTime = time.Since(start)
	return q, in.stats, nil
}

func (in *Ingest) resolve(ctx context.Context) error {
	if err := in.resolveDeltas(ctx); err != nil {
		return err
	}
	clear(in.kept) // each step releases memory that the next ones do not need
	return fair.Do(ctx, in.join)
}

// join checks the objects, once all have been examined, against each other and the pool, and puts
// them into the quarantine.
func (in *Ingest) join(ctx context.Context) error {
	in.progress.Turn = ctx
	if err := in.connect(ctx); err != nil {
		return err
	}
	if err := in.links.close(); err != nil {
		return err
	}
	if in.options.Own == nil {
		if err := in.nested.check(in.limits.TreeDepth); err != nil {
			return err
		}
	}
	in.nested = treeNesting{}
	if err := in.commits.number(ctx, in.view); err != nil {
		return err
	}
	if err := in.settle(ctx); err != nil {
		return err
	}
	if err := in.checkDotfiles(ctx); err != nil {
		return err
	}
	if in.options.Own != nil {
		in.options.Own.objections.log(ctx, in)
	}
	return nil
}

// resolveDeltas resolves the deltas that the lanes have left.
func (in *Ingest) resolveDeltas(ctx context.Context) error {
	in.refs.sort(in.table.count())
	if len(in.refs.heads) > 0 {
		for item, err := range in.links.objects(ctx) {
			if err == nil {
				_, err = in.takeRefs(item.id, item.ordinal)
			}
			if err != nil {
				return err
			}
		}
	}
	left := in.table.unresolved()
	if left > 0 {
		if r := newResolver(in, left); len(r.family.children) > 0 {
			if err := r.run(ctx, nil); err != nil {
				return err
			}
		}
		if err := in.resolveThin(ctx); err != nil {
			return err
		}
	}
	if total := int64(in.table.deltas); total > 0 {
		in.progress.End(phaseResolving, total, total)
	}
	return nil
}

// resolveThin resolves the deltas whose bases are not in the pack.
func (in *Ingest) resolveThin(ctx context.Context) error {
	left := in.table.unresolved()
	if left == 0 {
		return nil
	}
	r := newResolver(in, left)
	var roots []branch
	err := fair.Do(ctx, func(ctx context.Context) (err error) {
		roots, err = in.findBases(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.run(ctx, roots); err != nil {
		return err
	}
	if left = in.table.unresolved(); left == 0 {
		return nil
	}
	unresolved := &UnresolvedError{Count: left}
	for ordinal := range in.refs.untaken() {
		unresolved.Base, err = in.refBase(ordinal)
		break
	}
	return errors.Join(err, unresolved)
}

// unresolved returns the number of entries whose object is not known yet.
func (t *packTable) unresolved() int {
	count := 0
	for _, state := range t.states {
		if !state.done() {
			count++
		}
	}
	return count
}

// entryHeader reads the header of an entry and returns it with its length.
func (in *Ingest) entryHeader(ordinal uint32) (pack.EntryHeader, int, error) {
	offset, size := in.entrySpan(ordinal)
	buf := make([]byte, min(size, pack.EntryHeaderSizeMax))
	if err := segment.ReadFullAt(&in.intake, buf, offset); err != nil {
		return pack.EntryHeader{}, 0, err
	}
	return pack.ParseEntryHeader(buf)
}

func (in *Ingest) checkDepth(offset int64, depth int) error {
	if depth <= in.limits.DeltaDepth {
		return nil
	}
	return fmt.Errorf("entry at offset %d: %w", offset,
		&pack.LimitError{Limit: "delta depth", Value: int64(depth), Max: int64(in.limits.DeltaDepth)})
}

// checkResult refuses a delta whose result is too large.
func (in *Ingest) checkResult(t object.Type, size int64) error {
	if most := in.limits.ObjectBytes; size > most {
		return &pack.LimitError{Limit: "object size", Value: size, Max: most}
	}
	if t != object.TypeBlob && size > in.options.WholeBytes {
		return structureTooLarge(t, size, in.options.WholeBytes)
	}
	return in.addInflated(size)
}

// causeOf returns the cause of the end of ctx, if err only says that ctx ended.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// facts returns the facts that the table holds about an entry.
func (in *Ingest) facts(ordinal uint32) entryFacts {
	t := &in.table
	facts := entryFacts{
		ordinal: ordinal, base: t.bases[ordinal], offset: t.offsets[ordinal], packedSize: t.packedSize(ordinal),
		crc: t.crcs[ordinal], baseOffset: -1,
	}
	if facts.base != segment.NoOrdinal {
		facts.baseOffset = in.baseOffset(facts.base)
	}
	return facts
}
