package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"packhorse/odb/kv"
)

// SnapshotAt returns the refs of a repository as they were behind the transaction of a sequence,
// which [Store.SequenceAt] finds for a time. Those of stored names that are going to be looked up
// are read along, unless all refs of that moment are probably cached. Its Version is that of a
// snapshot that was made then.
//
// A read of it fails with [ErrTrimmed] once the journal has been trimmed behind the sequence, and
// with [ErrBusy] if the store has lost it.
//
// Errors: [ErrRepositoryNotFound]; [ErrTrimmed], when the journal does not reach back as far; a
// [BeforeCreationError] for sequence 0; a [FutureError] for a sequence that is to come.
func (s *Store) SnapshotAt(ctx context.Context, repo RepoID, sequence uint64, names ...string) (*Snapshot, error) {
	return s.SnapshotAtWith(ctx, repo, sequence, nil, names...)
}

// SnapshotAtWith is [Store.SnapshotAt] with other rows of now, which are read together.
func (s *Store) SnapshotAtWith(
	ctx context.Context, repo RepoID, sequence uint64, ahead Ahead, names ...string,
) (*Snapshot, error) {
	set, cached := s.cache.Get(setKey{repo, sequence})
	if cached {
		names = nil
	}
	names = names[:min(len(names), (kv.ReadCountMax-2-AheadMax)/2)] // what is read at one instant
	asked := kv.ReadSet{Keys: make([][]byte, 0, 2+len(names)), Ranges: make([]kv.ScanOptions, 0, len(names))}
	asked.Keys = append(asked.Keys, headKey(repo), journalKey(repo, sequence+1, 0))
	for _, name := range names {
		asked.Keys = append(asked.Keys, refKey(repo, name))
		asked.Ranges = append(asked.Ranges, formerBehind(repo, name, sequence))
	}
	keys, ranges := len(asked.Keys), len(asked.Ranges)
	take := func(kv.Rows) {}
	if ahead != nil {
		var more kv.ReadSet
		more, take = ahead()
		asked.Keys, asked.Ranges = append(asked.Keys, more.Keys...), append(asked.Ranges, more.Ranges...)
	}
	rows, err := s.kv.Read(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("read head of %s: %w", repo, err)
	}
	if rows.Values[0] == nil {
		return nil, ErrRepositoryNotFound
	}
	take(kv.Rows{Values: rows.Values[keys:], Pages: rows.Pages[ranges:]})
	rows = kv.Rows{Values: rows.Values[:keys], Pages: rows.Pages[:ranges]}
	now, err := decodeHead(rows.Values[0])
	switch {
	case err != nil:
		return nil, err
	case sequence > now.sequence:
		return nil, &FutureError{Sequence: sequence, Last: now.sequence}
	case sequence == now.sequence:
		present, _ := s.cache.Get(setKey{repo: repo})
		return s.snapshot(repo, now, newLookahead(names, rows.Values[2:]), present), nil
	case sequence == 0 || rows.Values[1] == nil:
		return nil, s.unreadable(ctx, repo)
	}
	prior, known, err := decodePrior(sequence+1, rows.Values[1])
	if err != nil {
		return nil, err
	}
	if !known {
		then, err := undone(ctx, s.kv, repo, now, sequence)
		return &Snapshot{store: s, repo: repo, head: then}, err
	}
	sn := &Snapshot{store: s, repo: repo, head: prior, past: true}
	if cached && set.version == sn.head.version() {
		sn.set = set
	}
	if len(names) > 0 {
		sn.known = make(overlay, len(names))
	}
	for i, name := range names {
		if sn.known[name], err = stateAt(repo, name, sequence, rows.Values[2+i], rows.Pages[i]); err != nil {
			return nil, err
		}
	}
	return sn, nil
}

// unreadable says why the refs of a sequence cannot be read that is neither now nor to come.
func (s *Store) unreadable(ctx context.Context, repo RepoID) error {
	r, _, err := s.reach(ctx, repo)
	if err != nil {
		return err
	}
	return r.before(r.oldest(s.options.Now()))
}

// undone returns a head as it was at an earlier sequence, by the journal in between: for moments of
// which a release has written the journal that kept no former states. Errors: [ErrTrimmed].
func undone(ctx context.Context, reader kv.Reader, repo RepoID, now head, sequence uint64) (head, error) {
	then := now
	then.sequence, then.stamp, then.millis = sequence, 0, 0
	for entry, err := range journal(ctx, reader, repo, sequence, now.sequence) {
		if err != nil {
			return head{}, err
		}
		if entry.Index == 0 {
			then.token ^= entry.mark
		}
		if entry.before != nil {
			then.count++
			then.nameBytes += uint64(len(entry.Ref))
		}
		if entry.after != nil {
			then.count--
			then.nameBytes -= uint64(len(entry.Ref))
		}
	}
	return then, nil
}

// What follows is how a Snapshot with past set reads.

// witnesses returns the keys of the rows that say whether the snapshot can be read: the head, and
// the entry of the transaction behind it. That has the head before, and goes before the former
// states that are behind it.
func (sn *Snapshot) witnesses() [][]byte {
	return [][]byte{headKey(sn.repo), journalKey(sn.repo, sn.head.sequence+1, 0)}
}

// testify returns the present head from the rows of witnesses. Errors: [ErrRepositoryNotFound],
// [ErrTrimmed], [ErrBusy].
func (sn *Snapshot) testify(ctx context.Context, rows [][]byte) (now head, err error) {
	if rows[0] == nil {
		return head{}, ErrRepositoryNotFound
	}
	if now, err = decodeHead(rows[0]); err != nil {
		return head{}, err
	}
	if rows[1] == nil && now.sequence > sn.head.sequence {
		return head{}, sn.store.unreadable(ctx, sn.repo)
	}
	if rows[1] != nil {
		prior, known, err := decodePrior(sn.head.sequence+1, rows[1])
		if err != nil {
			return head{}, err
		}
		if known && prior.version() == sn.head.version() {
			return now, nil
		}
	}
	return head{}, fmt.Errorf("refs of %s at %d: %w", sn.repo, sn.head.sequence, errLost)
}

// readFormer reads set, at an instant at which the snapshot can be read.
func (sn *Snapshot) readFormer(ctx context.Context, set kv.ReadSet) (*prefetch, error) {
	sn.mu.Lock()
	closed := sn.closed
	sn.mu.Unlock()
	if closed {
		return nil, kv.ErrClosed
	}
	count := len(set.Keys)
	set.Keys = append(set.Keys, sn.witnesses()...)
	rows, err := newPrefetch(ctx, sn.store.kv, set)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	if _, err = sn.testify(ctx, rows.rows.Values[count:]); err != nil {
		return nil, err
	}
	return rows, nil
}

// former returns the state of a ref. Errors: [ErrNotFound].
func (sn *Snapshot) former(ctx context.Context, name string) (Ref, error) {
	sequence := sn.head.sequence
	ref, known := sn.known[name]
	if !known {
		rows, err := sn.readFormer(ctx, kv.ReadSet{
			Keys: [][]byte{refKey(sn.repo, name)}, Ranges: []kv.ScanOptions{formerBehind(sn.repo, name, sequence)},
		})
		if err != nil {
			return Ref{}, err
		}
		if ref, err = stateAt(sn.repo, name, sequence, rows.rows.Values[0], rows.rows.Pages[0]); err != nil {
			return Ref{}, err
		}
	}
	if ref == nil {
		return Ref{}, ErrNotFound
	}
	return *ref, nil
}

// formerAll walks the refs with start <= name < end over a view.
func (sn *Snapshot) formerAll(ctx context.Context, v *view, start, end string) iter.Seq2[Ref, error] {
	now := scanRefs(ctx, v.rows, sn.repo, start, end)
	if set, ok := sn.store.cache.Get(setKey{repo: sn.repo}); ok && set.version == v.now {
		now = set.between(start, end)
	}
	return over(sn.head.sequence, formers(ctx, v.rows, sn.repo, sn.head.sequence, start, end), now)
}

// decodeFormers makes the set of all refs.
func (sn *Snapshot) decodeFormers(ctx context.Context) (*set, error) {
	version := sn.head.version()
	if known, ok := sn.store.cache.Get(sn.key()); ok && known.version == version {
		return known, nil
	}
	if sn.head.count == 0 {
		return &set{version: version}, nil
	}
	if sn.head.count < kv.PageCountMax {
		ranges := []kv.ScanOptions{refRange(sn.repo, "", ""), formerRange(sn.repo, "", "")}
		rows, err := sn.readFormer(ctx, kv.ReadSet{Ranges: ranges})
		if err != nil {
			return nil, err
		}
		small, err := newSet(version, over(version.Sequence,
			formers(ctx, rows, sn.repo, version.Sequence, "", ""), scanRefs(ctx, rows, sn.repo, "", "")))
		if !errors.Is(err, errNotPrefetched) {
			return small, err
		}
	}
	return newSet(version, sn.scan(ctx, "", ""))
}

// formerBranches is Branches, for those whose place is not below first.
func (sn *Snapshot) formerBranches(ctx context.Context, ns Namespace, first Creation, limit int) ([]Ref, error) {
	set, err := sn.load(ctx, "")
	if err != nil {
		return nil, err
	}
	if set != nil {
		return set.branches(ns, first, limit), nil
	}
	// There are too many refs to keep them: look at all, and hold those that come first so far.
	limit = max(limit, 0)
	var branches []Ref
	sortOut := func() {
		slices.SortFunc(branches, func(a, b Ref) int { return a.Created.compare(b.Created) })
		branches = branches[:min(limit, len(branches))]
	}
	for ref, err := range sn.All(ctx, ns.BranchPrefix()) {
		if err != nil {
			return nil, err
		}
		if ref.Created.compare(first) < 0 {
			continue
		}
		if branches = append(branches, ref); len(branches)-limit >= chunkRefs {
			sortOut()
		}
	}
	sortOut()
	return branches, nil
}
