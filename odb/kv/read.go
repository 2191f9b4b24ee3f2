package kv

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Check returns a [LimitError] when the set has more than [ReadCountMax] keys and ranges.
func (s *ReadSet) Check() error {
	if count := len(s.Keys) + len(s.Ranges); count > ReadCountMax {
		return &LimitError{What: "read count", Got: count, Max: ReadCountMax}
	}
	return nil
}

// briefMax is the number of keys and ranges up to which a read is tried without a snapshot, which
// costs as much as three keys: it takes the lock of Pebble twice and has it look for compactions.
const briefMax = 64

// Read implements Reader.
func (p *Pebble) Read(ctx context.Context, set ReadSet) (Rows, error) {
	if err := p.enter(ctx); err != nil {
		return Rows{}, err
	}
	defer p.life.RUnlock()
	count := len(set.Keys) + len(set.Ranges)
	if count == 1 {
		return read(ctx, p.db, set) // one of them is one instant by itself
	}
	if ended := p.ended.Load(); count <= briefMax && p.begun.Load() == ended {
		rows, err := read(ctx, p.db, set)
		if err != nil || p.begun.Load() == ended { // nothing has changed in between
			return rows, err
		}
	}
	view := p.db.NewSnapshot()
	rows, err := read(ctx, view, set)
	if closeErr := view.Close(); closeErr != nil {
		err = errors.Join(err, translate(closeErr))
	}
	return rows, err
}

// Read implements Reader.
func (s *snapshot) Read(ctx context.Context, set ReadSet) (Rows, error) {
	if err := s.enter(ctx); err != nil {
		return Rows{}, err
	}
	defer s.mu.RUnlock()
	return read(ctx, s.view, set)
}

func read(ctx context.Context, r pebble.Reader, set ReadSet) (Rows, error) {
	if err := set.Check(); err != nil {
		return Rows{}, err
	}
	rows := Rows{Values: make([][]byte, len(set.Keys)), Pages: make([]Page, len(set.Ranges))}
	for i, key := range set.Keys {
		value, err := get(r, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Rows{}, err
		}
		rows.Values[i] = value
	}
	for i, options := range set.Ranges {
		page, err := readPage(ctx, r, options)
		if err != nil {
			return Rows{}, err
		}
		rows.Pages[i] = page
	}
	return rows, nil
}

// readPage returns the first pairs of a range.
func readPage(ctx context.Context, r pebble.Reader, options ScanOptions) (Page, error) {
	if len(options.End) > 0 && bytes.Compare(options.Start, options.End) >= 0 {
		return Page{}, nil
	}
	options.Limit = min(cmp.Or(max(options.Limit, 0), PageCountMax), PageCountMax)
	scratch := takeScratch() // for a result without the spare room of what has grown
	defer scratch.release()
	if err := scratch.fill(ctx, r, options); err != nil {
		return Page{}, err
	}
	found := page{data: bytes.Clone(scratch.data), ends: scratch.ends}
	result := Page{Pairs: make([]Pair, found.pairs()), More: scratch.more}
	for i := range result.Pairs {
		result.Pairs[i] = found.pair(i)
	}
	return result, nil
}
