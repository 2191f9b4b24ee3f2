package distributed_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/bench/process"
	"packhorse/odb/kv/postgres/postgrestest"
)

var binary = flag.String("packhorse", "", "the packhorse `binary`; without it nothing is measured")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(postgrestest.Main(m))
}

// rounds is how often a job is done on each side, in turns. A figure is that of the best round:
// other work on the machine makes a round worse, and none better.
const rounds = 5

// window is how long clients work for a rate.
const window = 2 * time.Second

// none is for jobs whose CPU time is not counted.
var none [2]time.Duration

// BenchmarkJobs measures each job on both sides, and prints the table of all.
func BenchmarkJobs(b *testing.B) {
	if *binary == "" {
		b.Skip("`make bench-distributed` names the binary")
	}
	bin, err := filepath.Abs(*binary)
	if err != nil {
		b.Fatal(err)
	}
	w := openWorld(b, bin)
	var rows []row
	for _, job := range []struct {
		name string
		run  func(w *world) []row
	}{
		{"idle", idle},
		{"ls-refs", listRefs},
		{"fetch", fetchNew},
		{"reads", reads},
		{"commit", commits},
		{"writers", writers},
		{"repositories", manyRepositories},
		{"push", pushes},
		{"create", creations},
		{"large", large},
		{"fold", fold},
		{"failover", failover},
	} {
		b.Run(job.name, func(b *testing.B) {
			scoped := *w
			scoped.TB = b
			b.ResetTimer()
			for b.Loop() {
				rows = append(rows, job.run(&scoped)...)
			}
		})
	}
	if err := report(os.Stdout, w.network, rows); err != nil {
		b.Error(err)
	}
}

// latency is a row about the time of an operation. prepare makes a place for it.
func (w *world) latency(
	job, must string, bound func(n network) time.Duration, count int, prepare func(s *server) func(i int) error,
) row {
	w.Helper()
	alone, shared := prepare(w.alone), prepare(w.shared[0])
	w.calm()
	var embedded, distributed, trip, flush best
	trips := 0.0
	var cpu [2]time.Duration
	for round := range rounds + 1 { // the first one warms up
		first := round * count
		if round == 1 {
			cpu = [2]time.Duration{w.cpu(w.alone), w.cpu(w.shared[0])}
		}
		one := medianOf(w, count, func(i int) error { return alone(first + i) })
		var other time.Duration
		added := w.trips(w.shared[0], func() {
			other = medianOf(w, count, func(i int) error { return shared(first + i) })
		})
		t, f := w.services.database(w)
		if round > 0 {
			embedded.add(one)
			distributed.add(other)
			trip.add(t)
			flush.add(f)
			trips = added / float64(count)
		}
	}
	for side, s := range []*server{w.alone, w.shared[0]} {
		cpu[side] = (w.cpu(s) - cpu[side]) / time.Duration(rounds*count)
	}
	n := w.network
	n.trip, n.flush = time.Duration(trip), time.Duration(flush)
	return row{
		job, milliseconds(time.Duration(embedded)), milliseconds(time.Duration(distributed)), "ms",
		must, milliseconds(bound(n)), false, trips, cpu,
	}
}

// best is the smallest of some durations.
type best time.Duration

func (b *best) add(d time.Duration) {
	if *b == 0 || d < time.Duration(*b) {
		*b = best(d)
	}
}

// rate is a row about operations in a second, of clients of one server and of several.
func (w *world) rate(
	job, must string, bound float64, clients int, servers []*server,
	prepare func(servers []*server) func(client, i int) error,
) row {
	w.Helper()
	var rates [2][]float64
	var trips float64
	var cpu [2]time.Duration
	for range rounds {
		for side, servers := range [][]*server{{w.alone}, servers} {
			do := prepare(servers)
			w.calm()
			before := w.cpu(servers...)
			var rate float64
			work := func() { rate = rateOf(w, clients, window, do) }
			if side == 0 {
				work()
			} else {
				trips = w.trips(servers[0], work) * float64(len(servers)) / (rate * window.Seconds())
			}
			cpu[side] = time.Duration(float64(w.cpu(servers...)-before) / (rate * window.Seconds()))
			rates[side] = append(rates[side], rate)
		}
	}
	return row{job, slices.Max(rates[0]), slices.Max(rates[1]), "/s", must, bound, true, trips, cpu}
}

// seeded returns a repository with some commits, and its newest commit.
func (w *world) seeded(s *server) (repository, string) {
	w.Helper()
	r := w.create(s, w.fresh("seeded"))
	tip := ""
	for i := range 30 {
		var err error
		tip, err = r.commit(fmt.Sprint(i), fmt.Sprintf("a/b/c/file%d", i%7), fmt.Sprintf("a/d%d/file", i))
		w.must(err)
	}
	return r, tip
}

func listRefs(w *world) []row {
	bound := func(n network) time.Duration { return 2*n.trip + time.Millisecond }
	return []row{w.latency("ls-refs", "2 T + 1 ms", bound, 100, func(s *server) func(int) error {
		r, _ := w.seeded(s)
		return func(int) error { return r.lsRefs() }
	})}
}

func fetchNew(w *world) []row {
	// The commits are made before anything is measured, and each fetch wants others.
	const count = 50
	bound := func(n network) time.Duration { return 3*n.trip + 2*time.Millisecond }
	return []row{w.latency("fetch of 3 commits", "3 T + 2 ms", bound, count, func(s *server) func(int) error {
		r, tip := w.seeded(s)
		chain := []string{tip}
		for i := range (rounds+1)*count + 3 {
			next, err := r.commit(fmt.Sprint(i), fmt.Sprintf("a/new%d/file", i%11))
			w.must(err)
			chain = append(chain, next)
		}
		return func(i int) error {
			_, err := r.fetch(chain[i+3], chain[i])
			return err
		}
	})}
}

func reads(w *world) []row {
	var rows []row
	for _, read := range []struct{ job, path string }{
		{"read a file", "file?path=a/b/c/file1"},
		{"list a tree", "files?recursive=false&path=a"},
		{"list 20 commits", "commits?limit=20"},
	} {
		bound := func(n network) time.Duration { return 3 * n.trip }
		rows = append(rows, w.latency(read.job, "3 T", bound, 100, func(s *server) func(int) error {
			r, _ := w.seeded(s)
			return func(int) error { return r.get(read.path) }
		}))
	}
	return rows
}

func commits(w *world) []row {
	bound := func(n network) time.Duration { return 5*n.trip + n.flush + time.Millisecond }
	return []row{w.latency("API commit, one client", "5 T + S + 1 ms", bound, 50, func(s *server) func(int) error {
		r, _ := w.seeded(s)
		return func(i int) error {
			_, err := r.commit(fmt.Sprint(i), "a/b/c/file")
			return err
		}
	})}
}

// committers returns clients that commit to one repository through some servers.
func committers(w *world, refusals *atomic.Int64) func(servers []*server) func(client, i int) error {
	return func(servers []*server) func(client, i int) error {
		r, _ := w.seeded(servers[0])
		return func(client, i int) error {
			through := r
			through.base = servers[client%len(servers)].URL
			_, err := through.commit(fmt.Sprint(i), fmt.Sprintf("a/w%d/file%d", client, i%10))
			if _, no := errors.AsType[*refused](err); no {
				refusals.Add(1)
				return nil
			}
			return err
		}
	}
}

func writers(w *world) []row {
	var refusals atomic.Int64
	return []row{
		w.rate("16 writers, 1 repository, 1 server", "500/s", 500, 16, w.shared[:1], committers(w, &refusals)),
		w.rate("16 writers, 1 repository, 2 servers", "300/s", 300, 16, w.shared[:], committers(w, &refusals)),
		w.rate("50 writers, 1 repository, 2 servers", "300/s", 300, 50, w.shared[:], committers(w, &refusals)),
		{"... commits refused in all of these", 0, float64(refusals.Load()), "", "none", 0.5, false, -1, none},
	}
}

func manyRepositories(w *world) []row {
	return []row{w.rate("16 writers, 16 repositories, 1 server", "1,000/s", 1000, 16, w.shared[:1],
		func(servers []*server) func(client, i int) error {
			rs := make([]repository, 16)
			for i := range rs {
				rs[i], _ = w.seeded(servers[0])
			}
			return func(client, i int) error {
				_, err := rs[client].commit(fmt.Sprint(i), fmt.Sprintf("a/b/file%d", i%10))
				return err
			}
		})}
}

func pushes(w *world) []row {
	const count = 25
	whole, chain := openHistory(w, (rounds+1)*count)
	bound := func(n network) time.Duration { return 6*n.trip + n.flush }
	return []row{w.latency("push of 1 commit", "6 T + S", bound, count, func(s *server) func(int) error {
		r := w.create(s, w.fresh("pushed"))
		w.must(r.push("", whole.tip, whole.pack))
		return func(i int) error {
			before := whole.tip
			if i > 0 {
				before = chain[i-1].tip
			}
			return r.push(before, chain[i].tip, chain[i].pack)
		}
	})}
}

func creations(w *world) []row {
	bound := func(n network) time.Duration { return 3*n.trip + n.flush }
	one := w.latency("create a repository", "3 T + S", bound, 30, func(s *server) func(int) error {
		return func(int) error { return w.repository(s, w.fresh("created")).create() }
	})
	many := w.rate("create repositories, 16 clients, 1 organization", "150/s", 150, 16, w.shared[:1],
		func(servers []*server) func(client, i int) error {
			return func(int, int) error { return w.repository(servers[0], w.fresh("created")).create() }
		})
	return []row{one, many}
}

// largeRounds is [rounds] for what takes seconds.
const largeRounds = 3

// large pushes a large history and clones it, from a server that has it and from one that starts.
func large(w *world) []row {
	n := w.network
	var pushed, cloned, first, whole [3][]float64 // alone, shared, shared without latency
	var rates []float64
	var trips float64
	small, smallTip := w.seeded(w.shared[0])
	for round := range largeRounds + 1 { // the first one warms up
		keep := func(to *[]float64, d time.Duration) {
			if round > 0 {
				*to = append(*to, milliseconds(d))
			}
		}
		history, name := newLarge(w, uint64(round)), w.fresh("large")
		push := func(s *server, name string) time.Duration {
			r := w.create(s, name)
			begun := time.Now()
			w.must(r.push("", history.tip, history.pack))
			return time.Since(begun)
		}
		keep(&pushed[0], push(w.alone, name))
		trips = w.trips(w.shared[0], func() { keep(&pushed[1], push(w.shared[0], name)) })
		near.Store(true)
		keep(&pushed[2], push(w.shared[0], name+"-near"))
		near.Store(false)
		for range 3 {
			for side, s := range []*server{w.alone, w.shared[0]} {
				got, err := w.repository(s, name).fetch(history.tip)
				w.must(err)
				keep(&cloned[side], got.all)
				if side == 0 {
					keep(&first[0], got.first)
				}
			}
		}
		fresh := w.start("", w.stores) // its cache is empty
		through := small
		through.base = fresh.URL
		_, err := through.fetch(smallTip) // opens connections
		w.must(err)
		got, err := w.repository(fresh, name).fetch(history.tip)
		w.must(err)
		w.must(fresh.Stop())
		keep(&first[1], got.first)
		keep(&whole[1], got.all)
		rates = append(rates, float64(got.bytes)/1e6/(got.all-got.first).Seconds())
	}
	local, warm, beside := slices.Min(pushed[0]), slices.Min(cloned[0]), slices.Min(pushed[2])
	late := milliseconds(2*n.put + 5*n.trip)
	return []row{
		{"push of 120 MB", local, slices.Min(pushed[1]), "ms", "local + 2 P + 5 T", local + late, false, trips, none},
		{
			"... beside itself without latency", beside, slices.Min(pushed[1]), "ms", "this + 2 P + 5 T", beside + late, false, -1, none,
		},
		{"clone of it, warm", warm, slices.Min(cloned[1]), "ms", "1.1 x local", 1.1 * warm, false, -1, none},
		{
			"clone of it, cold, first byte", slices.Min(first[0]), slices.Min(first[1]), "ms",
			"4 G + 3 T", milliseconds(4*n.get + 3*n.trip), false, -1, none,
		},
		{"... all of it", warm, slices.Min(whole[1]), "ms", "", 0, false, -1, none},
		{"... rate after the first byte", 0, slices.Max(rates), "MB/s", "200 MB/s", 200, true, -1, none},
	}
}

// fold counts the trips of a maintenance that flushes the hot layer of one repository, less those
// of one that finds nothing to do.
func fold(w *world) []row {
	stores := w.services.stores(w, "fold")
	s := w.start("fold", stores, "--maintenance-off")
	gc := func() float64 {
		return w.trips(s, func() {
			_, err := process.Output(exec.Command(w.bin, "gc", "--geometric", "--data", s.data))
			w.must(err)
		})
	}
	var trips []float64
	for range rounds {
		r := w.create(s, w.fresh("folded"))
		gc()
		nothing := gc()
		for objects, i := 0, 0; objects < 5_000; i++ {
			var paths []string
			for f := range 100 {
				paths = append(paths, fmt.Sprintf("dir%d/sub%d/file%d", f%10, i%3, f))
			}
			_, err := r.commit(fmt.Sprint(i), paths...)
			w.must(err)
			objects += 100 + 10 + 10 + 1 + 1
		}
		trips = append(trips, gc()-nothing)
	}
	return []row{{"fold of 5,000 hot objects", 0, slices.Min(trips), "trips", "60", 60, false, -1, none}}
}

// idle counts what a server asks when nobody asks it.
func idle(w *world) []row {
	const seconds = 10
	asked := w.trips(w.shared[0], func() { time.Sleep(seconds * time.Second) })
	return []row{{"idle server", 0, asked / seconds, "trips/s", "30/s", 30, false, -1, none}}
}

// failover lets a primary end under load and promotes its synchronous standby. It counts what was
// answered and is gone, and answers that tell nobody to try again.
func failover(w *world) []row {
	primary := postgrestest.Start(w)
	database := primary.Database(w)
	standby := primary.Standby(w)
	place := w.services.stores(w, "failover")
	place.keys = postgrestest.Hosts(database, primary, standby)
	s := w.start("failover", place)
	r := w.create(s, "failover")
	_, err := r.commit("first", "first")
	w.must(err)
	var (
		stop               = make(chan struct{})
		crashed, recovered time.Time
		group              sync.WaitGroup
		mu                 sync.Mutex // guards the fields below
		acknowledged       []string
		wrong              int
		again              []time.Time // the first success of each writer after the crash
	)
	const clients = 4
	for client := range clients {
		group.Go(func() {
			back := false
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				path := fmt.Sprintf("w%d/file%d", client, i)
				begun := time.Now()
				_, err := r.commit(path, path)
				mu.Lock()
				no, isRefused := errors.AsType[*refused](err)
				switch {
				case err == nil:
					acknowledged = append(acknowledged, path)
					if !crashed.IsZero() && begun.After(crashed) && !back {
						back = true
						again = append(again, time.Now())
					}
				case !isRefused || no.status != http.StatusServiceUnavailable || no.after == "":
					w.Logf("failover: %v", err)
					wrong++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(time.Second)
	primary.Crash(w)
	mu.Lock()
	crashed = time.Now()
	mu.Unlock()
	standby.Promote(w)
	recovered = time.Now()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		done := len(again) == clients
		mu.Unlock()
		if done {
			break
		}
	}
	close(stop)
	group.Wait()
	lost := 0
	for _, path := range acknowledged {
		if err := r.get("file?path=" + path); err != nil {
			lost++
		}
	}
	slowest := crashed
	for _, t := range again {
		if t.After(slowest) {
			slowest = t
		}
	}
	if len(again) < clients {
		w.Errorf("%d of %d writers go on", len(again), clients)
	}
	gap := milliseconds(recovered.Sub(crashed))
	return []row{
		{
			"database fails over, until all writers go on", 0, milliseconds(slowest.Sub(crashed)), "ms",
			"gap + 1 s", gap + 1000, false, -1, none,
		},
		{fmt.Sprintf("... of %d commits, lost", len(acknowledged)), 0, float64(lost), "", "none", 0.5, false, -1, none},
		{"... answers that are no 503 with Retry-After", 0, float64(wrong), "", "none", 0.5, false, -1, none},
	}
}
