package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"iter"

	"packhorse/engine/cluster"
	"packhorse/engine/identity"
	"packhorse/engine/organization"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
)

const (
	// batchBytes and batchCount are the size of a batch of rows.
	batchBytes = 4 << 20
	batchCount = 10_000
	// tellEvery is the number of rows between two reports.
	tellEvery = 1000
)

// ranges are all rows but those that belong to one pair of stores, in the order of their keys.
func ranges() []kv.ScanOptions {
	all, start := []kv.ScanOptions{}, []byte(nil)
	for _, table := range []byte{organization.Table, identity.Table, cluster.Table, intent.Table} { // in ascending order
		all = append(all, kv.ScanOptions{Start: start, End: []byte{table}})
		start = []byte{table + 1}
	}
	return append(all, kv.ScanOptions{Start: start})
}

// summed is the number, the size and the hash of rows.
type summed struct {
	count, bytes int64
	hash         hash.Hash
}

func newSummed() *summed { return &summed{hash: sha256.New()} }

// add takes the next row. Sizes make the hashed bytes of different rows different.
func (s *summed) add(pair kv.Pair) {
	s.count++
	s.bytes += int64(len(pair.Key) + len(pair.Value))
	var sizes [8]byte
	binary.BigEndian.PutUint32(sizes[:4], uint32(len(pair.Key)))
	binary.BigEndian.PutUint32(sizes[4:], uint32(len(pair.Value)))
	for _, part := range [][]byte{sizes[:], pair.Key, pair.Value} {
		_, _ = s.hash.Write(part) // a hash takes everything
	}
}

// copyRows makes the rows of the target equal to those of the source, whatever an earlier run has
// left there, and hashes those of the source.
func (m *migration) copyRows(ctx context.Context) error {
	sum := newSummed()
	w := &rowWriter{migration: m, batch: kv.NewBatch()}
	for _, span := range ranges() {
		if err := m.copyRange(ctx, span, w, sum); err != nil {
			return fmt.Errorf("copy rows: %w", err)
		}
	}
	if err := w.flush(ctx); err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	m.report.RowCount, m.report.RowBytes, m.report.Sum = sum.count, sum.bytes, [sha256.Size]byte(sum.hash.Sum(nil))
	return nil
}

// copyRange walks both stores together, in the order of their keys. The walk of the target is never
// behind what is written: rows are written up to the one that the source is at.
func (m *migration) copyRange(ctx context.Context, span kv.ScanOptions, w *rowWriter, sum *summed) error {
	source, stopSource := pull(m.from.Keys.Scan(ctx, span))
	defer stopSource()
	target, stopTarget := pull(m.to.Keys.Scan(ctx, span))
	defer stopTarget()
	for {
		if err := errors.Join(source.err, target.err); err != nil || !source.more && !target.more {
			return err
		}
		order := bytes.Compare(source.pair.Key, target.pair.Key)
		switch {
		case !target.more:
			order = -1
		case !source.more:
			order = 1
		}
		if order > 0 {
			w.batch.Delete(target.pair.Key)
		} else if order < 0 || !bytes.Equal(source.pair.Value, target.pair.Value) {
			w.batch.Put(source.pair.Key, source.pair.Value)
		}
		if order <= 0 {
			sum.add(source.pair)
			if m.report.RowCount, m.report.RowBytes = sum.count, sum.bytes; sum.count%tellEvery == 0 {
				m.tell()
			}
			source.step()
		}
		if order >= 0 {
			target.step()
		}
		if err := w.flushFull(ctx); err != nil {
			return err
		}
	}
}

// pulled is a walk over rows, and the row that it is at.
type pulled struct {
	next func() (kv.Pair, error, bool)
	pair kv.Pair
	err  error
	more bool
}

// pull begins a walk, at its first row.
func pull(rows iter.Seq2[kv.Pair, error]) (p *pulled, stop func()) {
	p = new(pulled)
	p.next, stop = iter.Pull2(rows)
	p.step()
	return p, stop
}

// step goes to the next row.
func (p *pulled) step() { p.pair, p.err, p.more = p.next() }

// rowWriter changes rows of the target.
type rowWriter struct {
	*migration
	batch *kv.Batch
}

func (w *rowWriter) flushFull(ctx context.Context) error {
	if w.batch.Size() < batchBytes && w.batch.Count() < batchCount {
		return nil
	}
	return w.flush(ctx)
}

// flush applies the batch, if the target is this run's.
func (w *rowWriter) flush(ctx context.Context) error {
	changed := w.batch.Count()
	if changed == 0 {
		return nil
	}
	w.batch.Require(identity.Key(), w.marks.to.Encode())
	if err := w.apply(ctx, w.to, w.batch); err != nil {
		return err
	}
	w.batch = kv.NewBatch()
	w.report.ChangedCount += int64(changed)
	return nil
}

// verify reads the rows of the target back, and compares them with those of the source.
func (m *migration) verify(ctx context.Context) error {
	sum := newSummed()
	for _, span := range ranges() {
		for pair, err := range m.to.Keys.Scan(ctx, span) {
			if err != nil {
				return fmt.Errorf("verify rows: %w", err)
			}
			sum.add(pair)
			if m.report.VerifiedCount = sum.count; sum.count%tellEvery == 0 {
				m.tell()
			}
		}
	}
	if sum.count != m.report.RowCount || [sha256.Size]byte(sum.hash.Sum(nil)) != m.report.Sum {
		return fmt.Errorf("verify rows: %s has %d rows with the hash %x, and %s %d with %x", m.from.Place, m.report.RowCount,
			m.report.Sum, m.to.Place, sum.count, sum.hash.Sum(nil))
	}
	return nil
}
