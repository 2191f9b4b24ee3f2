package distributed_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/bench/process"
	"packhorse/cmd/packhorse/packhorsetest"
)

// world is a server with a data folder, and two that share a database and a bucket.
type world struct {
	testing.TB
	bin      string
	dir      string // of everything; its organization is that of all servers
	services *services
	network  network
	stores   stores // of the two
	alone    *server
	shared   [2]*server
	key      []byte // of the organization
	made     *atomic.Int64
}

// server is a running server.
type server struct {
	*packhorsetest.Server
	data string // folder
}

// openWorld starts all of it, or skips the benchmark where PostgreSQL or versitygw is missing.
func openWorld(b *testing.B, bin string) *world {
	b.Helper()
	w := &world{TB: b, bin: bin, dir: b.TempDir(), services: startServices(b), made: new(atomic.Int64)}
	w.network = w.services.measure(b)
	w.stores = w.services.stores(b, "packhorse")
	w.alone = w.start("", stores{})
	for i := range w.shared {
		w.shared[i] = w.start("", w.stores)
	}
	var err error
	if w.key, err = os.ReadFile(w.alone.KeyFile()); err != nil {
		b.Fatal(err)
	}
	return w
}

// start starts a server over stores, or over its data folder for none. It ends with the benchmark.
func (w *world) start(data string, s stores, flags ...string) *server {
	w.Helper()
	dir := filepath.Join(w.dir, cmp.Or(data, fmt.Sprint("server", w.made.Add(1))))
	o := packhorsetest.Options{Bin: w.bin, Dir: dir, Orgs: w.dir, Env: s.env, Flags: flags}
	if s.keys != "" {
		o.Flags = append(o.Flags, "--keys", s.keys, "--files", s.files)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	started, err := packhorsetest.Start(w.Context(), o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := started.Kill(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Logf("%s said:\n%s", data, started.Output())
		}
	})
	return &server{started, filepath.Join(dir, "data")}
}

// fresh returns a name that nothing has.
func (w *world) fresh(prefix string) string { return fmt.Sprintf("%s-%d", prefix, w.made.Add(1)) }

// repository returns a repository, which may not exist, as clients of a server see it.
func (w *world) repository(s *server, name string) repository {
	token, err := auth.Mint(w.key, auth.Claims{
		Org: packhorsetest.Org, Repo: name, Subject: "bench", Scopes: []string{"git:write", "repo:write"},
		IssuedAt: time.Now(), Expires: time.Now().Add(24 * time.Hour),
	})
	if err != nil {
		w.Fatal(err)
	}
	return repository{base: s.URL, name: name, token: token}
}

// create makes a repository.
func (w *world) create(s *server, name string) repository {
	w.Helper()
	r := w.repository(s, name)
	w.must(r.create())
	return r
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// trips returns how many round trips to the database some work took, with those that the server
// makes meanwhile by itself.
func (w *world) trips(s *server, work func()) float64 {
	w.Helper()
	before := w.tripsTotal(s)
	work()
	return w.tripsTotal(s) - before
}

// cpu returns the CPU time of servers so far.
func (w *world) cpu(servers ...*server) (sum time.Duration) {
	w.Helper()
	for _, s := range servers {
		used, err := process.CPU(s.PID())
		w.must(err)
		sum += used
	}
	return sum
}

// calm waits until the servers have no work of their own left, such as bitmaps after a push.
func (w *world) calm() {
	w.Helper()
	servers := []*server{w.alone, w.shared[0], w.shared[1]}
	for before, tries := w.cpu(servers...), 0; tries < 100; tries++ {
		time.Sleep(300 * time.Millisecond)
		now := w.cpu(servers...)
		if now-before <= 2*process.Tick {
			return
		}
		before = now
	}
}

// tripsTotal reads the server's metric.
func (w *world) tripsTotal(s *server) float64 {
	w.Helper()
	answer, err := repository{base: s.URL}.call(http.MethodGet, "/metrics", "", nil)
	w.must(err)
	for line := range bytes.Lines(answer) {
		if value, ok := bytes.CutPrefix(line, []byte("packhorse_database_trip_duration_seconds_count ")); ok {
			figure, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
			w.must(err)
			return figure
		}
	}
	w.Fatal("the server does not count trips")
	return 0
}

// medianOf returns the median time of some operations, one after the other.
func medianOf(tb testing.TB, count int, do func(i int) error) time.Duration {
	tb.Helper()
	took := make([]time.Duration, count)
	for i := range took {
		begun := time.Now()
		if err := do(i); err != nil {
			tb.Fatal(err)
		}
		took[i] = time.Since(begun)
	}
	return median(took)
}

func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// rateOf returns how many operations a second some clients do, each one after the other. do gets
// the number of the client and that of its operation.
func rateOf(tb testing.TB, clients int, window time.Duration, do func(client, i int) error) float64 {
	tb.Helper()
	var group sync.WaitGroup
	var done atomic.Int64
	begun := time.Now()
	for client := range clients {
		group.Go(func() {
			for i := 0; time.Since(begun) < window; i++ {
				if err := do(client, i); err != nil {
					tb.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds()
}
