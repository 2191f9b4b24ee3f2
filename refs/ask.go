package refs

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"packhorse/odb/kv"
)

// ask is what a transaction reads before it is prepared, or a snapshot before it is used: the head,
// perhaps who asks to yield, what the change reads ahead, its receipt, and the refs that it names.
type ask struct {
	keys                  [][]byte // in this order
	ranges                []kv.ScanOptions
	ahead, receipts, refs int // where these begin in keys
	take                  func(rows kv.Rows)
	rows                  kv.Rows // the answer
	err                   error   // of the question
}

// ask returns what a change of a repository asks for, its receipt in the buckets since a time.
func (s *Store) ask(repo RepoID, change *Change, since time.Time) ask {
	var set kv.ReadSet
	a := ask{ahead: 1, take: func(kv.Rows) {}}
	if change.Ahead != nil {
		set, a.take = change.Ahead()
		a.err = checkAhead(&set)
	}
	a.keys = append(make([][]byte, 0, 1+len(set.Keys)+len(change.Names)), headKey(repo))
	a.keys, a.ranges = append(a.keys, set.Keys...), set.Ranges
	a.receipts = len(a.keys)
	if change.Receipt != nil {
		a.keys = append(a.keys, s.receiptKeys(change.Receipt, since)...)
	}
	a.refs = len(a.keys)
	for _, name := range change.Names {
		a.keys = append(a.keys, refKey(repo, name))
	}
	return a
}

// askYield asks, too, who asks others to yield.
func (a *ask) askYield(repo RepoID) {
	a.keys = slices.Insert(a.keys, 1, yieldKey(repo))
	a.ahead, a.receipts, a.refs = a.ahead+1, a.receipts+1, a.refs+1
}

// yields returns the row of the one who asks others to yield, nil for nobody, or if that was not
// asked.
func (a *ask) yields() []byte {
	if a.ahead == 1 {
		return nil
	}
	return a.rows.Values[1]
}

func checkAhead(set *kv.ReadSet) error {
	if count := len(set.Keys) + len(set.Ranges); count > AheadMax {
		return &kv.LimitError{What: "rows read ahead", Got: count, Max: AheadMax}
	}
	return nil
}

// read reads the answer.
func (a *ask) read(ctx context.Context, keys kv.Reader) (err error) {
	if a.err != nil {
		return a.err
	}
	if len(a.keys) > 1 || len(a.ranges) > 0 {
		a.rows, err = readRows(ctx, keys, kv.ReadSet{Keys: a.keys, Ranges: a.ranges})
		return err
	}
	value, err := keys.Get(ctx, a.keys[0])
	if errors.Is(err, kv.ErrNotFound) {
		value, err = nil, nil
	}
	a.rows = kv.Rows{Values: [][]byte{value}}
	return err
}

// receipt returns the row that an earlier request with the key has left, nil for none.
func (a *ask) receipt() (key, value []byte) {
	at := slices.IndexFunc(a.rows.Values[a.receipts:a.refs], isPresent)
	if at < 0 {
		return nil, nil
	}
	return a.keys[a.receipts+at], a.rows.Values[a.receipts+at]
}

// head returns the head. Errors: [ErrRepositoryNotFound].
func (a *ask) head() (head, error) {
	if a.rows.Values[0] == nil {
		return head{}, ErrRepositoryNotFound
	}
	return decodeHead(a.rows.Values[0])
}

// tell hands on what was read ahead, and returns the rows of refs.
func (a *ask) tell(names []string) lookahead {
	a.take(kv.Rows{Values: a.rows.Values[a.ahead:a.receipts], Pages: a.rows.Pages})
	return newLookahead(names, a.rows.Values[a.refs:])
}

// over puts what staged batches change into the answer, but for what is read ahead.
func (a *ask) over(by *staged) {
	by.over(a.keys[:1], a.rows.Values[:1])
	by.over(a.keys[a.receipts:], a.rows.Values[a.receipts:])
}

// questions are those of several transactions of a repository, each key and each range once.
type questions struct {
	set   kv.ReadSet
	index map[string]int // of a key in set
}

func newQuestions() *questions { return &questions{index: make(map[string]int)} }

// add adds a question, and reports false if that is too large for one read of all.
func (q *questions) add(a *ask) bool {
	keys, ranges := len(q.set.Keys), len(q.set.Ranges)
	for _, key := range a.keys {
		if _, known := q.index[string(key)]; !known {
			q.index[string(key)] = len(q.set.Keys)
			q.set.Keys = append(q.set.Keys, key)
		}
	}
	for _, options := range a.ranges {
		if q.find(&options) < 0 {
			q.set.Ranges = append(q.set.Ranges, options)
		}
	}
	if q.set.Check() == nil {
		return true
	}
	for _, key := range q.set.Keys[keys:] {
		delete(q.index, string(key))
	}
	q.set.Keys, q.set.Ranges = q.set.Keys[:keys], q.set.Ranges[:ranges]
	return false
}

func (q *questions) find(options *kv.ScanOptions) int {
	return slices.IndexFunc(q.set.Ranges, func(r kv.ScanOptions) bool {
		return bytes.Equal(r.Start, options.Start) && bytes.Equal(r.End, options.End) && r.Limit == options.Limit &&
			r.Reverse == options.Reverse
	})
}

// read reads the answers. Those of equal questions share their memory.
func (q *questions) read(ctx context.Context, keys kv.Reader, asks []*ask) error {
	rows, err := keys.Read(ctx, q.set)
	if err != nil {
		return err
	}
	for _, a := range asks {
		a.rows.Values = make([][]byte, len(a.keys))
		for i, key := range a.keys {
			a.rows.Values[i] = rows.Values[q.index[string(key)]]
		}
		a.rows.Pages = make([]kv.Page, len(a.ranges))
		for i := range a.ranges {
			a.rows.Pages[i] = rows.Pages[q.find(&a.ranges[i])]
		}
	}
	return nil
}
