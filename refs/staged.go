package refs

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"packhorse/odb/kv"
)

// staged reads a store as it will be when batches that are staged, and not applied, have been. It
// belongs to one goroutine at a time. The batches delete no ranges.
type staged struct {
	under kv.Reader
	rows  map[string][]byte // what the batches put; nil for what they delete
	keys  []string          // those of rows, ascending; nil when they are to be sorted again
}

func newStaged(under kv.Reader) *staged { return &staged{under: under, rows: make(map[string][]byte)} }

// add adds a batch behind the others. Its memory is kept.
func (s *staged) add(batch *kv.Batch) {
	for op := range batch.Operations() {
		if op.Kind == kv.OperationDelete {
			s.rows[string(op.Key)] = nil
		} else {
			s.rows[string(op.Key)] = op.Value
		}
	}
	s.keys = nil
}

// over replaces the values of keys that the batches change.
func (s *staged) over(keys, values [][]byte) {
	for i, key := range keys {
		if value, changed := s.rows[string(key)]; changed {
			values[i] = value
		}
	}
}

// Get implements [kv.Reader].
func (s *staged) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, changed := s.rows[string(key)]
	switch {
	case !changed:
		return s.under.Get(ctx, key)
	case value == nil:
		return nil, kv.ErrNotFound
	}
	return bytes.Clone(value), nil
}

// Read implements [kv.Reader].
func (s *staged) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	under := kv.ReadSet{Keys: set.Keys, Ranges: slices.Clone(set.Ranges)}
	for i := range under.Ranges {
		if under.Ranges[i].Limit > 0 {
			under.Ranges[i].Limit += len(s.within(set.Ranges[i])) // as many may be hidden
		}
	}
	rows, err := s.under.Read(ctx, under)
	if err != nil {
		return kv.Rows{}, err
	}
	s.over(set.Keys, rows.Values)
	for i := range rows.Pages {
		rows.Pages[i] = s.page(set.Ranges[i], rows.Pages[i])
	}
	return rows, nil
}

// page returns a page of the stored range with the changes of the batches.
func (s *staged) page(options kv.ScanOptions, stored kv.Page) kv.Page {
	changed := s.within(options)
	if stored.More && len(stored.Pairs) > 0 { // what lies behind the page is not known
		last := stored.Pairs[len(stored.Pairs)-1].Key
		changed = slices.DeleteFunc(changed, func(key string) bool { return isBehind(options, []byte(key), last) })
	}
	page := kv.Page{More: stored.More}
	for pair := range s.merge(options, changed, slices.Values(stored.Pairs)) {
		if options.Limit > 0 && len(page.Pairs) == options.Limit {
			page.More = true
			break
		}
		page.Pairs = append(page.Pairs, pair)
	}
	return page
}

// Scan implements [kv.Reader].
func (s *staged) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		changed := s.within(options)
		under := options
		if under.Limit > 0 {
			under.Limit += len(changed)
		}
		var failed error
		stored := func(yield func(kv.Pair) bool) {
			for pair, err := range s.under.Scan(ctx, under) {
				if failed = err; err != nil || !yield(pair) {
					return
				}
			}
		}
		count := 0
		for pair := range s.merge(options, changed, stored) {
			if failed != nil {
				break
			}
			if !yield(pair, nil) {
				return
			}
			if count++; count == options.Limit {
				return
			}
		}
		if failed != nil {
			yield(kv.Pair{}, failed)
		}
	}
}

// merge walks stored pairs with the changes of the batches, which are those of changed, both in the
// order of the range.
func (s *staged) merge(options kv.ScanOptions, changed []string, stored iter.Seq[kv.Pair]) iter.Seq[kv.Pair] {
	return func(yield func(kv.Pair) bool) {
		emit := func(key string) bool {
			value := s.rows[key]
			return value == nil || yield(kv.Pair{Key: []byte(key), Value: bytes.Clone(value)})
		}
		for pair := range stored {
			for len(changed) > 0 && isBehind(options, pair.Key, []byte(changed[0])) {
				if !emit(changed[0]) {
					return
				}
				changed = changed[1:]
			}
			if _, replaced := s.rows[string(pair.Key)]; !replaced && !yield(pair) {
				return
			} else if replaced {
				if !emit(changed[0]) {
					return
				}
				changed = changed[1:]
			}
		}
		for _, key := range changed {
			if !emit(key) {
				return
			}
		}
	}
}

// isBehind reports whether a comes behind b in a walk over a range.
func isBehind(options kv.ScanOptions, a, b []byte) bool {
	if options.Reverse {
		a, b = b, a
	}
	return bytes.Compare(a, b) > 0
}

// within returns the changed keys of a range, in its order.
func (s *staged) within(options kv.ScanOptions) []string {
	if s.keys == nil {
		s.keys = make([]string, 0, len(s.rows))
		for key := range s.rows {
			s.keys = append(s.keys, key)
		}
		slices.Sort(s.keys)
	}
	from, _ := slices.BinarySearch(s.keys, string(options.Start))
	to := len(s.keys)
	if len(options.End) > 0 {
		to, _ = slices.BinarySearch(s.keys, string(options.End))
	}
	keys := slices.Clone(s.keys[from:max(from, to)])
	if options.Reverse {
		slices.Reverse(keys)
	}
	return keys
}
