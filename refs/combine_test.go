package refs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
	"packhorse/refs"
)

// combinable is the Combiner of a transaction that reads nothing but refs.
type combinable struct{ refuses bool }

func (c combinable) Follow(before []refs.Combiner) bool { return len(before) == 0 || !c.refuses }

// crowd is transactions that wait for the turn of a repository while another one has it.
type crowd struct {
	t       *testing.T
	store   *refs.Store
	repo    refs.RepoID
	release chan struct{}
	running sync.WaitGroup
	waiting int
}

// newCrowd gives the turn of a repository to a transaction that keeps it until [crowd.run].
func newCrowd(t *testing.T, store *refs.Store, repo refs.RepoID) *crowd {
	t.Helper()
	c := &crowd{t: t, store: store, repo: repo, release: make(chan struct{})}
	has := make(chan struct{})
	c.running.Go(func() {
		_, err := store.Update(context.Background(), repo, refs.Change{}, func(context.Context, *refs.Tx) error {
			close(has)
			<-c.release
			return refs.ErrUnchanged
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-has
	return c
}

// told is what Update returned.
type told struct {
	refs.Result
	err error
}

// add starts a transaction, and returns when it waits behind the others.
func (c *crowd) add(ctx context.Context, change refs.Change, prepare func(context.Context, *refs.Tx) error) *told {
	c.t.Helper()
	got := new(told)
	c.running.Go(func() {
		got.err = rescue.Do(func() (err error) {
			got.Result, err = c.store.Update(ctx, c.repo, change, prepare)
			return err
		})
	})
	for c.waiting++; c.store.Waiting(c.repo) <= c.waiting; {
		runtime.Gosched()
	}
	return got
}

// join is add of a transaction that may share a batch.
func (c *crowd) join(prepare func(context.Context, *refs.Tx) error) *told {
	c.t.Helper()
	return c.add(c.t.Context(), refs.Change{Combiner: combinable{}}, prepare)
}

// run lets the transactions go, and returns when all have ended.
func (c *crowd) run() {
	close(c.release)
	c.running.Wait()
	if left := c.store.Waiting(c.repo); left != 0 {
		c.t.Errorf("%d are left", left)
	}
}

// want checks the result of a transaction.
func (got *told) want(t *testing.T, name string, sequence uint64, err error) {
	t.Helper()
	if !errors.Is(got.err, err) || err == nil && got.Sequence != sequence {
		t.Errorf("%s: %d, %v; want %d, %v", name, got.Sequence, got.err, sequence, err)
	}
}

// openCombining is openCounted of a store that combines.
func openCombining(t *testing.T) (*counting, *refs.Store, refs.RepoID) {
	t.Helper()
	return openCounted(t, refs.Options{CombineMax: 64})
}

// Transactions that wait become one batch, which is read for in one trip and applied in another.
// Each is prepared on those before it, and leaves its own entries.
func TestCombine(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	set(t, store, repo, "refs/heads/main", 1)
	c := newCrowd(t, store, repo)
	keys.take()
	var all []*told
	for i := range 20 {
		change := refs.Change{Combiner: combinable{}, Names: []string{"refs/heads/main"}, Actor: fmt.Sprint(i), Org: "acme"}
		all = append(all, c.add(t.Context(), change, func(ctx context.Context, tx *refs.Tx) error {
			if tx.Sequence() != uint64(2+i) || tx.Count() != 1+i/2 {
				t.Errorf("%d is prepared on %d with %d refs", i, tx.Sequence(), tx.Count())
			}
			if i%2 == 0 {
				return tx.Set(ctx, "refs/heads/main", new(id(i/2+1)), id(i/2+2), object.ZeroID)
			}
			return tx.Set(ctx, fmt.Sprintf("refs/tags/%d", i), &object.ZeroID, id(i), object.ZeroID)
		}))
	}
	c.run()
	calls := strings.Split(keys.take(), ", ")
	applied := slices.DeleteFunc(slices.Clone(calls), func(call string) bool { return call != "apply" })
	// The holder looks at its head again; the feed begins with a search and a batch of its own.
	if calls[0] != "get h" || calls[1] != "read h r" || len(applied) != 2 || calls[len(calls)-1] != "apply" {
		t.Errorf("%s", calls)
	}
	for i, got := range all {
		got.want(t, fmt.Sprint(i), uint64(3+i), nil)
		if len(got.Updates) != 1 || got.Updates[0].Sequence != uint64(3+i) {
			t.Errorf("%d: %+v", i, got.Updates)
		}
	}
	page, err := store.Events(t.Context(), repo, 2, 100)
	if err != nil || len(page.Entries) != len(all) {
		t.Fatalf("%d entries, %v", len(page.Entries), err)
	}
	for i, entry := range page.Entries {
		if entry.Sequence != uint64(3+i) || entry.Actor != fmt.Sprint(i) || entry.After != all[i].Updates[0].After ||
			entry.Before != all[i].Updates[0].Before {
			t.Errorf("%d: %+v", i, entry)
		}
	}
	feed, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 100)
	if err != nil || len(feed.Events) != len(all) {
		t.Fatalf("%d events, %v", len(feed.Events), err)
	}
	for i, event := range feed.Events {
		if event.Sequence != uint64(3+i) {
			t.Errorf("event %d: %+v", i, event)
		}
	}
	// A cache that was made before follows along the journal, and one that is new reads the same.
	if got := state(t, openSnapshot(t, store, repo)); len(got) != 11 || got["refs/heads/main"] != id(11) {
		t.Errorf("%v", got)
	}
	checkTables(t, keys, repo)
}

// A transaction alone does what it did: no trip more.
func TestCombineAlone(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	costs(t, keys, []tripStep{
		{"alone", updates(t.Context(), store, repo, refs.Change{Combiner: combinable{}}, setter("refs/heads/a", 1)), "get h, apply", nil},
		{"a refusal", updates(t.Context(), store, repo, refs.Change{Combiner: combinable{}}, unsupported), "get h, get h", errors.ErrUnsupported},
	})
}

// A refusal in the middle leaves nothing in the batch, and the others do not see it.
func TestCombineRefusals(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	set(t, store, repo, "refs/heads/main", 1)
	c := newCrowd(t, store, repo)
	moves := func(from, to int) func(context.Context, *refs.Tx) error {
		return func(ctx context.Context, tx *refs.Tx) error {
			tx.Batch().Put(fmt.Appendf(nil, "zz%d", to), nil)
			return tx.Set(ctx, "refs/heads/main", new(id(from)), id(to), object.ZeroID)
		}
	}
	refusedFirst := c.join(moves(7, 8))
	first := c.join(moves(1, 2))
	stale := c.join(moves(1, 3))
	failed := c.join(func(ctx context.Context, tx *refs.Tx) error {
		return errors.Join(moves(2, 4)(ctx, tx), unsupported(ctx, tx))
	})
	unchanged := c.join(func(ctx context.Context, tx *refs.Tx) error {
		return errors.Join(moves(2, 5)(ctx, tx), refs.ErrUnchanged)
	})
	second := c.join(moves(2, 6))
	conflict := c.join(setter("refs/heads/main/x", 1))
	keys.take()
	c.run()
	if calls := keys.take(); calls != "get h, get h, get r, get r, get r, apply" && !strings.HasSuffix(calls, "apply") ||
		strings.Count(calls, "apply") != 1 {
		t.Error(calls)
	}
	refusedFirst.want(t, "refused first", 0, refs.ErrStale)
	first.want(t, "first", 3, nil)
	var staleErr *refs.StaleError
	if !errors.As(stale.err, &staleErr) || staleErr.Actual != id(2) {
		t.Errorf("stale: %v", stale.err)
	}
	failed.want(t, "failed", 0, errors.ErrUnsupported)
	unchanged.want(t, "unchanged", 3, nil)
	second.want(t, "second", 4, nil)
	conflict.want(t, "conflict", 0, refs.ErrNameConflict)
	var rows []string
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte("zz"), End: []byte("z~")}) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, string(pair.Key))
	}
	if fmt.Sprint(rows) != "[zz2 zz6]" {
		t.Errorf("rows %v", rows)
	}
	checkTables(t, keys, repo)
}

// Of equal requests that wait together one is committed, and the others are its replays.
func TestCombineReceipts(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	c := newCrowd(t, store, repo)
	keyed := func(key, body string, n int) *told {
		change := refs.Change{Combiner: combinable{}, Receipt: receipt(repo, key, body)}
		return c.add(t.Context(), change, committer(n, fmt.Sprint(n)))
	}
	all := []*told{keyed("k", "", 1), keyed("k", "", 2), keyed("k", "other", 3), keyed("l", "", 4), keyed("k", "", 5)}
	keys.take()
	c.run()
	if calls := keys.take(); strings.Count(calls, "apply") != 1 {
		t.Error(calls)
	}
	for i, want := range []struct {
		sequence uint64
		replayed bool
		err      error
	}{{2, false, nil}, {2, true, nil}, {0, false, refs.ErrReceiptMismatch}, {3, false, nil}, {2, true, nil}} {
		all[i].want(t, fmt.Sprint(i), want.sequence, want.err)
		if want.err == nil && all[i].Replayed != want.replayed || want.replayed && string(all[i].Receipt) != "1" {
			t.Errorf("%d: %+v", i, all[i].Result)
		}
	}
}

// When another server is first, all are prepared again, and what a first try was refused for on top
// of others counts for nothing.
func TestCombineLostRace(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	other := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, other)
	set(t, other, repo, "refs/heads/main", 1)
	struck, isArmed := 0, false
	store := refs.Open(&intruder{Store: keys, strike: func() {
		if isArmed && struck == 0 {
			struck++
			set(t, other, repo, "refs/heads/main", 7)
		}
	}}, refs.Options{CombineMax: 64})
	c := newCrowd(t, store, repo)
	moves := func(from, to int) *told {
		return c.join(func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, "refs/heads/main", new(id(from)), id(to), object.ZeroID)
		})
	}
	loser, stale, winner := moves(1, 2), moves(1, 3), moves(7, 8)
	bystander := c.join(setter("refs/heads/other", 1))
	late := moves(8, 9)
	isArmed = true
	c.run()
	for name, refused := range map[string]*told{"loser": loser, "stale": stale} {
		var err *refs.StaleError
		if !errors.As(refused.err, &err) || err.Actual != id(7) {
			t.Errorf("%s: %v", name, refused.err)
		}
	}
	winner.want(t, "winner", 4, nil)
	bystander.want(t, "bystander", 5, nil)
	late.want(t, "late", 6, nil)
	checkTables(t, keys, repo)
}

// A batch that fails fails for all that are in it; who was refused on top of them is decided anew.
func TestCombineFailure(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	repo := createRepo(t, keys, refs.Open(keys, refs.Options{}))
	away := &broken{Store: keys}
	store := refs.Open(away, refs.Options{CombineMax: 64})
	c := newCrowd(t, store, repo)
	first, second := c.join(setter("refs/heads/a", 1)), c.join(setter("refs/heads/b", 1))
	refused := c.join(func(ctx context.Context, tx *refs.Tx) error {
		return tx.Set(ctx, "refs/heads/a", &object.ZeroID, id(2), object.ZeroID)
	})
	away.fails = 1
	c.run()
	first.want(t, "first", 0, kv.ErrUnavailable)
	second.want(t, "second", 0, kv.ErrUnavailable)
	refused.want(t, "refused", 2, nil)
}

// broken is a store whose first batches fail.
type broken struct {
	kv.Store
	fails int
}

func (s *broken) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if s.fails > 0 {
		s.fails--
		return nil, kv.ErrUnavailable
	}
	return s.Store.Apply(ctx, batch)
}

// Who gives up, before the group begins or while others of it are prepared, leaves at once, and so
// does who panics. The others go on.
func TestCombineLeavers(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	c := newCrowd(t, store, repo)
	inGroup, leave := context.WithCancel(t.Context())
	outside, leaveEarly := context.WithCancel(t.Context())
	inside, leaveInside := context.WithCancel(t.Context())
	panicking := func(context.Context, *refs.Tx) error { panic("boom") }
	asking := refs.Change{Combiner: combinable{}, Ahead: func() (kv.ReadSet, func(kv.Rows)) { panic("boom") }}
	left := make(chan struct{})

	early := c.add(outside, refs.Change{Combiner: combinable{}}, setter("refs/heads/early", 1))
	leaveEarly()
	for store.Waiting(repo) > c.waiting {
		runtime.Gosched()
	}
	c.waiting--
	panicsFirst := c.join(panicking)
	first := c.join(func(ctx context.Context, tx *refs.Tx) error {
		leave()
		<-left // the next one but one has gone before its turn
		return setter("refs/heads/first", 1)(ctx, tx)
	})
	var gone told
	c.running.Go(func() {
		defer close(left)
		_, gone.err = store.Update(inGroup, repo, refs.Change{Combiner: combinable{}}, setter("refs/heads/gone", 1))
	})
	for c.waiting++; store.Waiting(repo) <= c.waiting; {
		runtime.Gosched()
	}
	panics := c.join(panicking)
	panicsAsked := c.add(t.Context(), asking, setter("refs/heads/asked", 1))
	stops := c.add(inside, refs.Change{Combiner: combinable{}}, func(ctx context.Context, _ *refs.Tx) error {
		leaveInside()
		return ctx.Err()
	})
	last := c.join(setter("refs/heads/last", 1))
	panicsLast := c.join(panicking)
	keys.take()
	c.run()
	if calls := keys.take(); strings.Count(calls, "apply") != 1 {
		t.Error(calls)
	}
	for name, got := range map[string]*told{"early": early, "in the group": &gone, "inside": stops} {
		got.want(t, name, 0, context.Canceled)
	}
	for name, got := range map[string]*told{"first": panicsFirst, "middle": panics, "asked": panicsAsked, "last": panicsLast} {
		if _, ok := errors.AsType[*rescue.PanicError](got.err); !ok {
			t.Errorf("panics %s: %v", name, got.err)
		}
	}
	first.want(t, "first", 2, nil)
	last.want(t, "last", 3, nil)
	checkTables(t, keys, repo)
	// All of a group may leave.
	c = newCrowd(t, store, repo)
	c.join(panicking)
	c.join(panicking)
	c.run()
	set(t, store, repo, "refs/heads/after", 1)
}

// Transactions that may not share a batch, and those that cannot build on others, begin one, in the
// order of the calls.
func TestCombineApart(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCombining(t)
	c := newCrowd(t, store, repo)
	tries := map[string]int{}
	step := func(name string, change refs.Change, prepare func(context.Context, *refs.Tx) error) *told {
		return c.add(t.Context(), change, func(ctx context.Context, tx *refs.Tx) error {
			tries[name]++
			return prepare(ctx, tx)
		})
	}
	free := refs.Change{Combiner: combinable{}}
	alone := func(ctx context.Context, tx *refs.Tx) error {
		if tries["cannot"] == 1 {
			return fmt.Errorf("behind others: %w", refs.ErrAlone)
		}
		return setter("refs/heads/f", 1)(ctx, tx)
	}
	requires := func(value string) func(context.Context, *refs.Tx) error {
		return func(ctx context.Context, tx *refs.Tx) error {
			if tries[value] == 1 {
				tx.Batch().RequireAbsent([]byte("zrow"))
			} else {
				tx.Batch().Require([]byte("zrow"), []byte("x"))
			}
			tx.Batch().Put([]byte("zrow"), []byte("x"))
			return setter("refs/heads/"+value, 1)(ctx, tx)
		}
	}
	large := func(name string) func(context.Context, *refs.Tx) error {
		return func(ctx context.Context, tx *refs.Tx) error {
			for i := range 20 {
				tx.Batch().Put(fmt.Appendf(nil, "z%s%d", name, i), make([]byte, kv.ValueBytesMax))
			}
			return setter("refs/heads/"+name, 1)(ctx, tx)
		}
	}
	all := []*told{
		step("a", free, setter("refs/heads/a", 1)), step("b", free, setter("refs/heads/b", 1)), // a batch
		step("plain", refs.Change{}, setter("refs/heads/c", 1)),                                      // a batch
		step("d", free, setter("refs/heads/d", 1)),                                                   // a batch
		step("refuses", refs.Change{Combiner: combinable{refuses: true}}, setter("refs/heads/e", 1)), // a batch
		step("cannot", free, alone),                                                                  // a batch
		step("row1", free, requires("row1")),                                                         // the same
		step("row2", free, requires("row2")),                                                         // a batch
		step("large1", free, large("large1")),                                                        // the same
		step("large2", free, large("large2")),                                                        // the same
		step("large3", free, large("large3")),                                                        // a batch
		step("range", free, func(_ context.Context, tx *refs.Tx) error { // a batch
			tx.Batch().DeleteRange([]byte("zl"), []byte("zm"))
			return nil
		}),
		step("drop", free, drop), // a batch
	}
	gone := step("gone", free, setter("refs/heads/gone", 1))
	keys.take()
	c.run()
	if calls := keys.take(); strings.Count(calls, "apply") != 9 {
		t.Error(calls)
	}
	for i, got := range all {
		got.want(t, fmt.Sprint(i), uint64(2+i), nil)
	}
	gone.want(t, "gone", 0, refs.ErrRepositoryNotFound)
	want := map[string]int{
		"a": 1, "b": 1, "plain": 1, "d": 1, "refuses": 1, "cannot": 2, "row1": 1, "row2": 2, "large1": 1, "large2": 1,
		"large3": 2, "range": 2, "drop": 1,
	}
	if !maps.Equal(tries, want) {
		t.Errorf("tries %v, want %v", tries, want)
	}
}

// Transactions that wait together leave what they leave one after the other.
func TestCombineModel(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{
		"refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/b", "refs/tags/a", "refs/tags/a/b",
		"refs/namespaces/ephemeral/refs/heads/a", "refs/heads/" + strings.Repeat("x", 980),
		"refs/heads/" + strings.Repeat("x", 980) + "/y",
	})
	type command struct {
		name     string
		expected *object.ID
		to       object.ID
	}
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{CombineMax: 5})
	rapid.Check(t, func(rt *rapid.T) {
		repo := createRepo(t, keys, store)
		want, created := model{}, 0
		history := []model{{}}
		for range rapid.IntRange(1, 4).Draw(rt, "crowds") {
			c := newCrowd(t, store, repo)
			var all []*told
			var plans [][]command
			for range rapid.IntRange(1, 7).Draw(rt, "transactions") {
				var plan []command
				for range rapid.IntRange(1, 3).Draw(rt, "commands") {
					step := command{name: names.Draw(rt, "name"), to: id(rapid.IntRange(0, 3).Draw(rt, "to"))}
					if n := rapid.IntRange(-3, 3).Draw(rt, "expected"); n >= 0 {
						step.expected = new(id(n))
					}
					plan = append(plan, step)
				}
				change := refs.Change{Names: rapid.SliceOfN(names, 0, 4).Draw(rt, "names"), Combiner: combinable{}}
				plans = append(plans, plan)
				all = append(all, c.add(t.Context(), change, func(ctx context.Context, tx *refs.Tx) error {
					for _, step := range plan {
						err := error(nil)
						if step.to.IsZero() {
							err = tx.Delete(ctx, step.name, step.expected)
						} else {
							err = tx.Set(ctx, step.name, step.expected, step.to, object.ZeroID)
						}
						if err != nil {
							return err
						}
					}
					return nil
				}))
			}
			c.run()
			for i, plan := range plans {
				next, wanted := maps.Clone(want), error(nil)
				for _, step := range plan {
					created++
					if wanted = next.set(step.name, step.expected, step.to, created); wanted != nil {
						break
					}
				}
				if !errors.Is(all[i].err, wanted) {
					rt.Fatalf("%d, %v: got %v, want %v", i, plan, all[i].err, wanted)
				}
				if wanted == nil && !maps.Equal(want, next) {
					want = next
					history = append(history, maps.Clone(want))
				}
				if wanted == nil && all[i].Sequence != uint64(len(history)) {
					rt.Fatalf("%d: sequence %d, want %d", i, all[i].Sequence, len(history))
				}
			}
		}
		snapshot, err := store.Snapshot(t.Context(), repo)
		if err != nil {
			rt.Fatal(err)
		}
		if got := state(t, snapshot); !maps.Equal(got, want.ids()) || snapshot.Count() != len(want) {
			rt.Fatalf("got %v, count %d, want %v", got, snapshot.Count(), want)
		}
		page, err := store.Events(t.Context(), repo, 0, refs.EventsMax)
		if err = errors.Join(err, snapshot.Close()); err != nil || page.More {
			rt.Fatal(page.More, err)
		}
		checkHistory(rt, page.Entries, history)
		checkTables(rt, keys, repo)
	})
}
