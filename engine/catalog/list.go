package catalog

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Pace says how a walk reads.
type Pace struct {
	// First is how many repositories are read at first; four times as many each time then, until it
	// is as many as one read allows, which is also what 0 means.
	First int
	// Ahead says that a walk that goes on beyond those is likely to go to its end: the next numbers
	// are read along with the records from then on.
	Ahead bool
}

// entriesMax bounds the repositories that a walk reads at once; the next numbers are one range
// more.
const entriesMax = kv.ReadCountMax - 1

// All walks the repositories of an organization in the order of their creation, from behind a
// number on. Those that are deleted meanwhile are left out.
func (c *Catalog[R]) All(ctx context.Context, org string, after uint64, pace Pace) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		fail := func(err error) {
			var none R
			yield(none, fmt.Errorf("list repositories of %s: %w", org, err))
		}
		next := kv.ScanOptions{
			Start: append(NumberKey(org, after), 0), End: kv.PrefixEnd(orgKey(tableNumber, org)), Limit: entriesMax,
		}
		if pace.First > 0 {
			next.Limit = min(pace.First, entriesMax)
		}
		var page kv.Page
		for known, more, first := false, true, true; more; first = false {
			if !known {
				rows, err := c.keys.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{next}})
				if err != nil {
					fail(err)
					return
				}
				page = rows.Pages[0]
			}
			numbers := page.Pairs
			if len(numbers) == 0 {
				return
			}
			more = page.More || len(numbers) == next.Limit
			next.Start = append(numbers[len(numbers)-1].Key, 0)
			next.Limit = min(4*next.Limit, entriesMax)
			set, err := recordsOf(numbers)
			if known = more && pace.Ahead && !first; known {
				set.Ranges = []kv.ScanOptions{next}
			}
			var rows kv.Rows
			if err == nil {
				rows, err = c.keys.Read(ctx, set)
			}
			if err != nil {
				fail(err)
				return
			}
			for i, number := range numbers {
				if rows.Values[i] == nil {
					continue
				}
				record, err := c.recordOf(refs.RepoID(number.Value), rows.Values[i], false)
				if !yield(record, err) || err != nil {
					return
				}
			}
			if known {
				page = rows.Pages[0]
			}
		}
	}
}

// Orgs walks the organizations that have repositories, in the order of their names. Errors:
// kv.ErrCorrupt.
func (c *Catalog[R]) Orgs(ctx context.Context) iter.Seq2[string, error] {
	return c.orgsOf(ctx, "repositories", []byte{tableNumber}, numberBytes)
}

// numberBytes is the size of what follows the organization in the key of a number.
const numberBytes = 8

// orgsOf walks the organizations of a table of so called rows, whose keys are a prefix, the
// organization, a NUL, and rest more bytes. It reads one row of each.
func (c *Catalog[R]) orgsOf(
	ctx context.Context, called string, prefix []byte, rest int,
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for start, end := prefix, kv.PrefixEnd(prefix); ; {
			rows, err := c.keys.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{{Start: start, End: end, Limit: 1}}})
			if err != nil {
				yield("", fmt.Errorf("scan %s: %w", called, err))
				return
			}
			if len(rows.Pages[0].Pairs) == 0 {
				return
			}
			key := rows.Pages[0].Pairs[0].Key
			size := len(key) - len(prefix) - 1 - rest
			if size < 0 || key[len(prefix)+size] != 0 {
				yield("", fmt.Errorf("%w: key of %d bytes among %s", kv.ErrCorrupt, len(key), called))
				return
			}
			if !yield(string(key[len(prefix):len(prefix)+size]), nil) {
				return
			}
			start = kv.PrefixEnd(key[:len(prefix)+size+1])
		}
	}
}

// Read returns the records of those repositories that exist.
func (c *Catalog[R]) Read(ctx context.Context, ids []refs.RepoID) (map[refs.RepoID]R, error) {
	records := make(map[refs.RepoID]R, len(ids))
	for some := range slices.Chunk(ids, kv.ReadCountMax) {
		var set kv.ReadSet
		for _, id := range some {
			set.Keys = append(set.Keys, RecordKey(id))
		}
		rows, err := c.keys.Read(ctx, set)
		if err != nil {
			return nil, fmt.Errorf("read records of repositories: %w", err)
		}
		for i, id := range some {
			if rows.Values[i] == nil {
				continue
			}
			if records[id], err = c.recordOf(id, rows.Values[i], true); err != nil {
				return nil, err
			}
		}
	}
	return records, nil
}

// recordsOf selects the records of numbered repositories.
func recordsOf(numbers []kv.Pair) (set kv.ReadSet, err error) {
	for _, number := range numbers {
		if len(number.Value) != len(refs.RepoID{}) {
			return set, fmt.Errorf("%w: number row of %d bytes", kv.ErrCorrupt, len(number.Value))
		}
		set.Keys = append(set.Keys, RecordKey(refs.RepoID(number.Value)))
	}
	return set, nil
}

// Count returns how many repositories an organization has, most at most.
func (c *Catalog[R]) Count(ctx context.Context, org string, most int) (count int, err error) {
	scan := kv.ScanOptions{Start: NumberKey(org, 0), End: kv.PrefixEnd(orgKey(tableNumber, org)), Limit: most}
	for _, err := range c.keys.Scan(ctx, scan) {
		if err != nil {
			return count, fmt.Errorf("count repositories of %s: %w", org, err)
		}
		count++
	}
	return count, nil
}
