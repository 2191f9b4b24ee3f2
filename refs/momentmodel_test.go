package refs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// past is the contract of moments, over a copy of the refs for each sequence.
type past struct {
	t     *testing.T
	keys  kv.Store
	store *refs.Store
	repo  refs.RepoID
	clock time.Time

	states []pastState // by sequence - 1
	first  int         // index in states of the oldest transaction in the journal
	floor  time.Time   // from which on the journal is whole; zero while it was not trimmed
	older  int         // how many transactions a release wrote that kept no former states
	held   *refs.Snapshot
}

type pastState struct {
	at      time.Time
	refs    map[string]refs.Ref
	version refs.Version // zero if nobody looked
}

// pastNames have names that are prefixes of others, at each size at which a key changes its form.
func pastNames() []string {
	names := []string{
		"refs/heads/a", "refs/heads/a0", "refs/heads/a-b", "refs/heads/b", "refs/heads/b/c", "refs/heads/b/d/e", "refs/heads/z",
		"refs/tags/a", "refs/tags/b/c", "refs/notes/commits", "refs/namespaces/ephemeral/refs/heads/a",
		"refs/namespaces/ephemeral/refs/heads/b", "refs/namespaces/ephemeral/refs/tags/v",
	}
	for _, size := range []int{961, 962, 963, 974, 975, 976, 990} {
		names = append(names, "refs/heads/x/"+strings.Repeat("x", size-len("refs/heads/x/")))
	}
	return append(names, "refs/heads/x/"+strings.Repeat("x", 962-len("refs/heads/x/"))+"y",
		"refs/heads/x/"+strings.Repeat("x", 975-len("refs/heads/x/"))+"a")
}

func (p *past) now() *pastState { return &p.states[len(p.states)-1] }

// push adds the state that a transaction of the clock has left.
func (p *past) push(state map[string]refs.Ref, version refs.Version) {
	at := p.clock.Truncate(time.Millisecond)
	if len(p.states) > max(p.older, 0) && p.now().at.After(at) {
		at = p.now().at
	}
	p.states = append(p.states, pastState{at, state, version})
}

// look returns the present refs.
func (p *past) look(rt *rapid.T) (map[string]refs.Ref, refs.Version) {
	snapshot, err := p.store.Snapshot(p.t.Context(), p.repo)
	if err != nil {
		rt.Fatal(err)
	}
	state := map[string]refs.Ref{}
	for ref, err := range snapshot.All(p.t.Context(), "") {
		if err != nil {
			rt.Fatal(err)
		}
		state[ref.Name] = ref
	}
	if err := snapshot.Close(); err != nil {
		rt.Fatal(err)
	}
	return state, snapshot.Version()
}

// update runs a transaction and notes what it has left.
func (p *past) update(rt *rapid.T, names *rapid.Generator[string]) {
	p.clock = p.clock.Add(time.Duration(rapid.IntRange(-1500, 4000).Draw(rt, "step")) * time.Millisecond)
	type command struct {
		name string
		to   int
	}
	commands := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) command {
		return command{names.Draw(t, "name"), rapid.IntRange(0, 4).Draw(t, "to")}
	}), 0, 6).Draw(rt, "commands")
	change := refs.Change{Time: p.clock}
	result, err := p.store.Update(p.t.Context(), p.repo, change, func(ctx context.Context, tx *refs.Tx) error {
		for _, c := range commands {
			if c.to == 0 {
				_ = tx.Delete(ctx, c.name, nil)
			} else {
				_ = tx.Set(ctx, c.name, nil, id(c.to), object.ZeroID)
			}
		}
		if len(commands) == 0 {
			tx.Batch().Put([]byte("zzz"), nil) // a transaction that changes no ref
		}
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	if result.Sequence > uint64(len(p.states)) {
		p.push(p.look(rt))
	}
}

// crowd runs transactions that share a batch. They move refs of their own.
func (p *past) crowd(rt *rapid.T) {
	p.clock = p.clock.Add(time.Second)
	c := newCrowd(p.t, p.store, p.repo)
	var all []*told
	for i := range rapid.IntRange(2, 4).Draw(rt, "waiting") {
		change := refs.Change{Combiner: combinable{}, Time: p.clock}
		all = append(all, c.add(p.t.Context(), change, setter(fmt.Sprint("refs/heads/crowd/", i), len(p.states)+1)))
	}
	c.run()
	after, version := p.look(rt)
	for i, got := range all {
		if got.err != nil || len(got.Updates) != 1 {
			rt.Fatal(got.Updates, got.err)
		}
		state := maps.Clone(p.now().refs)
		name := fmt.Sprint("refs/heads/crowd/", i)
		state[name] = after[name]
		if i < len(all)-1 {
			p.push(state, refs.Version{})
		} else {
			p.push(state, version)
		}
	}
	if !maps.Equal(p.now().refs, after) {
		rt.Fatalf("%v, want %v", after, p.now().refs)
	}
}

// trim removes what is older than a random transaction, or than a time beside it.
func (p *past) trim(rt *rapid.T) {
	before := p.states[rapid.IntRange(0, len(p.states)-1).Draw(rt, "before")].at.
		Add(time.Duration(rapid.IntRange(-1, 1).Draw(rt, "beside")) * time.Millisecond)
	first := p.first
	for first < len(p.states) && p.states[first].at.Before(before) {
		first++
	}
	oldest, err := p.store.TrimJournal(p.t.Context(), p.repo, before)
	if err != nil || oldest != uint64(first+1) {
		rt.Fatalf("trimmed to %v: %d, %v; want %d", before, oldest, err, first+1)
	}
	if first > p.first && p.floor.Before(before) {
		p.floor = before
	}
	p.first = first
}

// oldest returns the oldest sequence that a time leads to, and its time.
func (p *past) oldest() (uint64, time.Time) {
	if p.first == 0 || p.first < len(p.states) && !p.floor.Before(p.states[p.first].at) {
		return uint64(p.first + 1), p.states[p.first].at
	}
	return uint64(p.first), p.floor
}

// readable returns the oldest sequence that can be read: the oldest entry of the journal leads back
// to it.
func (p *past) readable() uint64 { return uint64(max(p.first, 1)) }

// downgrade makes the rows what a release has written that kept no former states.
func (p *past) downgrade(rt *rapid.T) {
	batch := kv.NewBatch()
	for _, table := range []byte("hjt") {
		for _, row := range rowsOf(p.t, p.keys, table, p.repo) {
			switch table {
			case 'h':
				batch.Put(row.Key, row.Value[:32])
			case 'j':
				batch.Put(row.Key, olderEntry(row.Value, 2))
			case 't':
				batch.Delete(row.Key)
			}
		}
	}
	if _, err := p.keys.Apply(p.t.Context(), batch); err != nil {
		rt.Fatal(err)
	}
	p.older = len(p.states)
	p.clock = p.now().at.Add(2 * time.Second) // it kept no time in the head
}

// TestMomentsModel runs random transactions, of names that are parts of others and of all sizes,
// alone and in one batch, with trims, restarts and the upgrade from an older release in between,
// and reads the refs at random moments.
func TestMomentsModel(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom(pastNames())
	keys := openKV(t)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		if checks++; testing.Short() && checks > 25 {
			return // the race detector makes each of them ten times as long
		}
		p := &past{t: t, keys: keys, clock: time.Date(2226, 1, 1, 0, 0, 0, 0, time.UTC)}
		open := func(rt *rapid.T) {
			bytes := rapid.SampledFrom([]int64{1, 4000, 1 << 20}).Draw(rt, "cache bytes")
			p.store = refs.Open(keys, refs.Options{CombineMax: 8, CacheBytes: bytes, Now: func() time.Time { return p.clock }})
		}
		open(rt)
		p.repo = createRepo(t, keys, p.store)
		p.push(p.look(rt))
		defer func() { p.drop(rt) }()
		rt.Repeat(map[string]func(*rapid.T){
			"update":  func(rt *rapid.T) { p.update(rt, names) },
			"update2": func(rt *rapid.T) { p.update(rt, names) },
			"update3": func(rt *rapid.T) { p.update(rt, names) },
			"crowd":   p.crowd,
			"reopen":  open,
			"trim":    p.trim,
			"downgrade": func(rt *rapid.T) {
				if !p.floor.IsZero() || p.older > 0 {
					rt.SkipNow()
				}
				p.downgrade(rt)
			},
			"hold": func(rt *rapid.T) {
				p.drop(rt)
				sequence := uint64(rapid.IntRange(1, len(p.states)).Draw(rt, "held"))
				if sequence >= p.readable() {
					p.held = p.open(rt, sequence)
				}
			},
			"": func(rt *rapid.T) { p.check(rt, names) },
		})
		report, err := p.store.Fsck(t.Context(), p.repo)
		if err != nil || report.ProblemCount > 0 {
			rt.Fatalf("%+v, %v", report, err)
		}
		if _, err := p.store.TrimJournal(t.Context(), p.repo, p.clock.AddDate(1, 0, 0)); err != nil {
			rt.Fatal(err)
		}
		if left := rowsOf(t, keys, 't', p.repo); len(left) != 1 || len(left[0].Key) != 17 {
			rt.Fatalf("the journal is empty, and %d former states are left", len(left))
		}
	})
}

// drop closes the snapshot that is held.
func (p *past) drop(rt *rapid.T) {
	if p.held == nil {
		return
	}
	if err := p.held.Close(); err != nil {
		rt.Fatal(err)
	}
	p.held = nil
}

func (p *past) open(rt *rapid.T, sequence uint64, names ...string) *refs.Snapshot {
	snapshot, err := p.store.SnapshotAt(p.t.Context(), p.repo, sequence, names...)
	if err != nil {
		rt.Fatalf("at %d of %d: %v", sequence, len(p.states), err)
	}
	return snapshot
}

// check reads at a random moment, beyond both ends too.
func (p *past) check(rt *rapid.T, names *rapid.Generator[string]) {
	oldest, begins := p.oldest()
	if got, at, err := p.store.Oldest(p.t.Context(), p.repo); err != nil || got != oldest || !at.Equal(begins) {
		rt.Fatalf("oldest %d at %v, %v; want %d at %v", got, at, err, oldest, begins)
	}
	p.checkTime(rt)
	if p.held != nil {
		err := p.walk(rt, p.held)
		if errors.Is(err, refs.ErrTrimmed) && p.held.Sequence() < p.readable() {
			p.drop(rt)
		} else if err != nil {
			rt.Fatal(err)
		}
	}
	sequence := uint64(rapid.IntRange(0, len(p.states)+1).Draw(rt, "sequence"))
	some := rapid.SliceOfN(names, 0, 4).Draw(rt, "names")
	if sequence < p.readable() || sequence > uint64(len(p.states)) {
		want := refs.ErrTrimmed
		if sequence == 0 && p.first == 0 {
			want = refs.ErrBeforeCreation
		} else if sequence > 0 && sequence >= p.readable() {
			want = refs.ErrFuture
		}
		if _, err := p.store.SnapshotAt(p.t.Context(), p.repo, sequence, some...); !errors.Is(err, want) {
			rt.Fatalf("at %d of %d to %d: %v", sequence, oldest, len(p.states), err)
		}
		return
	}
	snapshot := p.open(rt, sequence, some...)
	defer func() {
		if err := snapshot.Close(); err != nil {
			rt.Fatal(err)
		}
	}()
	state := &p.states[sequence-1]
	if snapshot.Sequence() != sequence || snapshot.Count() != len(state.refs) ||
		state.version != (refs.Version{}) && state.version != snapshot.Version() {
		rt.Fatalf("at %d: %v with %d refs, want %v with %d", sequence, snapshot.Version(), snapshot.Count(),
			state.version, len(state.refs))
	}
	for _, name := range append(some, names.Draw(rt, "another"), "refs/heads/crowd/1", "refs/heads") {
		want, exists := state.refs[name]
		ref, err := snapshot.Lookup(p.t.Context(), name)
		if err == nil != exists || ref != want || err != nil && !errors.Is(err, refs.ErrNotFound) {
			rt.Fatalf("at %d: %.40s is %+v, %v; want %+v", sequence, name, ref, err, want)
		}
	}
	if err := p.walk(rt, snapshot); err != nil {
		rt.Fatal(err)
	}
}

// checkTime asks for the sequence at a time beside that of a transaction.
func (p *past) checkTime(rt *rapid.T) {
	at := p.states[rapid.IntRange(0, len(p.states)-1).Draw(rt, "transaction")].at.
		Add(time.Duration(rapid.IntRange(-1, 1).Draw(rt, "beside")) * time.Millisecond)
	oldest, begins := p.oldest()
	want := oldest
	for i := range p.states[oldest:] {
		if !p.states[int(oldest)+i].at.After(at) {
			want = oldest + uint64(i) + 1
		}
	}
	got, err := p.store.SequenceAt(p.t.Context(), p.repo, at)
	if !at.Before(begins) {
		if p.older == 0 && (err != nil || got != want) {
			rt.Fatalf("at %v: %d, %v; want %d", at, got, err, want)
		}
		return
	}
	reason := refs.ErrTrimmed
	if p.first == 0 {
		reason = refs.ErrBeforeCreation
	}
	if !errors.Is(err, reason) {
		rt.Fatalf("at %v, before %v: %d, %v", at, begins, got, err)
	}
}

// walk compares a snapshot with the refs of its sequence, by each way to list them.
func (p *past) walk(rt *rapid.T, snapshot *refs.Snapshot) error {
	state := p.states[snapshot.Sequence()-1].refs
	ctx := p.t.Context()
	names := slices.Sorted(maps.Keys(state))
	prefix := rapid.SampledFrom([]string{
		"", "refs/heads/", "refs/heads/b", "refs/heads/x/xx", "refs/tags/", "refs/heads/b/d/e/", "refs/heads/x/" + strings.Repeat("x", 960),
	}).Draw(rt, "prefix")
	after := rapid.SampledFrom(append(names, "refs/heads/b/", "")).Draw(rt, "after")
	var want []refs.Ref
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && name > after {
			want = append(want, state[name])
		}
	}
	walk := snapshot.After(ctx, prefix, after)
	if after == "" {
		walk = snapshot.All(ctx, prefix)
	}
	var got []refs.Ref
	for ref, err := range walk {
		if err != nil {
			return err
		}
		got = append(got, ref)
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("at %d below %.40q after %.40q: %v, want %v", snapshot.Sequence(), prefix, after, got, want)
	}
	for _, ns := range []refs.Namespace{refs.Main, refs.Ephemeral} {
		var branches []refs.Ref
		for _, name := range names {
			if strings.HasPrefix(name, ns.BranchPrefix()) {
				branches = append(branches, state[name])
			}
		}
		slices.SortFunc(branches, func(a, b refs.Ref) int {
			if a.Created.Sequence != b.Created.Sequence {
				return int(a.Created.Sequence) - int(b.Created.Sequence)
			}
			return int(a.Created.Index) - int(b.Created.Index)
		})
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		place := refs.Creation{}
		for {
			page, err := snapshot.Branches(ctx, ns, place, limit)
			if err != nil {
				return err
			}
			if part := branches[:min(limit, len(branches))]; !slices.Equal(page, part) {
				rt.Fatalf("at %d: branches %v, want %v", snapshot.Sequence(), page, part)
			}
			branches = branches[len(page):]
			if len(page) < limit {
				break
			}
			place = page[len(page)-1].Created
		}
	}
	return nil
}
