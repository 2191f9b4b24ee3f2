package refs

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"packhorse/odb/kv"
)

// prefetch is what one [kv.Reader.Read] has found, as a reader of its own, at one instant. Whatever
// that did not ask for, or reaches beyond a page, fails with errNotPrefetched: its callers then
// start again over a snapshot.
type prefetch struct {
	set   kv.ReadSet
	rows  kv.Rows
	byKey map[string]int // index in set.Keys, when these are more than prefetchFew
}

// prefetchFew is how many keys are compared one by one.
const prefetchFew = 8

var errNotPrefetched = errors.New("refs: not prefetched")

func newPrefetch(ctx context.Context, reader kv.Reader, set kv.ReadSet) (*prefetch, error) {
	rows, err := reader.Read(ctx, set)
	if err != nil {
		return nil, err
	}
	return &prefetch{set: set, rows: rows}, nil
}

// index returns the place of a key in the set, -1 if it was not asked for.
func (p *prefetch) index(key []byte) int {
	if len(p.set.Keys) <= prefetchFew {
		return slices.IndexFunc(p.set.Keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if p.byKey == nil {
		p.byKey = make(map[string]int, len(p.set.Keys))
		for i, key := range p.set.Keys {
			p.byKey[string(key)] = i
		}
	}
	if at, ok := p.byKey[string(key)]; ok {
		return at
	}
	return -1
}

// Get implements [kv.Reader].
func (p *prefetch) Get(_ context.Context, key []byte) ([]byte, error) {
	at := p.index(key)
	switch {
	case at < 0:
		return nil, errNotPrefetched
	case p.rows.Values[at] == nil:
		return nil, kv.ErrNotFound
	}
	return p.rows.Values[at], nil
}

// Read implements [kv.Reader].
func (p *prefetch) Read(context.Context, kv.ReadSet) (kv.Rows, error) {
	return kv.Rows{}, errNotPrefetched
}

// page returns the rest of a range that was read to its end, which ends at options.End.
func (p *prefetch) page(options kv.ScanOptions) (kv.Page, error) {
	at := slices.IndexFunc(p.set.Ranges, func(r kv.ScanOptions) bool {
		return bytes.Compare(r.Start, options.Start) <= 0 && bytes.Equal(options.End, r.End)
	})
	if at < 0 || p.rows.Pages[at].More {
		return kv.Page{}, errNotPrefetched
	}
	pairs := p.rows.Pages[at].Pairs
	first, _ := slices.BinarySearchFunc(pairs, options.Start, func(pair kv.Pair, start []byte) int {
		return bytes.Compare(pair.Key, start)
	})
	return kv.Page{Pairs: pairs[first:]}, nil
}

// Scan implements [kv.Reader], forwards.
func (p *prefetch) Scan(_ context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		at := slices.IndexFunc(p.set.Ranges, func(r kv.ScanOptions) bool {
			return bytes.Compare(r.Start, options.Start) <= 0 && bytes.Compare(options.End, r.End) <= 0
		})
		if at < 0 || options.Reverse || len(options.End) == 0 {
			yield(kv.Pair{}, errNotPrefetched)
			return
		}
		count, page := 0, p.rows.Pages[at]
		for _, pair := range page.Pairs {
			if bytes.Compare(pair.Key, options.Start) < 0 {
				continue
			}
			if bytes.Compare(pair.Key, options.End) >= 0 || !yield(pair, nil) {
				return
			}
			if count++; count == options.Limit {
				return
			}
		}
		if page.More {
			yield(kv.Pair{}, errNotPrefetched)
		}
	}
}
