package refs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// Several servers write to one store and read its feeds, while batches of writers and of readers
// are held back, refused or lost, and servers are killed or come back with a batch under way. Every
// reader hears of every event once and in one order, which is that of each journal, whichever
// server it asks. PACKHORSE_CASE_COUNT is the number of stories.
func TestFeedOfServers(t *testing.T) {
	t.Parallel()
	count := 16
	if text := os.Getenv("PACKHORSE_CASE_COUNT"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() || odbtest.Shared() {
		count = 4
	}
	for seed := range uint64(count) {
		w := &feedWorld{t: t, random: rand.New(rand.NewPCG(64, seed)), keys: openKV(t), events: make(chan *feedActor)}
		w.run(200)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if err := w.keys.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// feedWorld is some servers over one store. One goroutine runs at a time, until it is done or comes
// to a gate.
type feedWorld struct {
	t       *testing.T
	random  *rand.Rand
	keys    kv.Store
	servers []*feedServer
	repos   []refs.RepoID
	readers []*feedListener
	held    []*feedActor    // at a gate
	events  chan *feedActor // who has come to a gate, or is done
	step    int
}

// feedServer is a server. It does one thing at a time to a repository, and one to the feed.
type feedServer struct {
	names *refs.Store
	busy  map[refs.RepoID]bool // the zero ID stands for the feed
}

// feedActor is a call under way.
type feedActor struct {
	gate chan gateVerdict
	done bool
	end  func() // called when it is done
}

// gateVerdict says what becomes of a batch.
type gateVerdict int

const (
	gateApply gateVerdict = iota
	gateRefuse
	gateAway
	gateLose    // it is applied, and the answer is lost
	gateForgets // it is not applied, and the answer is lost
)

type feedActorKey struct{}

// feedGate is a store whose calls by an actor wait until they are let through.
type feedGate struct {
	kv.Store
	world *feedWorld
}

func (s feedGate) wait(ctx context.Context) gateVerdict {
	actor, ok := ctx.Value(feedActorKey{}).(*feedActor)
	if !ok {
		return gateApply
	}
	s.world.events <- actor
	return <-actor.gate
}

func (s feedGate) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	switch s.wait(ctx) {
	case gateRefuse:
		return nil, kv.ErrConflict
	case gateAway:
		return nil, kv.ErrUnavailable
	case gateLose:
		if _, err := s.Store.Apply(ctx, batch); err != nil {
			return nil, err
		}
		return nil, kv.ErrUnknown
	case gateForgets:
		return nil, kv.ErrUnknown
	default:
		return s.Store.Apply(ctx, batch)
	}
}

func (s feedGate) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.wait(ctx)
	return s.Store.Snapshot(ctx)
}

// serve begins a server, whose clock is wrong by up to an hour.
func (w *feedWorld) serve() *feedServer {
	skew := time.Duration(w.random.Int64N(int64(2*time.Hour))) - time.Hour
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &feedServer{
		busy: make(map[refs.RepoID]bool),
		names: refs.Open(feedGate{w.keys, w}, refs.Options{
			Shared: true, Now: func() time.Time { return epoch.Add(skew + time.Duration(w.step)*time.Millisecond) },
		}),
	}
}

// begin runs a call of a server until it is done or at a gate.
func (w *feedWorld) begin(s *feedServer, at refs.RepoID, call func(ctx context.Context), end func()) {
	if s.busy[at] {
		return
	}
	s.busy[at] = true
	actor := &feedActor{gate: make(chan gateVerdict)}
	actor.end = func() {
		s.busy[at] = false
		end()
	}
	go func() {
		call(context.WithValue(w.t.Context(), feedActorKey{}, actor))
		actor.done = true
		w.events <- actor
	}()
	w.settle()
}

// settle waits for the goroutine that runs.
func (w *feedWorld) settle() {
	actor := <-w.events
	if actor.done {
		actor.end()
		return
	}
	w.held = append(w.held, actor)
}

// release lets one of those at a gate go on.
func (w *feedWorld) release(verdict gateVerdict) {
	at := w.random.IntN(len(w.held))
	actor := w.held[at]
	w.held = slices.Delete(w.held, at, at+1)
	actor.gate <- verdict
	w.settle()
}

func (w *feedWorld) run(steps int) {
	for range 3 {
		w.servers = append(w.servers, w.serve())
	}
	for w.step = range steps {
		s := w.servers[w.random.IntN(len(w.servers))]
		switch n := w.random.IntN(100); {
		case n < 2: // killed; what it has under way may still happen
			w.servers[w.random.IntN(len(w.servers))] = w.serve()
		case n < 4 || len(w.repos) < 3:
			w.found(s)
		case n < 6:
			w.readers = append(w.readers, &feedListener{world: w, late: w.random.IntN(2) == 0})
		case n < 8:
			w.begin(s, refs.RepoID{}, func(ctx context.Context) { w.accept(s.names.TrimFeeds(ctx, time.Unix(0, 0))) }, func() {})
		case n < 35:
			w.write(s)
		case n < 60 && len(w.readers) > 0:
			w.readers[w.random.IntN(len(w.readers))].read(s, 1+w.random.IntN(6))
		case len(w.held) > 0 && n < 95:
			w.release(gateApply)
		case len(w.held) > 0:
			w.release(gateVerdict(1 + w.random.IntN(4)))
		}
	}
	for len(w.held) > 0 {
		w.release(gateApply)
	}
	w.check()
}

// accept fails the test for errors that no gate has made.
func (w *feedWorld) accept(err error) {
	for _, expected := range []error{kv.ErrUnavailable, kv.ErrUnknown, refs.ErrBusy, refs.ErrRepositoryNotFound} {
		if errors.Is(err, expected) {
			return
		}
	}
	if err != nil {
		w.t.Error(err)
	}
}

func (w *feedWorld) found(s *feedServer) {
	repo, change := refs.NewRepoID(), refs.Change{Org: "acme", Time: time.Unix(1, 0)}
	w.repos = append(w.repos, repo)
	begin := []refs.Ref{{Name: "refs/heads/a", ID: id(1)}, {Name: "refs/heads/b", ID: id(2)}}
	w.begin(s, repo, func(ctx context.Context) {
		batch := kv.NewBatch()
		updates, err := s.names.CreateWith(ctx, batch, repo, change, begin)
		if err == nil {
			if _, err = s.names.ApplyCreation(ctx, batch, repo, change, updates); errors.Is(err, kv.ErrConflict) {
				return // refused at the gate: there is no such repository
			}
		}
		w.accept(err)
	}, func() {})
}

// write moves some refs of a repository, or deletes it.
func (w *feedWorld) write(s *feedServer) {
	repo := w.repos[w.random.IntN(len(w.repos))]
	var pairs []any
	for i := range 1 + w.random.IntN(3) {
		pairs = append(pairs, fmt.Sprintf("refs/tags/%d-%d", w.step, i), 1)
	}
	do := setter(pairs...)
	if w.random.IntN(30) == 0 {
		do = drop
	}
	w.begin(s, repo, func(ctx context.Context) {
		_, err := s.names.Update(ctx, repo, refs.Change{Org: "acme", Name: "n"}, do)
		w.accept(err)
	}, func() {})
}

// feedListener reads the feed in pages.
type feedListener struct {
	world *feedWorld
	late  bool // it has yet to ask where the feed ends
	since bool // it has asked that, and heard only what follows
	busy  bool
	at    refs.FeedCursor
	heard []refs.FeedEvent
}

// read takes a page.
func (l *feedListener) read(s *feedServer, limit int) {
	if l.busy || s.busy[refs.RepoID{}] {
		return
	}
	l.busy = true
	var page refs.FeedPage
	var err error
	l.world.begin(s, refs.RepoID{}, func(ctx context.Context) {
		if l.late {
			page.Next, err = s.names.FeedEnd(ctx, "acme")
			return
		}
		page, err = s.names.Feed(ctx, "acme", l.at, limit)
	}, func() {
		l.busy = false
		l.world.accept(err)
		if err != nil {
			return
		}
		l.since, l.late = l.since || l.late, false
		l.heard = append(l.heard, page.Events...)
		cursor, err := refs.ParseFeedCursor(page.Next.String())
		if err != nil {
			l.world.t.Error(err)
		}
		l.at = cursor
	})
}

// check compares what the readers heard with the journals.
func (w *feedWorld) check() {
	names := refs.Open(w.keys, refs.Options{Shared: true})
	all := feedOf(w.t, names, "acme", refs.FeedCursor{}, 7)
	told := make(map[refs.RepoID][]string)
	deleted := make(map[refs.RepoID]int)
	for i := range all {
		switch e := &all[i]; e.Kind {
		case refs.FeedDeleted:
			deleted[e.Repo]++
		case refs.FeedRef:
			told[e.Repo] = append(told[e.Repo], fmt.Sprintf("%d.%d", e.Sequence, e.Index))
		default: // a creation
		}
	}
	for _, repo := range w.repos {
		page, err := names.Events(w.t.Context(), repo, 0, refs.EventsMax)
		if errors.Is(err, refs.ErrRepositoryNotFound) {
			if len(told[repo]) > 0 || deleted[repo] > 1 {
				w.t.Errorf("of %s, which is gone, %v is told, and %d deletions", repo, told[repo], deleted[repo])
			}
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		var want []string
		for _, e := range page.Entries {
			want = append(want, fmt.Sprintf("%d.%d", e.Sequence, e.Index))
		}
		if !slices.Equal(told[repo], want) || deleted[repo] > 0 {
			w.t.Errorf("of %s %v is told, and %d deletions; the journal is %v", repo, told[repo], deleted[repo], want)
		}
	}
	want := describeFeed(all)
	for i, l := range w.readers {
		if l.late {
			continue
		}
		heard := append(l.heard, feedOf(w.t, names, "acme", l.at, 5)...)
		gone := func(e refs.FeedEvent) bool { return e.Kind != refs.FeedDeleted && deleted[e.Repo] > 0 }
		got := describeFeed(slices.DeleteFunc(heard, gone))
		expected := want
		if l.since {
			expected = want[max(0, len(want)-len(got)):]
		}
		if !slices.Equal(got, expected) {
			w.t.Errorf("reader %d heard\n%s\nand not\n%s", i, strings.Join(got, "\n"), strings.Join(expected, "\n"))
		}
	}
	if err := names.FsckFeeds(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

// Who waits is woken by what another server writes, and by what it writes while a third one gives
// places.
func TestAwaitFeedOfServers(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	shared := refs.Options{Shared: true}
	here, there := refs.Open(keys, shared), refs.Open(keys, shared)
	repo := createRepo(t, keys, here)
	at := refs.FeedCursor{}
	for n := range 4 {
		reader := &noticed{Context: t.Context(), asked: make(chan struct{})}
		woken := make(chan error, 1)
		go func() { woken <- here.AwaitFeed(reader, "acme", at) }()
		<-reader.asked
		tell(t, there, "acme", repo, "refs/heads/a", n+1)
		if n%2 == 1 { // the row has its place when it is looked for
			feedOf(t, there, "acme", at, 1)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		got := feedOf(t, here, "acme", at, 10)
		if len(got) != 1 {
			t.Fatalf("told %q", describeFeed(got))
		}
		at = got[0].Cursor
	}
}

// A store that was one server's and is shared now, or the other way round, goes on with its feeds.
func TestFeedChangesHands(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	repo := createRepo(t, keys, refs.Open(keys, refs.Options{}))
	var cursors []refs.FeedCursor
	for n := range 12 {
		store := refs.Open(keys, refs.Options{Shared: n/2%2 == 1})
		tell(t, store, "acme", repo, "refs/heads/a", n+1)
		if n%4 == 3 {
			continue // rows without a place are left to the next
		}
		all := feedOf(t, store, "acme", refs.FeedCursor{}, 5)
		if len(all) != n+1 {
			t.Fatalf("after %d: %q", n, describeFeed(all))
		}
		cursors = append(cursors, all[n].Cursor)
		for i, cursor := range cursors {
			at := slices.IndexFunc(all, func(e refs.FeedEvent) bool { return e.Cursor == cursor })
			if rest := feedOf(t, store, "acme", cursor, 3); len(rest) != n-at || at < i {
				t.Errorf("after %d: %d events follow upon event %d", n, len(rest), at)
			}
		}
	}
}

// More rows than get their places at once: no reader stops in between, and the end is behind all.
func TestFeedOfManyRows(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "thousands of transactions take long")
	keys := openKV(t)
	shared := refs.Options{Shared: true}
	store := refs.Open(keys, shared)
	repo := createRepo(t, keys, store)
	var last uint64
	for n := range 2500 {
		if n%400 == 0 { // which gives no places
			store = refs.Open(keys, shared)
		}
		tell(t, store, "acme", repo, "refs/heads/a", n+1)
		last = uint64(n + 2)
	}
	end, err := store.FeedEnd(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if rest := feedOf(t, store, "acme", end, 10); len(rest) != 0 {
		t.Errorf("behind the end: %q", describeFeed(rest))
	}
	all := feedOf(t, store, "acme", refs.FeedCursor{}, 100)
	if len(all) != 2500 || all[2499].Sequence != last || all[2499].Cursor != end {
		t.Errorf("%d events up to %d", len(all), all[len(all)-1].Sequence)
	}
}
