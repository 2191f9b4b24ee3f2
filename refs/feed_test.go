package refs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// tell commits to a repository of an organization, as set does.
func tell(tb testing.TB, store *refs.Store, org string, repo refs.RepoID, pairs ...any) {
	tb.Helper()
	if _, err := store.Update(tb.Context(), repo, refs.Change{Org: org, Actor: "test"}, setter(pairs...)); err != nil {
		tb.Fatal(err)
	}
}

// eachFeed runs a test over a store of one process, and over one that others share.
func eachFeed(t *testing.T, test func(t *testing.T, options refs.Options)) {
	t.Helper()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %t", shared), func(t *testing.T) {
			t.Parallel()
			test(t, refs.Options{Shared: shared})
		})
	}
}

// describeEvent is an event of a feed in a line.
func describeEvent(e *refs.FeedEvent) string {
	switch e.Kind {
	case refs.FeedCreated:
		return fmt.Sprintf("%s %d created", e.Repo, e.Sequence)
	case refs.FeedDeleted:
		return fmt.Sprintf("%s %d deleted %s", e.Repo, e.Sequence, e.Name)
	default:
		return fmt.Sprintf("%s %d.%d %s %s>%s", e.Repo, e.Sequence, e.Index, e.Ref, e.Before, e.After)
	}
}

// feedOf reads a feed from a position on, in pages of a size.
func feedOf(tb testing.TB, store *refs.Store, org string, after refs.FeedCursor, limit int) []refs.FeedEvent {
	tb.Helper()
	var all []refs.FeedEvent
	for {
		page, err := store.Feed(tb.Context(), org, after, limit)
		if err != nil {
			tb.Fatal(err)
		}
		if len(page.Events) > limit {
			tb.Errorf("a page of %d events, %d were asked for", len(page.Events), limit)
		}
		all = append(all, page.Events...)
		if !page.More {
			return all
		}
		if page.Next == after {
			tb.Fatal("the page does not go on")
		}
		after = page.Next
	}
}

func describeFeed(events []refs.FeedEvent) []string {
	var lines []string
	for i := range events {
		lines = append(lines, describeEvent(&events[i]))
	}
	return lines
}

// hold keeps a batch from being applied, and then may refuse it.
type hold struct {
	entered chan struct{}
	release chan error
}

type holdKey struct{}

// holding is a store that holds the batches of some contexts back.
type holding struct{ kv.Store }

func (s holding) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if h, ok := ctx.Value(holdKey{}).(*hold); ok {
		h.entered <- struct{}{}
		if err := <-h.release; err != nil {
			return nil, err
		}
	}
	return s.Store.Apply(ctx, batch)
}

// noticed is a context that tells when somebody begins to wait for its end.
type noticed struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *noticed) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}

// A feed ends below the lowest batch that is under way: a batch with a lower place that becomes
// visible later, or is refused, is never behind a reader.
func TestFeedHoldsBack(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, outcome := range map[string]error{"applied": nil, "refused": refused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := openKV(t)
			store := refs.Open(holding{keys}, refs.Options{})
			slow, quick, other := createRepo(t, keys, store), createRepo(t, keys, store), createRepo(t, keys, store)
			tell(t, store, "acme", quick, "refs/heads/a", 1)
			first := feedOf(t, store, "acme", refs.FeedCursor{}, 10)
			if len(first) != 1 {
				t.Fatalf("the feed begins with %q", describeFeed(first))
			}
			h := &hold{make(chan struct{}), make(chan error)}
			done := make(chan error, 1)
			go func() {
				_, err := store.Update(context.WithValue(t.Context(), holdKey{}, h), slow,
					refs.Change{Org: "acme"}, setter("refs/heads/slow", 1))
				done <- err
			}()
			<-h.entered
			tell(t, store, "acme", quick, "refs/heads/a", 2)
			tell(t, store, "other", other, "refs/heads/a", 1)
			if early := feedOf(t, store, "acme", first[0].Cursor, 10); len(early) > 0 {
				t.Errorf("a batch is under way, and %q is told", describeFeed(early))
			}
			if end, err := store.FeedEnd(t.Context(), "acme"); err != nil || end != first[0].Cursor {
				t.Errorf("the feed ends at %v, %v", end, err)
			}
			if theirs := feedOf(t, store, "other", refs.FeedCursor{}, 10); len(theirs) != 1 {
				t.Errorf("another organization is told %q", describeFeed(theirs))
			}
			woken := make(chan error, 1)
			waits, leave := context.WithCancel(t.Context())
			leave()
			if err := store.AwaitFeed(waits, "acme", first[0].Cursor); !errors.Is(err, context.Canceled) {
				t.Errorf("the wait ends: %v", err)
			}
			reader := &noticed{Context: t.Context(), asked: make(chan struct{})}
			go func() { woken <- store.AwaitFeed(reader, "acme", first[0].Cursor) }()
			<-reader.asked
			h.release <- outcome
			if err := <-done; !errors.Is(err, outcome) {
				t.Errorf("the writer: %v", err)
			}
			if err := <-woken; err != nil {
				t.Errorf("the reader: %v", err)
			}
			var want []string
			if outcome == nil {
				want = append(want, fmt.Sprintf("%s 2.0 refs/heads/slow %s>%s", slow, object.ZeroID, id(1)))
			}
			want = append(want, fmt.Sprintf("%s 3.0 refs/heads/a %s>%s", quick, id(1), id(2)))
			if got := describeFeed(feedOf(t, store, "acme", first[0].Cursor, 10)); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		})
	}
}

// Nothing is told that a crash could take back, not even that a repository is gone.
func TestFeedToldWhenDurable(t *testing.T) {
	t.Parallel()
	eachFeed(t, testFeedToldWhenDurable)
}

func testFeedToldWhenDurable(t *testing.T, options refs.Options) {
	t.Helper()
	keys := openKV(t)
	plain := refs.Open(keys, options)
	repo, gone := createRepo(t, keys, plain), createRepo(t, keys, plain)
	tell(t, plain, "acme", gone, "refs/heads/a", 1)
	before := feedOf(t, plain, "acme", refs.FeedCursor{}, 10)[0].Cursor
	tell(t, plain, "acme", gone, "refs/heads/a", 2)
	if _, err := plain.Update(t.Context(), gone, refs.Change{}, drop); err != nil {
		t.Fatal(err)
	}
	asked := make(map[string]bool)
	store := refs.Open(asking{keys, asked}, options)
	tell(t, store, "acme", repo, "refs/heads/a", 1)
	page, err := store.Feed(t.Context(), "acme", before, 10)
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("%q, %v", describeFeed(page.Events), err)
	}
	if !asked["h"+string(gone[:])] {
		t.Error("the repository is passed over before it is gone for good")
	}
	rows := 0
	for key := range asked {
		if strings.HasPrefix(key, "epacme\x00") {
			rows++
		}
	}
	if rows != 2 {
		t.Errorf("%d rows were waited for", rows)
	}
}

// asking records what its user waits for.
type asking struct {
	kv.Store
	keys map[string]bool
}

func (s asking) WaitDurable(ctx context.Context, key []byte) error {
	s.keys[string(key)] = true
	return s.Store.WaitDurable(ctx, key)
}

// A seeded story of writes, creations and deletions: the feed tells each event of the journals
// once, in their order, however it is cut into pages, from every event on, and after the store is
// opened again.
func TestFeedAgainstJournals(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(54, seed))
			keys := openKV(t)
			options := refs.Options{Shared: seed%2 == 1}
			store := refs.Open(keys, options)
			var live []refs.RepoID
			var want []string
			for step := range 120 {
				switch n := random.IntN(10); {
				case n == 0:
					store = refs.Open(keys, options) // another process
				case n == 1 || len(live) < 2:
					repo, lines := found(t, store, random.IntN(4))
					live, want = append(live, repo), append(want, lines...)
				case n == 2:
					at := random.IntN(len(live))
					want = append(without(want, live[at]), remove(t, store, live[at]))
					live = slices.Delete(live, at, at+1)
				default:
					want = append(want, change(t, store, live[random.IntN(len(live))], step, 1+random.IntN(5))...)
				}
			}
			all := feedOf(t, store, "acme", refs.FeedCursor{}, 1+random.IntN(20))
			if got := describeFeed(all); !slices.Equal(got, want) {
				t.Fatalf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for i := range all {
				text := all[i].Cursor.String()
				cursor, err := refs.ParseFeedCursor(text)
				if err != nil {
					t.Fatal(err)
				}
				got := describeFeed(feedOf(t, store, "acme", cursor, 1+random.IntN(7)))
				if !slices.Equal(got, want[i+1:]) {
					t.Fatalf("after event %d: told %q, want %q", i, got, want[i+1:])
				}
			}
			if err := store.FsckFeeds(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// found creates a repository of acme with some refs.
func found(tb testing.TB, store *refs.Store, count int) (refs.RepoID, []string) {
	tb.Helper()
	repo, batch := refs.NewRepoID(), kv.NewBatch()
	change := refs.Change{Org: "acme", Time: time.Now()}
	var begin []refs.Ref
	lines := []string{fmt.Sprintf("%s 1 created", repo)}
	for i := range count {
		name := fmt.Sprintf("refs/heads/%d", i)
		begin = append(begin, refs.Ref{Name: name, ID: id(i + 1)})
		lines = append(lines, fmt.Sprintf("%s 1.%d %s %s>%s", repo, i, name, object.ZeroID, id(i+1)))
	}
	updates, err := store.CreateWith(tb.Context(), batch, repo, change, begin)
	if err == nil {
		_, err = store.ApplyCreation(tb.Context(), batch, repo, change, updates)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return repo, lines
}

// remove deletes a repository.
func remove(tb testing.TB, store *refs.Store, repo refs.RepoID) string {
	tb.Helper()
	done, err := store.Update(tb.Context(), repo, refs.Change{Org: "acme", Name: "n"}, drop)
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("%s %d deleted n", repo, done.Sequence)
}

// without leaves out the lines of a repository.
func without(lines []string, repo refs.RepoID) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, repo.String()) })
}

// change creates some tags.
func change(tb testing.TB, store *refs.Store, repo refs.RepoID, step, count int) []string {
	tb.Helper()
	var pairs []any
	for i := range count {
		pairs = append(pairs, fmt.Sprintf("refs/tags/%d-%d", step, i), i+1)
	}
	done, err := store.Update(tb.Context(), repo, refs.Change{Org: "acme"}, setter(pairs...))
	if err != nil {
		tb.Fatal(err)
	}
	var lines []string
	for _, e := range done.Updates {
		lines = append(lines, fmt.Sprintf("%s %d.%d %s %s>%s", repo, e.Sequence, e.Index, e.Ref, e.Before, e.After))
	}
	return lines
}

// A cursor is valid in the history of the store that it is from, and in no other.
func TestFeedCursors(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it copies the files of the keys")
	eachFeed(t, testFeedCursors)
}

func testFeedCursors(t *testing.T, options refs.Options) {
	t.Helper()
	fs := vfs.NewMem()
	keys := openKVOn(t, fs)
	store := refs.Open(keys, options)
	repo, theirs := createRepo(t, keys, store), createRepo(t, keys, store)
	tell(t, store, "acme", repo, "refs/heads/a", 1)
	tell(t, store, "other", theirs, "refs/heads/a", 1)
	shared := feedOf(t, store, "acme", refs.FeedCursor{}, 10)[0].Cursor
	foreign := feedOf(t, store, "other", refs.FeedCursor{}, 10)[0].Cursor
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	copied := vfs.NewMem()
	if _, err := vfs.Clone(fs, copied, "keys", "keys"); err != nil {
		t.Fatal(err)
	}
	var ends []refs.FeedCursor
	stores := []*refs.Store{
		refs.Open(openKVOn(t, fs), options),
		refs.Open(openKVOn(t, copied), options),
	}
	for _, store := range stores { // the same places in both
		tell(t, store, "acme", repo, "refs/heads/a", 2)
		end, err := store.FeedEnd(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	for i, store := range stores {
		for name, test := range map[string]struct {
			at   refs.FeedCursor
			gone bool
		}{
			"from before the copy":          {shared, false},
			"from after it":                 {ends[i], false},
			"from the other, after it":      {ends[1-i], true},
			"from the other organization's": {foreign, true},
		} {
			_, err := store.Feed(t.Context(), "acme", test.at, 1)
			if errors.Is(err, refs.ErrFeedGone) != test.gone || !test.gone && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	good := shared.String()
	for _, text := range []string{
		"x", "=", good + "A", good[1:], good[:len(good)-2], good + "=", "B" + good[1:], strings.Repeat("A", len(good)), " " + good,
	} {
		if cursor, err := refs.ParseFeedCursor(text); !errors.Is(err, refs.ErrInvalidFeedCursor) {
			t.Errorf("%q is taken for %v", text, cursor)
		}
	}
}

// The feed is kept as long as the journal, and says so to whom it has left behind.
func TestTrimFeeds(t *testing.T) {
	t.Parallel()
	eachFeed(t, testTrimFeeds)
}

func testTrimFeeds(t *testing.T, options refs.Options) {
	t.Helper()
	keys := openKV(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options.Now = func() time.Time { return now }
	store := refs.Open(keys, options)
	repo, other := createRepo(t, keys, store), createRepo(t, keys, store)
	for n := range 4 {
		tell(t, store, "acme", repo, "refs/heads/a", n+1, "refs/heads/b", n+1)
		tell(t, store, "other", other, "refs/heads/a", n+1)
		now = now.Add(time.Hour)
	}
	all := feedOf(t, store, "acme", refs.FeedCursor{}, 10)
	trim := func(hours int) {
		t.Helper()
		before := time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC)
		if err := store.TrimFeeds(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		for _, id := range []refs.RepoID{repo, other} {
			if _, err := store.TrimJournal(t.Context(), id, before); err != nil {
				t.Fatal(err)
			}
		}
	}
	trim(2)
	for i, left := range map[int]int{0: -1, 1: -1, 2: -1, 3: 4, 4: 3, 5: 2, 7: 0} { // an event: how many follow
		page, err := store.Feed(t.Context(), "acme", all[i].Cursor, 10)
		gone, ok := errors.AsType[*refs.FeedGoneError](err)
		switch {
		case ok != (left < 0) || !ok && (err != nil || len(page.Events) != left):
			t.Errorf("after event %d: %d events, %v", i, len(page.Events), err)
		case ok && gone.Oldest != all[3].Cursor:
			t.Errorf("after event %d: the oldest is %v, want %v", i, gone.Oldest, all[3].Cursor)
		}
	}
	if got := feedOf(t, store, "acme", refs.FeedCursor{}, 10); len(got) != 4 || got[0].Cursor != all[4].Cursor {
		t.Errorf("from the start on: %q", describeFeed(got))
	}
	if got := feedOf(t, store, "other", refs.FeedCursor{}, 10); len(got) != 2 {
		t.Errorf("the other feed: %q", describeFeed(got))
	}
	trim(24) // all of it: new events come behind the cursors that are left
	store = refs.Open(keys, options)
	tell(t, store, "acme", repo, "refs/heads/a", 9)
	if got := feedOf(t, store, "acme", all[7].Cursor, 10); len(got) != 1 {
		t.Errorf("after all was trimmed: %q", describeFeed(got))
	}
}

// A journal that was trimmed further than the feed leaves no gap untold.
func TestFeedOverATrimmedJournal(t *testing.T) {
	t.Parallel()
	eachFeed(t, testFeedOverATrimmedJournal)
}

func testFeedOverATrimmedJournal(t *testing.T, options refs.Options) {
	t.Helper()
	keys := openKV(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options.Now = func() time.Time { return now }
	store := refs.Open(keys, options)
	repo := createRepo(t, keys, store)
	for n := range 3 {
		tell(t, store, "acme", repo, "refs/heads/a", n+1)
		now = now.Add(time.Hour)
	}
	all := feedOf(t, store, "acme", refs.FeedCursor{}, 10)
	if _, err := store.TrimJournal(t.Context(), repo, time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	_, err := store.Feed(t.Context(), "acme", all[0].Cursor, 10)
	gone, ok := errors.AsType[*refs.FeedGoneError](err)
	if !ok || gone.Oldest != all[1].Cursor {
		t.Fatalf("%v", err)
	}
	for name, from := range map[string]refs.FeedCursor{"the oldest": gone.Oldest, "the start": {}} {
		if got := feedOf(t, store, "acme", from, 10); len(got) != 1 || got[0].Cursor != all[2].Cursor {
			t.Errorf("from %s on: %q", name, describeFeed(got))
		}
	}
}

// Damage is told, by a reader and by fsck.
func TestFeedDamage(t *testing.T) {
	t.Parallel()
	eachFeed(t, testFeedDamage)
}

func testFeedDamage(t *testing.T, options refs.Options) {
	t.Helper()
	keys := openKV(t)
	store := refs.Open(keys, options)
	repo := createRepo(t, keys, store)
	tell(t, store, "acme", repo, "refs/heads/a", 1)
	if options.Shared { // two rows with a place, and one without
		feedOf(t, store, "acme", refs.FeedCursor{}, 1)
		tell(t, store, "acme", repo, "refs/heads/a", 2)
	}
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte("e"), End: []byte("f")}) {
		if err != nil {
			t.Fatal(err)
		}
		key, value := slices.Clone(pair.Key), slices.Clone(pair.Value)
		put := func(value []byte) {
			batch := kv.NewBatch()
			batch.Put(key, value)
			if _, err := keys.Apply(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		put(value[:len(value)-1])
		if err := store.FsckFeeds(t.Context()); !errors.Is(err, refs.ErrCorrupt) {
			t.Errorf("fsck of %q: %v", key, err)
		}
		if !options.Shared || key[1] == 'n' { // other reads give a place to the row without one
			if _, err := store.Feed(t.Context(), "acme", refs.FeedCursor{}, 1); !errors.Is(err, refs.ErrCorrupt) {
				t.Errorf("reading %q: %v", key, err)
			}
		}
		put(value)
	}
	if err := store.FsckFeeds(t.Context()); err != nil {
		t.Error(err)
	}
}
