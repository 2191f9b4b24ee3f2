package main_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// stormRounds is PACKHORSE_STORM_ROUNDS, or else the number given.
func stormRounds(t *testing.T, rounds int) int {
	t.Helper()
	return fromEnvironment(t, "PACKHORSE_STORM_ROUNDS", rounds)
}

// longStormRounds is PACKHORSE_STORM_ROUNDS. The test is skipped without it.
func longStormRounds(t *testing.T) int {
	t.Helper()
	rounds := stormRounds(t, 0)
	if rounds == 0 {
		t.Skip("PACKHORSE_STORM_ROUNDS is not set")
	}
	return rounds
}

// pair is two servers that share their stores. Each reaches the database and the bucket through
// proxies of its own.
type pair struct {
	t      *testing.T
	dir    string
	direct *sharedStores // past the proxies
	sides  [2]*side
	token  string // of the repository r
}

// side is one of the servers.
type side struct {
	*packhorsetest.Server
	pair    *pair
	options packhorsetest.Options
	keys    *postgrestest.Proxy
	files   *bucketProxy
}

// newPair starts two servers below dir with more flags over a database of a cluster, and makes the
// repository r.
func newPair(t *testing.T, dir string, database *postgrestest.Cluster, flags ...string) *pair {
	t.Helper()
	service := s3test.Start(t)
	name := database.Database(t)
	p := &pair{t: t, dir: dir, direct: &sharedStores{keys: database.URL(name)}}
	p.direct.files, p.direct.env = service.Place(t)
	for number := range p.sides {
		s := &side{pair: p, keys: postgrestest.NewProxy(t, database), files: new(bucketProxy)}
		stores := &sharedStores{
			keys: s.keys.URL(name), files: withEndpoint(t, p.direct.files, service.Proxy(t, s.files.wrap)), env: p.direct.env,
		}
		t.Cleanup(s.files.mend) // a request that is held keeps its proxy
		p.add(number, s, stores, flags)
	}
	p.create()
	return p
}

// newDirectPair is newPair over a database without any proxies.
func newDirectPair(t *testing.T, dir, keys string, flags ...string) *pair {
	t.Helper()
	p := &pair{t: t, dir: dir, direct: &sharedStores{keys: keys}}
	p.direct.files, p.direct.env = s3test.Start(t).Place(t)
	for number := range p.sides {
		p.add(number, &side{pair: p}, p.direct, flags)
	}
	p.create()
	return p
}

// create makes the repository.
func (p *pair) create() {
	p.t.Helper()
	create(p.t, p.sides[0].Server, "r")
	var err error
	p.token, err = p.sides[0].Token(p.t.Context(), "r", "--scope", "repo:write,git:write", "--ttl", "24h")
	if err != nil {
		p.t.Fatal(err)
	}
}

// add starts a side.
func (p *pair) add(number int, s *side, stores *sharedStores, flags []string) {
	p.t.Helper()
	s.options = stores.options(p.dir, number)
	s.options.Flags = append(s.options.Flags, flags...)
	p.sides[number] = s
	s.begin()
}

// withEndpoint is a place in a bucket that is reached at another endpoint.
func withEndpoint(t *testing.T, place, endpoint string) string {
	t.Helper()
	parsed, err := url.Parse(place)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	query.Set("endpoint", endpoint)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// begin starts the server, or starts it again.
func (s *side) begin() {
	s.pair.t.Helper()
	s.Server = start(s.pair.t, s.options)
}

// data returns the data folder of the server.
func (s *side) data() string { return filepath.Join(s.options.Dir, "data") }

// forget kills the server, and starts it again with an empty folder.
func (s *side) forget() {
	t := s.pair.t
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.options.Dir); err != nil {
		t.Fatal(err)
	}
	s.begin()
}

// remote returns the URL that git uses.
func (s *side) remote() string {
	return strings.Replace(s.URL, "://", "://t:"+s.pair.token+"@", 1) + "/r.git"
}

// awaitReady waits until /readyz has a status.
func (s *side) awaitReady(status int) {
	t := s.pair.t
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		now, text := call(t, http.DefaultClient, http.MethodGet, s.URL+"/readyz", "")
		if now == status {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s is %d and not %d: %s", s.URL, now, status, text)
		}
	}
}

// clone returns all of r as a server has it, which git has checked.
func (s *side) clone() *oracle.Repository {
	s.pair.t.Helper()
	return s.checkedClone("--strict")
}

// checkedClone clones the repository, and has git check the clone with these options.
func (s *side) checkedClone(options ...string) *oracle.Repository {
	t := s.pair.t
	t.Helper()
	git := oracle.Open(t, filepath.Join(t.TempDir(), "clone.git"))
	git.Git("clone", "--quiet", "--mirror", s.remote(), git.Dir)
	if out := git.Git(append([]string{"fsck", "--full", "--no-dangling"}, options...)...); out != "" {
		t.Errorf("git fsck: %s", out)
	}
	return git
}

// stop stops the servers and checks the stores.
func (p *pair) stop() {
	p.t.Helper()
	for _, s := range p.sides {
		if err := s.Stop(); err != nil {
			p.t.Error(err)
		}
	}
	got := packhorse(p.t, p.direct.env, append([]string{"fsck", "--data", p.t.TempDir()}, p.direct.flags()...)...)
	if got.status != 0 {
		p.t.Errorf("fsck: %+v", got)
	}
}

// bucketProxy stands between a server and a bucket.
type bucketProxy struct {
	mu     sync.Mutex // guards the fields below
	down   bool
	thawed chan struct{} // nil unless frozen
	random *rand.Rand    // of the faults
	chance float64       // of a fault
	count  int           // of the faults so far
}

// wrap passes requests on unless the bucket is away.
func (b *bucketProxy) wrap(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		down, thawed, fault := b.down, b.thawed, b.draw(r)
		b.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if thawed != nil {
			select {
			case <-thawed:
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		if fault != nil {
			fault(w, r, service)
			return
		}
		service.ServeHTTP(w, r)
	})
}

// bucketFaults are those of requests whose answer has no body, and then those whose answer has one.
var bucketFaults = []s3test.Fault{
	s3test.Says(http.StatusServiceUnavailable, "SlowDown"), s3test.Says(http.StatusInternalServerError, "InternalError"),
	s3test.Reset, s3test.Lost,
	s3test.Cut, s3test.Short,
}

// draw returns the fault of a request, nil for none. The caller holds mu.
func (b *bucketProxy) draw(r *http.Request) s3test.Fault {
	if b.random == nil || b.random.Float64() >= b.chance {
		return nil
	}
	b.count++
	faults := bucketFaults[:4]
	switch {
	case r.Method == http.MethodPost && r.URL.Query().Has("uploadId"): // CompleteMultipartUpload
		faults = append(faults[:4:4], s3test.DoneWithError, s3test.Says(http.StatusOK, "InternalError"))
	case r.Method == http.MethodGet:
		faults = bucketFaults
	}
	return faults[b.random.IntN(len(faults))]
}

// disturb lets each request from now on meet a fault with that chance.
func (b *bucketProxy) disturb(seed uint64, chance float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.random, b.chance = rand.New(rand.NewPCG(seed, 77)), chance
}

// faults returns how many requests have met one.
func (b *bucketProxy) faults() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// cut cuts the requests that come, until mend.
func (b *bucketProxy) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = true
}

// freeze leaves the requests that come without an answer, until mend.
func (b *bucketProxy) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.thawed = make(chan struct{})
}

// mend ends cut and freeze.
func (b *bucketProxy) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
	if b.thawed != nil {
		close(b.thawed)
		b.thawed = nil
	}
}
