package refs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// counting is a store that notes the calls that would be round trips over a network.
type counting struct {
	kv.Store
	mu    sync.Mutex
	calls []string // guarded by mu
}

func (s *counting) note(call string, keys ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		call += " " + string(key[:min(1, len(key))])
	}
	s.calls = append(s.calls, call)
}

// take returns the calls since it was called last, each with the tables of what it asks for.
func (s *counting) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}

func tablesOf(set kv.ReadSet) [][]byte {
	var tables [][]byte
	for _, key := range set.Keys {
		tables = append(tables, key[:1])
	}
	for _, options := range set.Ranges {
		tables = append(tables, []byte(strings.ToUpper(string(options.Start[:1]))))
	}
	return slices.CompactFunc(tables, slices.Equal)
}

func (s *counting) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.note("get", key)
	return s.Store.Get(ctx, key)
}

func (s *counting) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.note("read", tablesOf(set)...)
	return s.Store.Read(ctx, set)
}

func (s *counting) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	s.note("scan", options.Start)
	return s.Store.Scan(ctx, options)
}

func (s *counting) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.note("snapshot")
	snapshot, err := s.Store.Snapshot(ctx)
	return countingSnapshot{snapshot, s}, err
}

func (s *counting) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	s.note("apply")
	return s.Store.Apply(ctx, batch)
}

type countingSnapshot struct {
	kv.Snapshot
	store *counting
}

func (s countingSnapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.store.note("get", key)
	return s.Snapshot.Get(ctx, key)
}

func (s countingSnapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.store.note("read", tablesOf(set)...)
	return s.Snapshot.Read(ctx, set)
}

func (s countingSnapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	s.store.note("scan", options.Start)
	return s.Snapshot.Scan(ctx, options)
}

// openCounted opens a repository whose store counts.
func openCounted(t *testing.T, options refs.Options) (*counting, *refs.Store, refs.RepoID) {
	t.Helper()
	keys := &counting{Store: openKV(t)}
	store := refs.Open(keys, options)
	repo := createRepo(t, keys, store)
	keys.take()
	return keys, store, repo
}

// costs does one step after the other and compares the calls of the store.
func costs(t *testing.T, keys *counting, steps []tripStep) {
	t.Helper()
	keys.take()
	for _, step := range steps {
		if err := step.do(); !errors.Is(err, step.err) {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := keys.take(); got != step.want {
			t.Errorf("%s: %s; want %s", step.name, got, step.want)
		}
	}
}

type tripStep struct {
	name string
	do   func() error
	want string // see counting.take; capitals are ranges of a read
	err  error
}

// updates returns a step's do: a transaction.
func updates(
	ctx context.Context, store *refs.Store, repo refs.RepoID, change refs.Change,
	prepare func(context.Context, *refs.Tx) error,
) func() error {
	return func() error {
		_, err := store.Update(ctx, repo, change, prepare)
		return err
	}
}

// A transaction reads its head, and all that an equal request may have left, at once.
func TestTripsOfReceipts(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	update := func(key, body string, prepare func(context.Context, *refs.Tx) error) func() error {
		return updates(t.Context(), store, repo, refs.Change{Receipt: receipt(repo, key, body)}, prepare)
	}
	costs(t, keys, []tripStep{
		{"a search", func() error {
			_, _, err := store.FindReceipt(t.Context(), receipt(repo, "k", ""))
			return err
		}, "read i", nil},
		{"a transaction", update("k", "", func(_ context.Context, tx *refs.Tx) error {
			tx.Batch().Put([]byte("zzz"), nil)
			return nil
		}), "read h i, apply", nil},
		{"its replay", update("k", "", setter()), "read h i", nil},
		{"another request", update("k", "other", setter()), "read h i", refs.ErrReceiptMismatch},
		{"one that fails", update("k2", "", unsupported), "read h i, get h", errors.ErrUnsupported},
	})
}

func unsupported(context.Context, *refs.Tx) error { return errors.ErrUnsupported }

// A replay does not wait for the transaction that has the turn.
func TestReplayBesideATurn(t *testing.T) {
	t.Parallel()
	store, repo := openRepo(t)
	change := refs.Change{Receipt: receipt(repo, "k", "")}
	if _, err := store.Update(t.Context(), repo, change, committer(1, "one")); err != nil {
		t.Fatal(err)
	}
	_, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, _ *refs.Tx) error {
		result, err := store.Update(ctx, repo, change, func(context.Context, *refs.Tx) error {
			t.Error("prepared again")
			return nil
		})
		if err != nil || string(result.Receipt) != "one" {
			t.Errorf("%+v, %v", result, err)
		}
		return refs.ErrUnchanged
	})
	if err != nil {
		t.Fatal(err)
	}
}

// More buckets than a read may have are searched in several.
func TestReceiptsOfManyHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	keys, store, repo := openCounted(t, refs.Options{
		ReceiptAge: 2500 * time.Hour, Now: func() time.Time { return now },
	})
	change := refs.Change{Receipt: receipt(repo, "k", "")}
	if _, err := store.Update(t.Context(), repo, change, committer(1, "one")); err != nil {
		t.Fatal(err)
	}
	begin := now
	for _, hours := range []int{0, 1, 996, 997, 998, 999, 1000, 1001, 2500} {
		now = begin.Add(time.Duration(hours) * time.Hour)
		keys.take()
		result, err := store.Update(t.Context(), repo, change, committer(2, "two"))
		if err != nil || string(result.Receipt) != "one" {
			t.Errorf("after %d hours: %+v, %v", hours, result, err)
		}
		if got := keys.take(); got != "read h i, read i, read i" {
			t.Errorf("after %d hours: %s", hours, got)
		}
	}
	now = begin.Add(2503 * time.Hour)
	if result, err := store.Update(t.Context(), repo, change, committer(2, "two")); err != nil || result.Replayed {
		t.Errorf("after its life: %+v, %v", result, err)
	}
}

// What a transaction names is read with its head; what that could conflict with, once.
func TestTripsOfUpdate(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	update := func(change refs.Change, prepare func(context.Context, *refs.Tx) error) func() error {
		return updates(t.Context(), store, repo, change, prepare)
	}
	named := func(names ...string) refs.Change { return refs.Change{Names: names} }
	var many []any
	var manyNames []string
	for i := range 2500 {
		manyNames = append(manyNames, fmt.Sprintf("refs/heads/many/%d", i))
		many = append(many, manyNames[i], i+1)
	}
	fed := named("refs/heads/a")
	fed.Org, fed.Receipt = "acme", receipt(repo, "k", "")
	costs(t, keys, []tripStep{
		{"the first ref", update(named("refs/heads/a"), setter("refs/heads/a", 1)), "read h r, apply", nil},
		{"a move", update(named("refs/heads/a"), setter("refs/heads/a", 2)), "read h r, apply", nil},
		{"a move without a name", update(named(), setter("refs/heads/a", 3)), "get h, get r, apply", nil},
		{
			"the first one of an organization", update(fed, setter("refs/heads/a", 4)),
			"read h i r, read E, apply, apply", nil,
		},
		{
			"one without a key", update(refs.Change{Org: "acme", Names: fed.Names}, setter("refs/heads/a", 5)),
			"read h r, apply", nil,
		},
		{"a creation", update(named("refs/heads/b"), setter("refs/heads/b", 1)), "read h r, read R, apply", nil},
		{
			"creations in folders", update(named("refs/heads/a", "refs/heads/c/d", "refs/heads/c/e", "refs/heads/b"),
				setter("refs/heads/b", 2, "refs/heads/c/d", 1, "refs/heads/c/e", 1)), "read h r, read r R, apply", nil,
		},
		{
			"a creation without a name", update(named(), setter("refs/heads/f/g", 1)), "get h, get r, get r, scan r, apply", nil,
		},
		{"many creations", update(named(manyNames...), setter(many...)), "read h r, read r, read r, read r R, read R, read R, apply", nil},
	})
	for i := range many {
		if i%2 == 1 {
			many[i] = many[i].(int) + 1
		}
	}
	costs(t, keys, []tripStep{
		{"many moves", update(named(manyNames...), setter(many...)), "read h r, read r, read r, apply", nil},
		{
			"a conflict", update(named("refs/heads/many", "refs/heads/a/x"), setter("refs/heads/a/x", 1)),
			"read h r, read r R, get h", refs.ErrNameConflict,
		},
	})
}

// What a change reads ahead is read with the head, for each try anew.
func TestAhead(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	put := func(value string) {
		b := kv.NewBatch()
		b.Put([]byte("z1"), []byte(value))
		b.Put([]byte("z2"), []byte(value))
		if _, err := keys.Store.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	var got string
	ahead := func() (kv.ReadSet, func(kv.Rows)) {
		set := kv.ReadSet{
			Keys:   [][]byte{[]byte("z1"), []byte("y")},
			Ranges: []kv.ScanOptions{{Start: []byte("z2"), End: []byte("z3")}},
		}
		return set, func(rows kv.Rows) {
			got += fmt.Sprintf("%s %t %s, ", rows.Values[0], rows.Values[1] == nil, rows.Pages[0].Pairs[0].Value)
		}
	}
	take := func() string {
		defer func() { got = "" }()
		return got
	}
	other := refs.Open(keys.Store, refs.Options{})
	raced := false
	racing := func(ctx context.Context, tx *refs.Tx) error {
		if !raced {
			raced = true
			put("b")
			set(t, other, repo, "refs/heads/raced", 1)
		}
		return setter("refs/heads/a", 2)(ctx, tx)
	}
	keyed := refs.Change{Ahead: ahead, Receipt: receipt(repo, "k", ""), Names: []string{"refs/heads/a"}}
	costs(t, keys, []tripStep{
		{"a change", updates(t.Context(), store, repo, refs.Change{Ahead: ahead}, setter("refs/heads/a", 1)), "read h z y Z, apply", nil},
		{"a race", updates(t.Context(), store, repo, keyed, racing), "read h z y i r Z, apply, read h z y i r Z, apply", nil},
		{"a replay", updates(t.Context(), store, repo, keyed, nil), "read h z y i r Z", nil},
	})
	if got := take(); got != "a true a, a true a, b true b, " {
		t.Errorf("read ahead: %s", got)
	}

	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("refs/heads/many/%d", i)
	}
	many[0] = "refs/heads/a"
	snapshot, err := other.SnapshotWith(t.Context(), repo, ahead, many...)
	if err != nil {
		t.Fatal(err)
	}
	if ref, err := snapshot.Lookup(t.Context(), "refs/heads/a"); err != nil || ref.ID != id(2) {
		t.Errorf("%+v, %v", ref, err)
	}
	if _, err := snapshot.Lookup(t.Context(), many[1999]); !errors.Is(err, refs.ErrNotFound) {
		t.Error(err)
	}
	if got := take(); got != "b true b, " {
		t.Errorf("read ahead: %s", got)
	}
	if err := snapshot.Close(); err != nil {
		t.Error(err)
	}

	_, err = store.SnapshotWith(t.Context(), refs.NewRepoID(), ahead)
	if !errors.Is(err, refs.ErrRepositoryNotFound) || take() != "" {
		t.Errorf("no repository: %v", err)
	}
	_, err = store.SnapshotWith(t.Context(), repo, func() (kv.ReadSet, func(kv.Rows)) {
		return kv.ReadSet{Keys: make([][]byte, refs.AheadMax+1)}, nil
	})
	if !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("too many rows: %v", err)
	}
}

// Readers of refs ask for the head and for what they want, and for a view only when others write.
func TestTripsOfSnapshot(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	with := func(store *refs.Store, do func(*refs.Snapshot) error) func() error {
		return func() error {
			snapshot, err := store.Snapshot(t.Context(), repo)
			if err != nil {
				return err
			}
			return errors.Join(do(snapshot), snapshot.WaitDurable(t.Context()), snapshot.Close())
		}
	}
	list := func(want int) func(*refs.Snapshot) error {
		return func(snapshot *refs.Snapshot) error {
			if got := len(state(t, snapshot)); got != want {
				t.Errorf("%d refs, want %d", got, want)
			}
			return nil
		}
	}
	lookup := func(snapshot *refs.Snapshot) error {
		ref, err := snapshot.Lookup(t.Context(), "refs/heads/a")
		_, noErr := snapshot.Lookup(t.Context(), "refs/heads/none")
		if ref.ID != id(1) || !errors.Is(noErr, refs.ErrNotFound) {
			t.Errorf("%+v, %v, %v", ref, err, noErr)
		}
		return err
	}
	branches := func(snapshot *refs.Snapshot) error {
		page, err := snapshot.Branches(t.Context(), refs.Main, refs.Creation{}, 2)
		if len(page) != 2 || page[0].Name != "refs/heads/b" || page[1].Name != "refs/heads/a" {
			t.Errorf("%+v", page)
		}
		return err
	}
	fresh := func() *refs.Store { return refs.Open(keys, refs.Options{}) }
	named := func(store *refs.Store) func() error {
		return func() error {
			snapshot, err := store.Snapshot(t.Context(), repo, "refs/heads/a", "refs/heads/none", "")
			if err != nil {
				return err
			}
			return errors.Join(lookup(snapshot), snapshot.Close())
		}
	}
	other := fresh()
	moving := func(do func(*refs.Snapshot) error) func(*refs.Snapshot) error {
		return func(snapshot *refs.Snapshot) error {
			set(t, store, repo, "refs/heads/a", 7)
			defer set(t, store, repo, "refs/heads/a", 1)
			keys.take()
			err := do(snapshot)
			keys.note("end")
			return err
		}
	}
	costs(t, keys, []tripStep{
		{"a list of nothing", with(store, list(0)), "get h", nil},
		{"writes", func() error { set(t, store, repo, "refs/heads/b", 1, "refs/heads/a", 1); return nil }, "get h, apply", nil},
		{"a list after them", with(store, list(2)), "get h, scan j", nil},
		{"a list again", with(store, list(2)), "get h", nil},
		{"the first list", with(other, list(2)), "get h, read h R", nil},
		{"lookups in a list", with(store, lookup), "get h", nil},
		{"named lookups in a list", named(store), "get h", nil},
		{"a write", func() error { set(t, store, repo, "refs/heads/c", 1); return nil }, "get h, get r, scan r, apply", nil},
		{"named lookups behind a list", named(store), "read h r", nil},
		{"named lookups, far from the list", named(other), "get h, read r h, read r h", nil},
		{"the same again", named(other), "read h r", nil},
		{"named lookups", named(fresh()), "read h r", nil},
		{"lookups", with(fresh(), lookup), "get h, read r h, read r h", nil},
		{"branches", with(fresh(), branches), "get h, read h C, read r h", nil},
		{
			"lookups in the past", with(fresh(), moving(lookup)),
			"read r h, snapshot, get h, scan j, get r, end, get h, get r, apply", nil,
		},
		{
			"branches in the past", with(fresh(), moving(branches)),
			"read h C, snapshot, get h, scan j, scan c, read r, end, get h, get r, apply", nil,
		},
	})
}

// A page of the journal, or of a feed, is a few reads, however many transactions it has.
func TestTripsOfJournal(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	change := refs.Change{Org: "acme"}
	for i := range 30 {
		if _, err := store.Update(t.Context(), repo, change, setter("refs/heads/a", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // transactions without a change of a ref
		if _, err := store.Update(t.Context(), repo, change, func(_ context.Context, tx *refs.Tx) error {
			tx.Batch().Put([]byte("zzz"), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var long []any
	for i := range 9 {
		long = append(long, fmt.Sprintf("refs/tags/%d", i), 1)
	}
	if _, err := store.Update(t.Context(), repo, change, setter(long...)); err != nil {
		t.Fatal(err)
	}
	events := func(after uint64, limit, want int, more bool) func() error {
		return func() error {
			page, err := store.Events(t.Context(), repo, after, limit)
			if len(page.Entries) != want || page.More != more {
				t.Errorf("%d entries, more: %t", len(page.Entries), page.More)
			}
			return err
		}
	}
	behind := func(text string, limit, want int) func() error {
		return func() error {
			after, err := refs.ParseJournalCursor(text)
			if err != nil {
				return err
			}
			page, err := store.EventsBehind(t.Context(), repo, after, limit)
			if len(page.Events) != want {
				t.Errorf("%d events", len(page.Events))
			}
			return err
		}
	}
	costs(t, keys, []tripStep{
		{"the first events", events(0, 10, 10, true), "read h J", nil},
		{"all events", events(0, 100, 39, false), "read h J", nil},
		{"behind the end", events(52, 10, 0, false), "read h J", nil},
		{"a long transaction", events(51, 1, 9, false), "read h J, snapshot, get h, scan j", nil},
		{"behind a transaction", behind("2", 10, 10), "read h J", nil},
		{"behind a change", behind("52.0", 10, 8), "read j h J", nil},
		{"the state", func() error {
			state, err := store.State(t.Context(), repo)
			if state.Sequence != 52 || state.Changed.IsZero() {
				t.Errorf("%+v", state)
			}
			return err
		}, "get h, read j", nil},
		{"a feed", func() error {
			page, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 20)
			if len(page.Events) != 20 || !page.More {
				t.Errorf("%d events", len(page.Events))
			}
			return err
		}, "snapshot, scan e, read e h j", nil},
	})
}

// A transaction over shared stores costs no more than over others, and a page of a feed a read and
// a batch more when there is news.
func TestTripsOfSharedFeed(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{Shared: true})
	change := refs.Change{Org: "acme", Names: []string{"refs/heads/a"}}
	feed := func(want int) func() error {
		return func() error {
			page, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 20)
			if len(page.Events) != want {
				t.Errorf("%d events", len(page.Events))
			}
			return err
		}
	}
	costs(t, keys, []tripStep{
		{"the first ref", updates(t.Context(), store, repo, change, setter("refs/heads/a", 1)), "read h a r, apply", nil},
		{"a move", updates(t.Context(), store, repo, change, setter("refs/heads/a", 2)), "read h a r, apply", nil},
		{"a feed with news", feed(2), "read e E, apply, snapshot, scan e, read h j", nil},
		{"a feed", feed(2), "read e E, snapshot, scan e, read h j", nil},
		{"a wait", func() error { return store.AwaitFeed(t.Context(), "acme", refs.FeedCursor{}) }, "read E", nil},
	})
}

// TestTripsOfAWalk walks all refs after changes of this process and of another one.
func TestTripsOfAWalk(t *testing.T) {
	t.Parallel()
	keys, store, repo := openCounted(t, refs.Options{})
	other := refs.Open(keys.Store, refs.Options{})
	change := func(by *refs.Store, pairs ...any) {
		t.Helper()
		if _, err := by.Update(t.Context(), repo, refs.Change{}, setter(pairs...)); err != nil {
			t.Fatal(err)
		}
		keys.take()
	}
	walk := func(want string, refs ...string) {
		t.Helper()
		snapshot, err := store.SnapshotAll(t.Context(), repo, nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for ref, err := range snapshot.All(t.Context(), "refs/") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprintf("%s %x", ref.Name, ref.ID[len(ref.ID)-1:]))
		}
		if !slices.Equal(names, refs) {
			t.Errorf("walked %q, want %q", names, refs)
		}
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
		if got := keys.take(); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	one, two := "refs/heads/a 01", "refs/heads/b 02"
	change(store, "refs/heads/a", 1)
	walk("get h, read h R", one)
	walk("get h", one)
	change(store, "refs/heads/b", 2)
	walk("read h J", one, two)
	walk("get h", one, two)
	change(store, "refs/heads/a", 0)
	change(store, "refs/heads/b", 1)
	walk("read h J", "refs/heads/b 01")
	change(other, "refs/heads/b", 2)
	walk("get h, scan j", two) // nobody has told this process
	change(other, "refs/heads/a", 1)
	change(store, "refs/heads/b", 1)
	walk("read h J", one, "refs/heads/b 01")
	for range 80 { // more than is read with the head
		change(store, "refs/heads/b", 2)
		change(store, "refs/heads/b", 1)
	}
	walk("read h J, read h R", one, "refs/heads/b 01")
}
