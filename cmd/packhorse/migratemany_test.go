package main_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestMigrateMany moves PACKHORSE_MIGRATE_COUNT repositories to a database and a bucket and back,
// with five kills on the way: each has the same refs and objects as before on either side, and who
// has moved away opens no more. A tenth of them were pushed, the others committed to; the
// repository of PACKHORSE_REAL_REPO is among them if it is set.
func TestMigrateMany(t *testing.T) {
	t.Parallel()
	count := fromEnvironment(t, "PACKHORSE_MIGRATE_COUNT", 0)
	if count == 0 {
		t.Skip("PACKHORSE_MIGRATE_COUNT is not set")
	}
	service := s3test.Start(t)
	stores := &sharedStores{keys: postgrestest.Database(t)}
	stores.files, stores.env = service.Place(t)
	m := &manyRepositories{t: t, dir: t.TempDir(), before: map[string]string{}, tokens: map[string]string{}}
	data := func(name string) string { return filepath.Join(m.dir, name, "data") }
	options := func(name string) packhorsetest.Options {
		return packhorsetest.Options{Dir: filepath.Join(m.dir, name), Orgs: m.dir, Env: stores.env}
	}
	m.server = start(t, options("alone"))
	m.fill(count)
	m.stop()

	segments := int64(count/10) + 1
	for _, at := range []int64{1, segments / 2, segments} {
		stores.killMigrate(t, service, http.MethodPut, max(at, 1), "--data", data("alone"))
	}
	to := func(name string, more ...string) []string {
		return append(append([]string{"migrate", "--data", data(name)}, stores.flags()...), more...)
	}
	if got := packhorse(t, stores.env, to("alone")...); got.status != 0 {
		t.Fatalf("migrate: %+v", got)
	}
	if got := packhorse(t, nil, "fsck", "--data", data("alone")); got.status != 1 ||
		!strings.Contains(got.errOut, "cannot be opened") {
		t.Errorf("the folder that has moved away: %+v", got)
	}
	shared := options("servers")
	shared.Flags = stores.flags()
	m.server = start(t, shared)
	m.check()
	m.stop()

	for _, at := range []int64{2, segments} {
		stores.killMigrate(t, service, http.MethodGet, max(at, 1), "--data", data("back"), "--back")
	}
	if got := packhorse(t, stores.env, to("back", "--back")...); got.status != 0 {
		t.Fatalf("migrate back: %+v", got)
	}
	got := packhorse(t, stores.env, append([]string{"gc", "--data", data("servers")}, stores.flags()...)...)
	if got.status != 1 || !strings.Contains(got.errOut, "were moved to folder") {
		t.Errorf("the stores that have moved away: %+v", got)
	}
	m.server = start(t, options("back"))
	m.check()
	m.stop()
	if got := packhorse(t, nil, "fsck", "--data", data("back")); got.status != 0 {
		t.Errorf("fsck: %+v", got)
	}
}

// manyRepositories are repositories of a server, and what they held.
type manyRepositories struct {
	t      *testing.T
	dir    string
	server *packhorsetest.Server

	tokens map[string]string // by name
	mu     sync.Mutex
	before map[string]string // guarded by mu: by name
}

// each works on the repositories of a count, several at a time.
func (m *manyRepositories) each(count int, do func(n int)) {
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for n := worker; n < count; n += 4 {
				do(n)
			}
		})
	}
	workers.Wait()
}

func (m *manyRepositories) remote(repo string) string {
	return strings.Replace(m.server.URL, "://", "://t:"+m.tokens[repo]+"@", 1) + "/" + repo + ".git"
}

// fill makes the repositories.
func (m *manyRepositories) fill(count int) {
	t := m.t
	t.Helper()
	name := func(n int) string { return fmt.Sprintf("r%d", n) }
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 62, Commits: 400, Merges: true, Tags: true}) // becomes a segment
	for n := range count {
		token := create(t, m.server, name(n))
		m.tokens[name(n)] = token
	}
	m.each(count, func(n int) {
		repo := name(n)
		if n%10 != 0 {
			for i := range 1 + n%5 {
				send(t.Context(), http.MethodPost, m.server.URL+"/api/v1/repos/commit-pack", m.tokens[repo], "",
					commitPack("main", "", fmt.Sprint(100*n+i))).mustBe(t, http.StatusCreated)
			}
			return
		}
		source := git
		if n == 0 && os.Getenv("PACKHORSE_REAL_REPO") != "" {
			source = oracle.Real(t)
		}
		if _, err := source.Try(nil, "push", "--quiet", m.remote(repo), "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"); err != nil {
			t.Error(err)
		}
	})
	m.each(count, func(n int) {
		content := m.content(name(n))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.before[name(n)] = content
	})
}

// content clones a repository, and returns its refs and a hash of the names and paths of its
// objects.
func (m *manyRepositories) content(repo string) string {
	dir, err := os.MkdirTemp(m.dir, "clone")
	if err != nil {
		m.t.Error(err)
		return ""
	}
	defer func() { _ = os.RemoveAll(dir) }()
	git := oracle.Open(m.t, dir)
	var content []byte
	for _, args := range [][]string{
		{"clone", "--quiet", "--mirror", m.remote(repo), dir}, {"for-each-ref"}, {"rev-list", "--objects", "--all"},
	} {
		out, err := git.Try(nil, args...)
		if err != nil {
			m.t.Error(err)
			return ""
		}
		content = append(content, out...)
	}
	return fmt.Sprintf("%d bytes with the hash %x", len(content), sha256.Sum256(content))
}

// check compares all repositories with what they were.
func (m *manyRepositories) check() {
	m.t.Helper()
	names := slices.Sorted(maps.Keys(m.before))
	m.each(len(names), func(n int) {
		if got := m.content(names[n]); got != m.before[names[n]] {
			m.t.Errorf("%s has %s, and not %s", names[n], got, m.before[names[n]])
		}
	})
}

// stop stops the server.
func (m *manyRepositories) stop() {
	m.t.Helper()
	if err := m.server.Stop(); err != nil {
		m.t.Fatal(err)
	}
}
