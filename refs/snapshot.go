package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"packhorse/odb/kv"
)

// Snapshot is the refs of a repository as of one sequence. The caller closes it. It does not age:
// it may be read for as long as the journal reaches back to its sequence.
//
// The content of a snapshot may not be durable yet; call [Snapshot.WaitDurable] before any of it is
// sent out.
type Snapshot struct {
	store *Store
	repo  RepoID
	head  head
	ahead lookahead // refs that were read with the head

	past  bool    // it was of the past from its start, see SnapshotAt
	known overlay // then these are refs that were read with the head

	mu     sync.Mutex
	set    *set  // guarded by mu, as are the fields below: all refs, once they were needed and if they are not too many
	view   *view // rows of the key-value store, once they were needed
	closed bool
}

// view is a snapshot of the key-value store at one instant, with the overlay that undoes the
// transactions since the snapshot.
type view struct {
	rows kv.Snapshot
	undo overlay
	now  Version // of the rows
}

// Snapshot returns the refs of a repository as they are now. Those of stored names that are going
// to be looked up are read with the head, unless all refs are probably cached; names need not be
// valid. Errors: [ErrRepositoryNotFound].
func (s *Store) Snapshot(ctx context.Context, repo RepoID, names ...string) (*Snapshot, error) {
	return s.SnapshotWith(ctx, repo, nil, names...)
}

// SnapshotWith is [Store.Snapshot] with other rows of the same instant, which are read together.
func (s *Store) SnapshotWith(ctx context.Context, repo RepoID, ahead Ahead, names ...string) (*Snapshot, error) {
	set, cached := s.cache.Get(setKey{repo: repo})
	if cached && !set.stale.Load() {
		names = nil
	}
	names = names[:min(len(names), kv.ReadCountMax-1-AheadMax)] // what is read at one instant
	a := s.ask(repo, &Change{Names: names, Ahead: ahead}, time.Time{})
	return s.snapshotOf(ctx, repo, &a, names, set)
}

// snapshotOf reads the present refs with the answer to a question about names. cached may be nil.
func (s *Store) snapshotOf(ctx context.Context, repo RepoID, a *ask, names []string, cached *set) (*Snapshot, error) {
	if err := a.read(ctx, s.kv); err != nil {
		return nil, fmt.Errorf("read head of %s: %w", repo, err)
	}
	head, err := a.head()
	if err != nil {
		return nil, err
	}
	return s.snapshot(repo, head, a.tell(names), cached), nil
}

// snapshot returns the present refs, which are those of cached if they have not moved; that may be
// nil.
func (s *Store) snapshot(repo RepoID, head head, ahead lookahead, cached *set) *Snapshot {
	snapshot := &Snapshot{store: s, repo: repo, head: head, ahead: ahead}
	switch {
	case cached == nil:
	case cached.version == head.version():
		snapshot.set = cached
	case cached.version.Sequence < head.sequence:
		cached.stale.Store(true)
	}
	return snapshot
}

// Nothing returns a snapshot of a repository that does not exist yet, without refs.
func (s *Store) Nothing(repo RepoID) *Snapshot { return &Snapshot{store: s, repo: repo, set: new(set)} }

// newsMax is how many entries of the journal [Store.SnapshotAll] reads with the head.
const newsMax = 64

// SnapshotAll is [Store.Snapshot] for a caller that walks the refs. If they have changed since they
// were cached, as this process knows, the changes are read with the head.
func (s *Store) SnapshotAll(ctx context.Context, repo RepoID, ahead Ahead, names ...string) (*Snapshot, error) {
	near, cached := s.cache.Get(setKey{repo: repo})
	if !cached || !near.stale.Load() {
		return s.SnapshotWith(ctx, repo, ahead, names...)
	}
	journal := journalRange(repo, near.version.Sequence+1, 0, newsMax)
	news := prefetch{set: kv.ReadSet{Ranges: []kv.ScanOptions{journal}}}
	snapshot, err := s.SnapshotWith(ctx, repo, func() (kv.ReadSet, func(kv.Rows)) {
		set, take := kv.ReadSet{}, func(kv.Rows) {}
		if ahead != nil {
			set, take = ahead()
		}
		count := len(set.Ranges)
		set.Ranges = append(set.Ranges, journal)
		return set, func(rows kv.Rows) {
			news.rows.Pages = rows.Pages[count:]
			take(kv.Rows{Values: rows.Values, Pages: rows.Pages[:count]})
		}
	}, names...)
	if err != nil || snapshot.set != nil {
		return snapshot, err
	}
	version := snapshot.head.version()
	// Where the journal does not lead from one to the other, the first walk finds out.
	if changes, err := differences(ctx, &news, repo, near.version, version); err == nil {
		snapshot.set = near.with(version, changes)
		s.keep(snapshot.key(), snapshot.set)
	}
	return snapshot, nil
}

// Close releases the resources of the snapshot.
func (sn *Snapshot) Close() error {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	sn.closed = true
	return sn.release()
}

// release closes the view. The caller holds mu.
func (sn *Snapshot) release() error {
	if sn.view == nil {
		return nil
	}
	rows := sn.view.rows
	sn.view = nil
	return rows.Close()
}

// Sequence returns the sequence that the snapshot shows.
func (sn *Snapshot) Sequence() uint64 { return sn.head.sequence }

// key returns the key of the refs in the cache.
func (sn *Snapshot) key() setKey {
	if sn.past {
		return setKey{sn.repo, sn.head.sequence}
	}
	return setKey{repo: sn.repo}
}

// Version returns the state that the snapshot shows, as the key of what is kept of it.
func (sn *Snapshot) Version() Version { return sn.head.version() }

// IsCurrent reports whether the repository is still where the snapshot shows it. Errors:
// [ErrRepositoryNotFound].
func (sn *Snapshot) IsCurrent(ctx context.Context) (bool, error) {
	now, err := sn.store.head(ctx, sn.repo)
	return now == sn.head, err
}

// Count returns the number of refs in all namespaces.
func (sn *Snapshot) Count() int { return int(sn.head.count) }

// Require adds to batch the precondition that the repository is still at the snapshot's sequence.
// It never holds for one of [Store.SnapshotAt] that is of the past.
func (sn *Snapshot) Require(batch *kv.Batch) { sn.head.require(batch, sn.repo) }

// WaitDurable returns when everything that the snapshot shows is durable.
func (sn *Snapshot) WaitDurable(ctx context.Context) error { return sn.store.WaitDurable(ctx, sn.repo) }

// Lookup returns the ref of a stored name. Errors: [ErrNotFound].
func (sn *Snapshot) Lookup(ctx context.Context, name string) (Ref, error) {
	sn.mu.Lock()
	set := sn.set
	sn.mu.Unlock()
	if set != nil {
		if ref, ok := set.find(name); ok {
			return ref, nil
		}
		return Ref{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	ref, err := sn.find(ctx, name)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return ref, err
}

// find returns a ref that no set has.
func (sn *Snapshot) find(ctx context.Context, name string) (Ref, error) {
	if sn.past {
		return sn.former(ctx, name)
	}
	ref, err := sn.ahead.ref(sn.repo, name)
	if errors.Is(err, errNotPrefetched) {
		return sn.readRef(ctx, name)
	}
	return ref, err
}

// readRef reads a ref, from a view if need be.
func (sn *Snapshot) readRef(ctx context.Context, name string) (Ref, error) {
	rows, err := sn.prefetch(ctx, kv.ReadSet{Keys: [][]byte{refKey(sn.repo, name)}})
	switch {
	case err != nil:
		return Ref{}, err
	case rows != nil:
		return readRef(ctx, rows, sn.repo, name)
	default:
		return sn.lookup(ctx, name)
	}
}

// lookup returns a ref from a view.
func (sn *Snapshot) lookup(ctx context.Context, name string) (ref Ref, err error) {
	err = sn.read(ctx, func(v *view) (err error) {
		undone, changed := v.undo[name]
		switch {
		case !changed:
			ref, err = readRef(ctx, v.rows, sn.repo, name)
		case undone != nil:
			ref = *undone
		default:
			err = ErrNotFound
		}
		return err
	})
	return ref, err
}

// All walks the refs whose stored names begin with prefix, in byte order.
func (sn *Snapshot) All(ctx context.Context, prefix string) iter.Seq2[Ref, error] {
	return sn.between(ctx, prefix, prefixEnd(prefix))
}

// After walks the refs whose stored names begin with prefix and sort behind name, in byte order.
func (sn *Snapshot) After(ctx context.Context, prefix, name string) iter.Seq2[Ref, error] {
	return sn.between(ctx, max(prefix, name+"\x00"), prefixEnd(prefix))
}

// In walks the refs of a namespace whose names, as its clients see them, begin with prefix, in byte
// order. The refs have their stored names.
func (sn *Snapshot) In(ctx context.Context, ns Namespace, prefix string) iter.Seq2[Ref, error] {
	start := ns.Full(prefix)
	end := prefixEnd(start)
	if ns != Main || !strings.HasPrefix(namespacesPrefix, prefix) {
		return sn.between(ctx, start, end)
	}
	return func(yield func(Ref, error) bool) {
		for ref, err := range sn.between(ctx, start, namespacesPrefix) {
			if !yield(ref, err) || err != nil {
				return
			}
		}
		for ref, err := range sn.between(ctx, prefixEnd(namespacesPrefix), end) {
			if !yield(ref, err) {
				return
			}
		}
	}
}

// between walks the refs with start <= name < end.
func (sn *Snapshot) between(ctx context.Context, start, end string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		set, err := sn.load(ctx, start)
		if err != nil {
			yield(Ref{}, err)
			return
		}
		rows := sn.scan(ctx, start, end)
		if set != nil {
			rows = set.between(start, end)
		}
		rows(yield)
	}
}

// scan walks the refs with start <= name < end in the key-value store. A reader may take longer
// than the lifetime of a view; the walk then continues over a new one.
func (sn *Snapshot) scan(ctx context.Context, start, end string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		stopped := false
		err := sn.read(ctx, func(v *view) error {
			rows := v.undo.over(scanRefs(ctx, v.rows, sn.repo, start, end), start, end)
			if sn.past {
				rows = sn.formerAll(ctx, v, start, end)
			}
			for ref, err := range rows {
				if err != nil {
					return err
				}
				start = ref.Name + "\x00"
				if stopped = !yield(ref, nil); stopped {
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Ref{}, err)
		}
	}
}

// prefetch reads set, unless there is a view already. It returns nil when the repository is not, or
// may not be, where the snapshot shows it: then a view is needed.
func (sn *Snapshot) prefetch(ctx context.Context, set kv.ReadSet) (*prefetch, error) {
	sn.mu.Lock()
	closed, opened := sn.closed, sn.view != nil
	sn.mu.Unlock()
	if closed {
		return nil, kv.ErrClosed
	}
	if opened {
		return nil, nil
	}
	set.Keys = append(set.Keys, headKey(sn.repo))
	rows, err := newPrefetch(ctx, sn.store.kv, set)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	row := rows.rows.Values[len(set.Keys)-1]
	if row == nil {
		return nil, nil
	}
	head, err := decodeHead(row)
	if err != nil || head != sn.head {
		return nil, nil //nolint:nilerr // a view finds the same
	}
	return rows, nil
}

// read calls do with a view, and again with a new one when that has expired.
func (sn *Snapshot) read(ctx context.Context, do func(*view) error) error {
	for {
		v, err := sn.open(ctx)
		if err != nil {
			return err
		}
		err = do(v)
		if !errors.Is(err, kv.ErrSnapshotExpired) && !errors.Is(err, kv.ErrClosed) {
			return err
		}
		if err := sn.retire(v, err); err != nil {
			return err
		}
	}
}

// retire closes an expired view, unless another reader has done so. It returns cause when a new
// view would not help.
func (sn *Snapshot) retire(v *view, cause error) error {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	switch {
	case sn.closed:
		return kv.ErrClosed
	case sn.view != v:
		return nil
	case errors.Is(cause, kv.ErrSnapshotExpired):
		return sn.release()
	default:
		return cause
	}
}

// open returns the view, made at the first call.
func (sn *Snapshot) open(ctx context.Context) (*view, error) {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	if sn.closed {
		return nil, kv.ErrClosed
	}
	if sn.view != nil {
		return sn.view, nil
	}
	rows, err := sn.store.kv.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	v := &view{rows: rows}
	if err := sn.place(ctx, v); err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	sn.view = v
	return v, nil
}

// place finds out what leads from the rows of a view to the snapshot.
func (sn *Snapshot) place(ctx context.Context, v *view) error {
	if sn.past {
		rows, err := readKeys(ctx, v.rows, sn.witnesses())
		if err != nil {
			return fmt.Errorf("read refs: %w", err)
		}
		now, err := sn.testify(ctx, rows)
		v.now = now.version()
		return err
	}
	now, err := readHead(ctx, v.rows, sn.repo)
	if err != nil {
		return err
	}
	v.now = now.version()
	v.undo, err = differences(ctx, sn.store.kv, sn.repo, v.now, sn.head.version())
	return err
}

// load returns all refs, decoded, if they are not too many and a walk from start on is likely to
// want most of them; else nil.
func (sn *Snapshot) load(ctx context.Context, start string) (*set, error) {
	sn.mu.Lock()
	set := sn.set
	sn.mu.Unlock()
	_, short := SplitNamespace(start)
	if set != nil || setBytes(sn.head.count, sn.head.nameBytes) > sn.store.options.CacheBytes/4 ||
		strings.Count(short, "/") > 2 {
		return set, nil
	}
	unlock, err := sn.store.loaders.lock(ctx, sn.repo)
	if err != nil {
		return nil, err
	}
	defer unlock()
	set, err = sn.decode(ctx)
	if err != nil {
		return nil, err
	}
	sn.store.keep(sn.key(), set)
	sn.mu.Lock()
	sn.set = set
	sn.mu.Unlock()
	return set, nil
}

// keep keeps a set in the cache unless a later one of the repository is there, or there is no room
// for it.
func (s *Store) keep(key setKey, fresh *set) {
	s.cache.PutUnless(key, fresh, fresh.bytes, func(old *set) bool {
		return old.version == fresh.version || old.version.Sequence > fresh.version.Sequence
	})
}

// decode makes the set from one that is cached, if they are not far apart, or from the stored rows.
func (sn *Snapshot) decode(ctx context.Context) (*set, error) {
	if sn.past {
		return sn.decodeFormers(ctx)
	}
	if near, ok := sn.store.cache.Get(sn.key()); ok {
		if near.version == sn.head.version() {
			return near, nil
		}
		there := near.version.Sequence
		if max(there, sn.head.sequence)-min(there, sn.head.sequence) < 16+sn.head.count/4 {
			changes, err := differences(ctx, sn.store.kv, sn.repo, near.version, sn.head.version())
			if err == nil {
				return near.with(sn.head.version(), changes), nil
			}
			if !errors.Is(err, ErrTrimmed) && !errors.Is(err, ErrBusy) {
				return nil, err
			}
			sn.store.cache.Take(sn.key()) // it may be later than all that will be, of a history that was lost
		}
	}
	if sn.head.count == 0 {
		return &set{version: sn.head.version()}, nil
	}
	if sn.head.count < kv.PageCountMax && rowBytesMax*sn.head.count+2*sn.head.nameBytes < kv.PageBytesMax {
		rows, err := sn.prefetch(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{refRange(sn.repo, "", "")}})
		if err != nil {
			return nil, err
		}
		if rows != nil && !rows.rows.Pages[0].More {
			return newSet(sn.head.version(), scanRefs(ctx, rows, sn.repo, "", ""))
		}
	}
	return newSet(sn.head.version(), sn.scan(ctx, "", ""))
}

// Branches returns up to limit branches of a namespace that were created after a place, in the
// order of their creation.
func (sn *Snapshot) Branches(ctx context.Context, ns Namespace, after Creation, limit int) ([]Ref, error) {
	after.Index++
	if sn.past {
		return sn.formerBranches(ctx, ns, after, limit)
	}
	created := kv.ScanOptions{
		Start: creationKey(sn.repo, ns, after),
		End:   creationKey(sn.repo, ns, Creation{Sequence: sn.head.sequence + 1}),
	}
	if 0 < limit && limit < kv.ReadCountMax {
		branches, err := sn.branchesNow(ctx, created, limit)
		if branches != nil || err != nil {
			return branches, err
		}
	}
	var branches []Ref
	err := sn.read(ctx, func(v *view) (err error) {
		branches, err = sn.branches(ctx, v, ns, created, limit)
		return err
	})
	return branches, err
}

// branchesNow returns the first branches of a range of creations. It is nil when a view is needed.
func (sn *Snapshot) branchesNow(ctx context.Context, created kv.ScanOptions, limit int) ([]Ref, error) {
	created.Limit = limit
	rows, err := sn.prefetch(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{created}})
	if rows == nil {
		return nil, err
	}
	page := rows.rows.Pages[0]
	if page.More && len(page.Pairs) < limit {
		return nil, nil
	}
	branches := []Ref{}
	if len(page.Pairs) == 0 {
		return branches, nil
	}
	names := make([]string, 0, len(page.Pairs))
	for _, pair := range page.Pairs {
		names = append(names, string(pair.Value))
	}
	keys := refKeys(sn.repo, names)
	if rows, err = sn.prefetch(ctx, kv.ReadSet{Keys: keys}); rows == nil {
		return nil, err
	}
	return appendBranches(branches, names, keys, rows.rows.Values)
}

// appendBranches appends the refs of names from the order of creation, which have these keys and
// rows.
func appendBranches(branches []Ref, names []string, keys, rows [][]byte) ([]Ref, error) {
	branches = slices.Grow(branches, len(names))
	for i, name := range names {
		if rows[i] == nil {
			return nil, corrupt("branch %s of the creation order is missing", name)
		}
		ref, err := decodeNamed(keys[i], rows[i], name)
		if err != nil {
			return nil, err
		}
		branches = append(branches, ref)
	}
	return branches, nil
}

func (sn *Snapshot) branches(
	ctx context.Context, v *view, ns Namespace, created kv.ScanOptions, limit int,
) ([]Ref, error) {
	var names []string
	for pair, err := range v.rows.Scan(ctx, created) {
		if err != nil {
			return nil, err
		}
		if len(names) >= limit {
			break
		}
		if _, changed := v.undo[string(pair.Value)]; !changed {
			names = append(names, string(pair.Value))
		}
	}
	keys := refKeys(sn.repo, names)
	rows, err := readKeys(ctx, v.rows, keys)
	if err != nil {
		return nil, fmt.Errorf("read branches: %w", err)
	}
	branches, err := appendBranches(nil, names, keys, rows)
	if err != nil {
		return nil, err
	}
	for _, ref := range v.undo {
		if ref != nil && strings.HasPrefix(ref.Name, ns.BranchPrefix()) &&
			bytes.Compare(creationKey(sn.repo, ns, ref.Created), created.Start) >= 0 {
			branches = append(branches, *ref)
		}
	}
	slices.SortFunc(branches, func(a, b Ref) int { return a.Created.compare(b.Created) })
	return branches[:min(limit, len(branches))], nil
}
