package hot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// worth says from which number of lookups on a copy of so many bytes is worth making, over a store
// that is near. A lookup there takes as long as copying some eight rows. The first step is one read
// of the store. A layer of few rows is copied from fewLookups on, but only once it is frozen: until
// then its copy would soon be old.
var worth = []struct{ lookups, bytesMax int64 }{
	{128, onePage},
	{1024, 4 << 20},
	{4096, math.MaxInt64},
}

// In place of a number of bytes they bound the rows.
const (
	onePage = 0
	fewRows = -1
)

// fewLookups is the number of lookups from which a copy of few rows is worth making. Most of them
// may have come before the layer was frozen.
const fewLookups = 8

// fewRowsMax is the number of objects that fewRows allows.
const fewRowsMax = 64

// demand counts a lookup in a layer that is not copied, and copies it when that is worth it.
func (l *Layer) demand(ctx context.Context, frozen bool) error {
	if l.copies.options.Remote {
		return l.Load(ctx, frozen)
	}
	count := l.lookups.Add(1)
	if frozen && count >= fewLookups && !l.asked.Swap(true) {
		return l.load(ctx, fewRows, frozen)
	}
	for _, step := range worth {
		if count == step.lookups {
			return l.load(ctx, step.bytesMax, frozen)
		}
	}
	return nil
}

// Load makes a copy of the layer, unless there is one or the layer is too large. frozen says that
// the layer takes no more writes. Errors: those of the store; that of ctx.
func (l *Layer) Load(ctx context.Context, frozen bool) error {
	return l.load(ctx, l.copies.options.LayerBytesMax, frozen)
}

// settled reports whether there is a copy, or cannot be one.
func (l *Layer) settled() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.rows != nil || l.refused || l.gone.Load()
}

func (l *Layer) load(ctx context.Context, bytesMax int64, frozen bool) error {
	if l.settled() {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.settled() {
		return nil
	}
	r := &loading{layer: l, bytesMax: min(bytesMax, l.copies.options.LayerBytesMax), rows: newRows()}
	err := r.run(ctx)
	l.mu.Lock()
	switch {
	case err == nil && !l.gone.Load():
		l.rows, l.bytes = r.rows, r.bytes
		l.number, l.loaded = r.number, r.number
		if frozen {
			l.seal()
		}
	case errors.Is(err, errLarge) && bytesMax >= l.copies.options.LayerBytesMax, errors.Is(err, segment.ErrFormat):
		l.refused = true
	}
	l.mu.Unlock()
	switch {
	case err == nil:
		l.copies.account(l)
		return nil
	case errors.Is(err, errLarge):
		return nil
	case errors.Is(err, segment.ErrFormat):
		if l.copies.options.Damaged != nil {
			l.copies.options.Damaged(l.id, err)
		}
		return nil
	default:
		return fmt.Errorf("copy hot layer %s: %w", l.id, err)
	}
}

var errLarge = errors.New("hot: the layer is too large to be copied")

// loading is a copy that is being made. For one goroutine.
type loading struct {
	layer    *Layer
	bytesMax int64
	number   uint64
	rows     *Rows
	bytes    int64
}

// run reads a layer, in one read of the store if it is small.
//
// Reads after the first see later instants. So the copy may hold more than the additions up to its
// number, which does no harm; and graph rows and filters are read after the objects, so that none
// is missing of a commit that came meanwhile.
func (r *loading) run(ctx context.Context) error {
	l := r.layer
	objects, graph, filters := Range(TableObject, l.id), Range(TableGraph, l.id), Range(TableFilter, l.id)
	if r.bytesMax == fewRows {
		objects.Limit = fewRowsMax
	}
	first, err := l.copies.keys.Read(ctx, kv.ReadSet{
		Keys: [][]byte{CountKey(l.id)}, Ranges: []kv.ScanOptions{objects, graph, filters},
	})
	if err != nil {
		return err
	}
	if r.number, err = DecodeCount(l.id, first.Values[0]); err != nil {
		return err
	}
	more := false
	for _, page := range first.Pages {
		more = more || page.More
	}
	pages := first.Pages
	if more {
		pages = pages[:1]
	}
	for _, page := range pages {
		if err := r.add(page); err != nil {
			return err
		}
	}
	if !more {
		return nil
	}
	if r.bytesMax <= onePage {
		return errLarge
	}
	if first.Pages[0].More {
		if err := r.readAll(ctx, rest(objects, first.Pages[0])); err != nil {
			return err
		}
	}
	return r.readAll(ctx, []kv.ScanOptions{graph, filters})
}

// rangesMax bounds the ranges of one read, which returns at most a page of each: 4 MiB together.
const rangesMax = 16

// rest splits the keys behind a page of objects: IDs are spread evenly.
func rest(keys kv.ScanOptions, page kv.Page) []kv.ScanOptions {
	last := page.Pairs[len(page.Pairs)-1].Key
	begin := append(bytes.Clone(last), 0)
	head := len(keys.Start)
	place := int(binary.BigEndian.Uint16(append(bytes.Clone(last[head:]), 0, 0)))
	var parts []kv.ScanOptions
	for i := 1; i < rangesMax; i++ {
		next := place + (1<<16-place)*i/rangesMax
		bound := binary.BigEndian.AppendUint16(bytes.Clone(keys.Start), uint16(next))
		if bytes.Compare(bound, begin) <= 0 {
			continue
		}
		parts = append(parts, kv.ScanOptions{Start: begin, End: bound})
		begin = bound
	}
	return append(parts, kv.ScanOptions{Start: begin, End: keys.End})
}

// readAll adds the rows of ranges.
func (r *loading) readAll(ctx context.Context, ranges []kv.ScanOptions) error {
	for len(ranges) > 0 {
		n := min(len(ranges), rangesMax)
		rows, err := r.layer.copies.keys.Read(ctx, kv.ReadSet{Ranges: ranges[:n]})
		if err != nil {
			return err
		}
		next := ranges[n:]
		for i, page := range rows.Pages {
			if err := r.add(page); err != nil {
				return err
			}
			if page.More {
				last := page.Pairs[len(page.Pairs)-1].Key
				next = append(next, kv.ScanOptions{Start: append(bytes.Clone(last), 0), End: ranges[i].End})
			}
		}
		ranges = next
	}
	return nil
}

// add adds a page of one table. Objects come before the rows of commits; a row without its commit
// is left to fsck.
func (r *loading) add(page kv.Page) error {
	for _, pair := range page.Pairs {
		id, ok := IDOfKey(pair.Key)
		if !ok {
			continue
		}
		isObject := pair.Key[0] == TableObject
		if r.rows.has(id) == isObject {
			continue
		}
		if isObject {
			r.bytes += rowCost
		}
		r.rows.putPart(id, pair.Key[0], pair.Value)
		if r.bytes += int64(len(pair.Value)); r.bytes > r.bytesMax && r.bytesMax > onePage {
			return errLarge
		}
	}
	return nil
}

// fill reads the rows of the objects that are bare.
func (l *Layer) fill(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.RLock()
	ids := make([]object.ID, 0, len(l.bare))
	for id := range l.bare {
		ids = append(ids, id)
	}
	l.mu.RUnlock()
	const tables = 3
	for len(ids) > 0 {
		n := min(len(ids), kv.ReadCountMax/tables)
		set := kv.ReadSet{Keys: make([][]byte, 0, tables*n)}
		for _, id := range ids[:n] {
			set.Keys = append(set.Keys, ObjectKey(l.id, id), GraphKey(l.id, id), FilterKey(l.id, id))
		}
		rows, err := l.copies.keys.Read(ctx, set)
		if err != nil {
			return fmt.Errorf("read %d objects of hot layer %s: %w", n, l.id, err)
		}
		l.mu.Lock()
		for i, id := range ids[:n] {
			found := rows.Values[tables*i:]
			if found[0] != nil && l.rows != nil {
				l.put(id, Row{Value: found[0], Graph: found[1], Filter: found[2]})
			}
		}
		l.mu.Unlock()
		l.copies.account(l)
		ids = ids[n:]
	}
	return nil
}
