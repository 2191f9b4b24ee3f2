package refs

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"packhorse/odb/kv"
)

// Reading is what [Store.SnapshotFor] has read for the transaction that follows it.
type Reading struct {
	repo     RepoID
	prefetch prefetch
	at       time.Time
	moves    uint32 // of the repository, as this process knew before
}

// readingAge is for how long a transaction builds on a [Reading]: the older it is, the more likely
// another process has moved the repository.
const readingAge = time.Second

// SnapshotFor is [Store.SnapshotWith] for a request that is going to change refs of these stored
// names, with the receipt, nil for none. The first try of a [Change] that has the Reading builds on
// it, and reads nothing of its own, if ahead has all that [Change.Ahead] asks for then, nobody else
// is in the line of the repository, and as far as this process knows nobody has moved it.
// Otherwise, and in each later try, it reads as it would without. The Reading is nil where it does
// not help.
func (s *Store) SnapshotFor(
	ctx context.Context, repo RepoID, receipt *Receipt, ahead Ahead, names ...string,
) (*Snapshot, *Reading, error) {
	r := &Reading{repo: repo, at: s.options.Now(), moves: s.moves.of(repo).Load()}
	a := s.ask(repo, &Change{Names: names, Ahead: ahead, Receipt: receipt}, r.at.Add(-s.options.ReceiptAge))
	if s.options.Shared {
		a.askYield(repo)
	}
	if len(a.keys)+len(a.ranges) > kv.ReadCountMax { // more than one read, and more than one instant
		snapshot, err := s.SnapshotWith(ctx, repo, ahead, names...)
		return snapshot, nil, err
	}
	cached, _ := s.cache.Get(setKey{repo: repo})
	snapshot, err := s.snapshotOf(ctx, repo, &a, names, cached)
	if err != nil {
		return nil, nil, err
	}
	r.prefetch = prefetch{set: kv.ReadSet{Keys: a.keys, Ranges: a.ranges}, rows: a.rows}
	return snapshot, r, nil
}

// takeReading returns what the change of a place was given to build on, once, if the repository
// stands there as far as this process knows.
func (s *Store) takeReading(repo RepoID, p *place) *Reading {
	r := p.change.Begun
	p.change.Begun = nil
	if r == nil || r.repo != repo || s.options.Now().Sub(r.at) > readingAge || r.moves != s.moves.of(repo).Load() {
		return nil
	}
	return r
}

// answer answers a question, and reports false if not all of it was asked before.
func (r *Reading) answer(a *ask) bool {
	rows := kv.Rows{Values: make([][]byte, len(a.keys)), Pages: make([]kv.Page, len(a.ranges))}
	for i, key := range a.keys {
		at := r.prefetch.index(key)
		if at < 0 {
			return false
		}
		rows.Values[i] = r.prefetch.rows.Values[at]
	}
	for i, options := range a.ranges {
		page, err := r.prefetch.page(options)
		if err != nil || options.Reverse || options.Limit > 0 {
			return false
		}
		rows.Pages[i] = page
	}
	a.rows = rows
	return true
}

// moves counts how often repositories have moved, as far as this process knows. Some share a
// number: a transaction then reads where it need not have.
type moves [1024]atomic.Uint32

func (m *moves) of(repo RepoID) *atomic.Uint32 {
	return &m[int(binary.BigEndian.Uint16(repo[len(repo)-2:]))%len(m)]
}
