package odb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"packhorse/odb/bloom"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// Constants that tests lean on.
const (
	WholeBytes = segment.WholeMax
	BlockSize  = segment.BlockSizeMax
)

// CoverFrom makes bitmaps answer requests of clients that have something from that many commits on.
func (s *Store) CoverFrom(count int) { s.options.CoverCount = count }

// OpenViews returns how many views of requests are not closed.
func (s *Store) OpenViews() int64 { return s.traffic.views.Load() }

// PathFilter returns the path filter of a commit, nil if it has none.
func PathFilter(ctx context.Context, v *View, commit object.ID) ([]byte, error) {
	filters, err := v.OpenFilters(ctx)
	if err != nil {
		return nil, err
	}
	defer filters.Close()
	return filters.Find(ctx, commit)
}

// ReadFilters makes a filter file of the rows and bytes of its sections, with IDs of its own,
// and returns the filter of each row, nil for one that is found damaged. Both ways of asking a
// filter must agree.
func ReadFilters(ctx context.Context, s *Store, rows, filters []byte) ([][]byte, error) {
	rows = rows[:len(rows)/segment.FilterRowSize*segment.FilterRowSize]
	var out bytes.Buffer
	id := segment.NewLayerID()
	sections := segment.NewSectionWriter(&out, id, 0)
	count := len(rows) / segment.FilterRowSize
	var ids []object.ID
	var fanout [256]uint32
	sections.Begin(segment.SectionIDs)
	for i := range count {
		ids = append(ids, object.ID{18: byte(i >> 8), 19: byte(i)})
		sections.Add(ids[i][:])
	}
	for i := range fanout {
		fanout[i] = uint32(count)
	}
	sections.AddFanout(&fanout)
	sections.Begin(segment.SectionFilterRows)
	for i := range count {
		sections.Add(rows[i*segment.FilterRowSize : (i+1)*segment.FilterRowSize])
	}
	sections.Begin(segment.SectionFilterBytes)
	sections.AddBytes(filters)
	footer, err := sections.Finish(count, segment.FilterMagic)
	if err != nil {
		return nil, err
	}
	out.Write(footer)
	g, err := segment.OpenFile(ctx, s.env, id, memoryFile{bytes.NewReader(out.Bytes())}, segment.FilterMagic)
	if err != nil {
		return nil, err
	}
	found := make([][]byte, count)
	for i := range ids {
		f, ok, err := g.PathFilter(ctx, ids[i])
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil || !ok || len(f) == 0 {
			return nil, fmt.Errorf("filter %d: %d bytes, %v, %w", i, len(f), ok, err)
		}
		probe := f.Probe()
		for _, path := range []string{"", "a", "a/b", string(rows)} {
			if key := bloom.NewKey(path); f.Has(key) != probe.Has(key) {
				return nil, fmt.Errorf("filter %d has %q and has not", i, path)
			}
		}
		found[i] = f
	}
	return found, nil
}

// memoryFile is a file that is sealed.
type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

// EncodeHotFilter returns a path filter as the hot tier stores it, DecodeHotFilter one that is
// stored so.
func EncodeHotFilter(id object.ID, filter []byte) []byte { return encodeHotFilter(id, filter) }

// DecodeHotFilter is the other way of EncodeHotFilter.
func DecodeHotFilter(id object.ID, value []byte) ([]byte, error) { return decodeHotFilter(id, value) }

// AddPack quarantines a pack as a segment. It is the plainest way to do so, for packs that fit in
// memory several times.
//
// Two lists, if given, are the tips of the segment's outline and what it names outside.
func (q *Quarantine) AddPack(ctx context.Context, packed []byte, lists ...[]object.ID) error {
	w, err := segment.NewWriter(ctx, q.store.env)
	if err != nil {
		return err
	}
	if _, err := w.Write(packed); err != nil {
		return errors.Join(err, w.Abort())
	}
	objects, err := resolvePlainly(packed)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	for _, o := range objects {
		if err := w.AddRow(ctx, o.row); err != nil {
			return errors.Join(err, w.Abort())
		}
		if o.row.Type == object.TypeCommit {
			row, err := segment.ParseGraphRow(o.data)
			if err == nil {
				err = w.AddGraph(ctx, o.row.ID, &row)
			}
			if err != nil {
				return errors.Join(err, w.Abort())
			}
		}
	}
	if len(lists) == 2 {
		w.SetSummary(&segment.Summary{Tips: lists[0], External: lists[1]})
	}
	segment, err := w.Finish(ctx)
	if err != nil {
		return err
	}
	q.AddSegment(segment)
	return nil
}

// AddHot quarantines an object as it comes in a small pack: deflated, whole or as a delta against
// base.
func (q *Quarantine) AddHot(
	ctx context.Context, id object.ID, t object.Type, size int64, base object.ID, inflated []byte,
) error {
	return q.AddPacked(ctx, &HotValue{
		ID: id, Type: t, Size: size, Base: base, ContentSize: int64(len(inflated)),
		Payload: pack.Deflate(nil, inflated, pack.LevelDefault),
	}, nil)
}

type plainObject struct {
	row  segment.Row
	data []byte
}

func resolvePlainly(packed []byte) (map[int64]*plainObject, error) {
	r := pack.NewReader(bytes.NewReader(packed), pack.ReaderOptions{})
	objects := make(map[int64]*plainObject)
	ids := make(map[object.ID]int64)
	var waiting []pack.Entry
	programs := make(map[int64][]byte)
	done := func(e pack.Entry, t object.Type, data []byte, base int64) error {
		id, err := object.Hash(t, data)
		objects[e.Offset] = &plainObject{data: data, row: segment.Row{
			ID: id, Type: t, Size: int64(len(data)), Offset: e.Offset, PackedSize: e.PackedSize, Base: base, CRC32: e.CRC32,
		}}
		ids[id] = e.Offset
		return err
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		content, err := r.ReadContent(nil)
		if err != nil {
			return nil, err
		}
		if e = r.Entry(); e.Kind.IsDelta() {
			programs[e.Offset] = content
			waiting = append(waiting, e)
		} else if err := done(e, e.Kind.Type(), content, -1); err != nil {
			return nil, err
		}
	}
	for len(waiting) > 0 {
		var left []pack.Entry
		for _, e := range waiting {
			at, ok := e.BaseOffset, true
			if e.Kind == pack.KindRefDelta {
				at, ok = ids[e.BaseID]
			}
			base := objects[at]
			if !ok || base == nil {
				left = append(left, e)
				continue
			}
			data, err := delta.Apply(nil, base.data, programs[e.Offset], 1<<40)
			if err == nil {
				err = done(e, base.row.Type, data, at)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(left) == len(waiting) {
			return nil, fmt.Errorf("%d deltas without a base", len(left))
		}
		waiting = left
	}
	return objects, nil
}

// DataRegions returns the data regions of the view's segments, as they lie.
func DataRegions(ctx context.Context, v *View) (stored [][]byte, err error) {
	for _, l := range v.Segments() {
		g, err := l.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		data := make([]byte, g.DataSize)
		err = segment.ReadFullAt(g.Handle, data, 0)
		l.Release(g)
		if err != nil {
			return nil, err
		}
		stored = append(stored, data)
	}
	return stored, nil
}

// LookupMany returns those of the sorted ids that the view's segments hold, as the batch lookup and
// as single lookups find them.
func LookupMany(ctx context.Context, v *View, ids []object.ID) (together, single []object.ID, err error) {
	for _, l := range v.Segments() {
		g, err := l.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer l.Release(g)
		err = g.LookupMany(ctx, ids, func(index int, ordinal uint32) error {
			id, err := g.ID(ctx, ordinal)
			if id != ids[index] {
				return fmt.Errorf("ordinal %d is %s, not %s", ordinal, id, ids[index])
			}
			together = append(together, id)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, id := range ids {
			_, ok, err := g.Lookup(ctx, id)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				single = append(single, id)
			}
		}
	}
	return together, single, nil
}

// Payload returns the compressed bytes of an entry.
func Payload(ctx context.Context, v *View, e *StoredEntry) ([]byte, error) {
	var b bytes.Buffer
	err := v.CopyPacked(ctx, &b, e)
	return b.Bytes(), err
}

// Depth returns how many deltas lie between an object and its whole base.
func Depth(ctx context.Context, v *View, id object.ID) (int, error) {
	at, err := v.Find(ctx, id)
	if err != nil {
		return 0, err
	}
	for depth := 0; ; depth++ {
		s, err := at.layer.step(ctx, at)
		if err != nil || !s.Delta {
			return depth, err
		}
		if at, err = v.baseOf(ctx, &at, &s); err != nil {
			return 0, err
		}
	}
}

// DropHot puts into b what maintenance does when it drops objects: a new hot layer with those of
// ids, a new manifest, a higher drop count. The former hot layer keeps its keys for those who have
// it pinned.
func (s *Store) DropHot(ctx context.Context, b *kv.Batch, pool PoolID, ids ...object.ID) error {
	m, raw, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return err
	}
	b.Require(manifestKey(pool), raw)
	old, _ := m.hot()
	next := segment.NewLayerID()
	for _, id := range ids {
		value, err := s.keys.Get(ctx, objectKey(old, id))
		if err != nil {
			return err
		}
		b.Put(objectKey(next, id), value)
	}
	for i := range m.layers {
		if m.layers[i].id == old {
			m.layers[i].id = next
		}
	}
	m.version++
	m.prunes++
	b.Put(manifestKey(pool), m.encode(pool))
	return nil
}

// AddAuxiliaries puts a manifest into b whose hot layer has count auxiliary files, which nothing
// asks for.
func (s *Store) AddAuxiliaries(ctx context.Context, b *kv.Batch, pool PoolID, count int) error {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return err
	}
	for range count {
		m.layers[0].auxiliaries = append(m.layers[0].auxiliaries,
			manifestLayer{kind: segment.KindGraph, id: segment.NewLayerID()})
	}
	m.version++
	b.Put(manifestKey(pool), m.encode(pool))
	return nil
}

// Freeze ends the writing to a pool's last hot layer.
func (s *Store) Freeze(ctx context.Context, pool PoolID) error { return s.freeze(ctx, pool) }

// LeaveAll takes every layer but the last hot one out of a pool's manifest.
func (s *Store) LeaveAll(ctx context.Context, pool PoolID) error {
	return s.changeManifest(ctx, pool, func(m *manifest, _ *kv.Batch) error {
		m.layers = m.layers[len(m.layers)-1:]
		m.prunes++
		return nil
	})
}

// IsBlockStream reports whether a blob is stored as a stream of blocks with a table.
func (v *View) IsBlockStream(ctx context.Context, id object.ID) (bool, error) {
	e, err := v.Entry(ctx, id)
	return e.record.Blocks, err
}

// AwaitSettled returns when the files of quarantines that were told Settled are in their place. No
// other may be told meanwhile.
func (s *Store) AwaitSettled() { s.settlers.Wait() }

// AwaitLoans asks what every fork may read, and returns when that has been found out and written
// down, where it can be.
func (s *Store) AwaitLoans() {
	for pair, err := range s.keys.Scan(s.closing,
		kv.ScanOptions{Start: []byte{tableManifest}, End: kv.PrefixEnd([]byte{tableManifest})}) {
		if err != nil {
			break
		}
		_ = s.askLoan(PoolID(pair.Key[1:]))
	}
	s.background.Wait()
}

func (s *Store) askLoan(pool PoolID) error {
	v, err := s.View(s.closing, pool)
	if err != nil {
		return err
	}
	defer v.Close()
	if v.borrows() {
		of, err := v.loan(s.closing, v.lender())
		if err != nil {
			return err
		}
		_, err = s.loans.ask(s.closing, v, of)
		return err
	}
	return nil
}

// HoldLoanWalks lets no visibility walk begin until release is called.
func (s *Store) HoldLoanWalks() (release func()) {
	var all []func()
	for i := range s.loans.turns.placesMax {
		release, err := s.loans.turns.take(s.closing, fmt.Sprintf("held %d", i))
		if err != nil {
			panic(err)
		}
		all = append(all, release)
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// LoanWaiterCount returns the number of requests that wait for a visibility set.
func (s *Store) LoanWaiterCount() int { return int(s.loans.awaited.Load()) }

// KnownLoans returns how many forks are known that may read something, and what they count for in
// bytes.
func (s *Store) KnownLoans() (loanCount, size int) {
	s.loans.mu.Lock()
	defer s.loans.mu.Unlock()
	return len(s.loans.known), s.loans.bytes
}

// LayerCount returns how many layers a pool has.
func (s *Store) LayerCount(ctx context.Context, pool PoolID) (int, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	return len(m.layers), err
}

// BorrowedLayerCount returns how many layers of a pool are not its own.
func (s *Store) BorrowedLayerCount(ctx context.Context, pool PoolID) (int, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return 0, err
	}
	if l := newLending(&m); l != nil {
		return len(l.layers), nil
	}
	return 0, nil
}

// DecodeBorrowed decodes the file of a visibility set, and puts it together
// again.
func DecodeBorrowed(id segment.LayerID, data []byte) ([]byte, error) {
	set, err := decodeBorrowed(id, data)
	if err != nil {
		return nil, err
	}
	return set.encode(id), nil
}

// EncodeBorrowed returns auxiliary files of both forms, by what is in them: tips, or the ordinals
// of a segment that words have and loose objects.
func EncodeBorrowed(id segment.LayerID, ids []object.ID, count int, words ...uint64) (tips, sets []byte) {
	byTips := borrowedSet{tips: newIDList(ids)}
	bySets := borrowedSet{
		known: true, loose: newIDList(ids), segments: map[segment.LayerID]lentSegment{id: newLentSegment(count, words)},
	}
	return byTips.encode(id), bySets.encode(id)
}

// SealBorrowed appends the checksum to what EncodeBorrowed returns without it.
func SealBorrowed(body []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}

// LoanFile returns the name of the file with the visibility set of a pool.
func (s *Store) LoanFile(ctx context.Context, pool PoolID) (string, error) {
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return "", err
	}
	return segment.KindBorrowed.FileName(newLending(&m).auxiliary), nil
}

// ObjectIDs returns the IDs of everything in a pool's layers.
func ObjectIDs(ctx context.Context, v *View) (ids []object.ID, err error) {
	last := object.ID(bytes.Repeat([]byte{0xff}, object.IDSize))
	for _, l := range v.layers {
		err := l.scan(ctx, object.ZeroID, last, func(id object.ID) bool {
			ids = append(ids, id)
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return segment.SortIDs(ids), nil
}
