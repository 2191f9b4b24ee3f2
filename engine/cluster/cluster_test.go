package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/cluster"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// link is a server's way to the store, which can be cut.
type link struct {
	kv.Store
	mu      sync.Mutex // guards the fields below
	cut     bool
	answers bool // of applied batches are lost
}

func (l *link) set(cut, answers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.answers = cut, answers
}

func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return kv.ErrUnavailable
	}
	return nil
}

func (l *link) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Store.Get(ctx, key)
}

func (l *link) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	if err := l.err(); err != nil {
		return func(yield func(kv.Pair, error) bool) { yield(kv.Pair{}, err) }
	}
	return l.Store.Scan(ctx, options)
}

func (l *link) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	if err := l.err(); err != nil {
		return kv.Rows{}, err
	}
	return l.Store.Read(ctx, set)
}

func (l *link) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	commit, err := l.Store.Apply(ctx, b)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.answers {
		return nil, kv.ErrUnknown
	}
	return commit, err
}

// world is servers over one store, and who does which duty.
type world struct {
	t    *testing.T
	keys kv.Store

	mu       sync.Mutex // guards the fields below
	doing    map[string]string
	failures map[string]int // that a duty has still to make
	departed map[string]int // calls, by server
}

const patience = 15 * time.Second

// run runs test beside others in a bubble of time, over a store of its own.
func run(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	bubble(t, test)
}

// bubble is run for a test that runs beside others already.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		test(&world{
			t: t, keys: keys, doing: make(map[string]string), failures: make(map[string]int), departed: make(map[string]int),
		})
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	})
}

// server is a member, its link, and a trap before that.
type server struct {
	*cluster.Member
	link *link
	trap odbtest.Trap
	log  odbtest.Log
}

// join adds a server that takes duties. It takes a second to end one.
func (w *world) join(name string, duties ...string) *server {
	w.t.Helper()
	return w.joinWith(name, nil, duties...)
}

// joinWith is join for a server with views.
func (w *world) joinWith(name string, views cluster.Views, duties ...string) *server {
	w.t.Helper()
	s := &server{link: &link{Store: w.keys}}
	config := cluster.Config{Keys: s.trap.Keys(s.link), Views: views, URL: "http://" + name, Version: "1", Departed: func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.departed[name]++
	}, Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
	for _, duty := range duties {
		config.Duties = append(config.Duties, cluster.Duty{Name: duty, Work: func(ctx context.Context) error {
			return w.work(ctx, name, duty)
		}})
	}
	var err error
	if s.Member, err = cluster.Join(w.t.Context(), config); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) work(ctx context.Context, name, duty string) error {
	w.mu.Lock()
	if other, done := w.doing[duty]; done {
		w.t.Errorf("%s and %s do %s at the same time", other, name, duty)
	}
	fails := w.failures[duty] > 0
	if fails {
		w.failures[duty]--
	} else {
		w.doing[duty] = name
	}
	w.mu.Unlock()
	if fails {
		if w.failures[duty]%2 == 0 {
			panic("a duty panics")
		}
		return errors.New("a duty fails")
	}
	<-ctx.Done()
	time.Sleep(time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doing, duty)
	return nil
}

// owners returns who does each duty, as "duty:server".
func (w *world) owners() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for duty, name := range w.doing {
		all = append(all, duty+":"+name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *world) leave(servers ...*server) {
	w.t.Helper()
	for _, s := range servers {
		if err := s.Leave(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

func TestOneServer(t *testing.T) {
	run(t, func(w *world) {
		a := w.join("a", "x", "y")
		if got := w.owners(); got != "x:a y:a" {
			t.Errorf("does %q", got)
		}
		if got := strings.Join(a.Held(), " "); got != "x y" {
			t.Errorf("holds %q", got)
		}
		time.Sleep(time.Hour)
		if a.Silent() || a.Age() > 3*time.Second {
			t.Errorf("renewed %v ago", a.Age())
		}
		servers, err := cluster.List(t.Context(), w.keys)
		if err != nil || len(servers) != 1 || servers[0].ID != a.ID() || servers[0].URL != "http://a" ||
			servers[0].Beat < 1000 || len(servers[0].Duties) != 2 {
			t.Errorf("%+v, %v", servers, err)
		}
		w.leave(a)
		if got := w.owners(); got != "" {
			t.Errorf("after it left: %q", got)
		}
		table := kv.ScanOptions{Start: []byte{cluster.Table}, End: []byte{cluster.Table + 1}}
		for _, err := range w.keys.Scan(t.Context(), table) {
			t.Errorf("a row stays, %v", err)
		}
	})
}

// TestLeave hands duties over at once when a server says that it goes.
func TestLeave(t *testing.T) {
	run(t, func(w *world) {
		a := w.join("a", "x")
		synctest.Wait()
		b := w.join("b", "x")
		time.Sleep(time.Minute)
		if got := w.owners(); got != "x:a" {
			t.Errorf("does %q; a duty stays with its owner", got)
		}
		w.leave(a)
		time.Sleep(3 * time.Second)
		if got := w.owners(); got != "x:b" {
			t.Errorf("a beat after a has left: %q", got)
		}
		if w.departed["b"] != 1 {
			t.Errorf("b heard of %d departures", w.departed["b"])
		}
		w.leave(b)
	})
}

// TestSpread spreads duties over the servers that take them.
func TestSpread(t *testing.T) {
	run(t, func(w *world) {
		var duties []string
		for i := range 32 {
			duties = append(duties, fmt.Sprint("d", i))
		}
		first := w.join("first") // takes none
		a := w.join("a")
		w.leave(a)
		b, c := w.join("b", duties...), w.join("c", duties...)
		synctest.Wait()
		w.leave(b)
		b = w.join("b", duties...)
		time.Sleep(time.Minute)
		w.leave(c)
		c = w.join("c", duties...)
		time.Sleep(time.Minute)
		if held := len(b.Held()) + len(c.Held()); held != len(duties) || len(first.Held()) > 0 {
			t.Errorf("b has %d, c %d", len(b.Held()), len(c.Held()))
		}
		w.leave(first, b, c)
	})
}

// TestSilent cuts a server off: it ends its duties before another takes them over, and comes back
// under a new id.
func TestSilent(t *testing.T) {
	run(t, func(w *world) {
		a := w.join("a", "x")
		synctest.Wait()
		b := w.join("b", "x")
		id := a.ID()
		a.link.set(true, false)
		time.Sleep(20 * time.Second)
		if got := w.owners(); got != "x:b" {
			t.Errorf("20 seconds later: %q", got)
		}
		if !a.Silent() || b.Silent() {
			t.Errorf("a was renewed %v ago, b %v", a.Age(), b.Age())
		}
		time.Sleep(time.Minute)
		a.link.set(false, false)
		time.Sleep(10 * time.Second)
		if a.ID() == id || a.Silent() {
			t.Errorf("a is back as %s, renewed %v ago", a.ID(), a.Age())
		}
		if got := w.owners(); got != "x:b" {
			t.Errorf("a is back: %q", got)
		}
		w.leave(b)
		time.Sleep(3 * time.Second)
		if got := w.owners(); got != "x:a" {
			t.Errorf("b has left: %q", got)
		}
		w.leave(a)
	})
}

// TestShortSilence lets a server miss a few beats: it keeps its duties, or begins them again.
func TestShortSilence(t *testing.T) {
	run(t, func(w *world) {
		a := w.join("a", "x")
		for _, silence := range []time.Duration{5 * time.Second, 13 * time.Second, time.Hour} {
			id := a.ID()
			a.link.set(true, false)
			time.Sleep(silence)
			a.link.set(false, false)
			time.Sleep(6 * time.Second)
			if got := w.owners(); got != "x:a" || a.ID() != id {
				t.Errorf("after %v: %q; nobody else was there to remove it", silence, got)
			}
		}
		w.leave(a)
	})
}

// TestUnknownRenewal loses the answers to renewals that have happened: nobody takes the server for
// silent as long as it is heard.
func TestUnknownRenewal(t *testing.T) {
	run(t, func(w *world) {
		a := w.join("a", "x")
		synctest.Wait()
		b := w.join("b", "x")
		id := a.ID()
		a.link.set(false, true)
		time.Sleep(time.Minute)
		if got := w.owners(); got != "x:a" || a.Silent() {
			t.Errorf("does %q; a was renewed %v ago", got, a.Age())
		}
		a.link.set(false, false)
		time.Sleep(6 * time.Second)
		if a.ID() != id {
			t.Error("a was removed")
		}
		if got := w.owners(); got != "x:a" {
			t.Errorf("does %q", got)
		}
		w.leave(a, b)
	})
}

// TestFailedDuty begins a duty again that has failed or panicked.
func TestFailedDuty(t *testing.T) {
	run(t, func(w *world) {
		w.failures["x"] = 3
		a := w.join("a", "x", "y")
		time.Sleep(10 * time.Second)
		if got := w.owners(); got != "x:a y:a" {
			t.Errorf("does %q", got)
		}
		w.leave(a)
	})
}

// TestDamagedRows refuses rows that nobody has written.
func TestDamagedRows(t *testing.T) {
	run(t, func(w *world) {
		for _, row := range []struct{ key, value string }{
			{"Ls\x01", "{}"}, {"Ls" + strings.Repeat("i", 16), "{"}, {"Ldx", "short"},
		} {
			put := kv.NewBatch()
			put.Put([]byte(row.key), []byte(row.value))
			if _, err := w.keys.Apply(t.Context(), put); err != nil {
				t.Fatal(err)
			}
			if _, err := cluster.List(t.Context(), w.keys); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("%q: %v", row.key, err)
			}
			remove := kv.NewBatch()
			remove.Delete([]byte(row.key))
			if _, err := w.keys.Apply(t.Context(), remove); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStorm cuts servers off at random, ends some and adds others. No duty is done twice at a time,
// which work checks, and each is done within 20 seconds once all is well.
func TestStorm(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(w *world) {
				random := rand.New(rand.NewPCG(seed, 1))
				duties := []string{"u", "v", "w", "x", "y", "z"}
				var servers []*server
				add := func() { servers = append(servers, w.join(fmt.Sprint("s", len(servers), random.Uint32()), duties...)) }
				for range 4 {
					add()
				}
				for range 60 {
					i := random.IntN(len(servers))
					switch random.IntN(8) {
					case 0:
						servers[i].link.set(false, false)
						w.leave(servers[i])
						servers = slices.Delete(servers, i, i+1)
						add()
					case 1, 2, 3:
						servers[i].link.set(random.IntN(2) == 0, random.IntN(2) == 0)
					default:
						servers[i].link.set(false, false)
					}
					time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
				}
				for _, s := range servers {
					s.link.set(false, false)
				}
				time.Sleep(patience + 5*time.Second)
				if got := w.owners(); strings.Count(got, ":") != len(duties) {
					t.Errorf("20 seconds after all is well: %q", got)
				}
				w.leave(servers...)
			})
		})
	}
}
