package main_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file/s3"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// sharedStores are a database and a place in a bucket for several servers.
type sharedStores struct {
	keys, files string
	env         []string       // of the servers
	service     *s3test.Server // of files; nil if the test has made these itself
}

// newSharedStores makes empty stores, or skips the test where PostgreSQL or an S3 service is
// missing.
func newSharedStores(t *testing.T) *sharedStores {
	t.Helper()
	skipShort(t)
	s := &sharedStores{keys: postgrestest.Database(t)}
	s.service = s3test.Start(t)
	s.files, s.env = s.service.Place(t)
	return s
}

// skipShort skips a test of several servers under -short. The race detector, for which that is,
// sees nothing of them: they are processes of their own.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("servers over shared stores, not under -short")
	}
}

// eachStore runs a test with a server over the stores in its data folder, and with two that share
// stores.
func eachStore(t *testing.T, test func(t *testing.T, stores *sharedStores)) {
	t.Helper()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		test(t, newSharedStores(t))
	})
}

// flags returns the flags that name the stores.
func (s *sharedStores) flags() []string {
	return []string{"--keys", s.keys, "--files", s.files}
}

// options returns the options of a server whose organizations are those in dir, stored as rows.
func (s *sharedStores) options(dir string, number int) packhorsetest.Options {
	return packhorsetest.Options{
		Dir: filepath.Join(dir, fmt.Sprintf("server%d", number)), Orgs: dir, Rows: s.keys, Env: s.env,
		Bin: bin, Flags: append(s.flags(), "--cache-bytes", "64MiB", "--server-url", fmt.Sprintf("http://server%d", number)),
	}
}

// TestServers pushes through one server and clones from another. When the first is killed, the
// other goes on, and takes over what the first did for both.
func TestServers(t *testing.T) {
	t.Parallel()
	stores, dir := newSharedStores(t), t.TempDir()
	first, second := start(t, stores.options(dir, 0)), start(t, stores.options(dir, 1))
	token := create(t, first, "r")
	remote := func(s *packhorsetest.Server) string {
		return strings.Replace(s.URL, "://", "://t:"+token+"@", 1) + "/r.git"
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 7, Commits: 200, Merges: true, Binary: true})
	git.Git("push", "--quiet", "--mirror", remote(first))
	equal := func(from *packhorsetest.Server) {
		t.Helper()
		clone := oracle.Open(t, filepath.Join(t.TempDir(), "clone.git"))
		clone.Git("clone", "--quiet", "--mirror", remote(from), clone.Dir)
		clone.Git("fsck", "--full", "--strict")
		for _, args := range [][]string{{"rev-list", "--objects", "--all", "--topo-order"}, {"for-each-ref"}} {
			if clone.Git(args...) != git.Git(args...) {
				t.Errorf("git %s differs", args[0])
			}
		}
	}
	equal(second)

	duties := awaitDuties(t, stores, 2, nil)
	if slices.Equal(duties, []string{"-"}) {
		t.Fatal("nobody has a duty")
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	tip := git.Git("commit-tree", "-p", "main", "-m", "while the first is away", "main^{tree}")
	git.Git("update-ref", "refs/heads/main", tip)
	git.Git("push", "--quiet", remote(second), "main")
	equal(second)
	begun := time.Now()
	awaitDuties(t, stores, 1, duties)
	t.Logf("the duties of the other were taken over in %v", time.Since(begun))
	_, figures := call(t, http.DefaultClient, "GET", second.URL+"/metrics", "")
	if line := fmt.Sprintf("packhorse_duties %d\n", len(duties)); !strings.Contains(figures, line) {
		t.Errorf("the metrics lack %q", line)
	}
	if line := "\npackhorse_clock_difference_seconds "; !strings.Contains(figures, line) {
		t.Errorf("the metrics lack %q", line)
	}

	if err := os.RemoveAll(stores.options(dir, 0).Dir); err != nil { // nothing is only there
		t.Fatal(err)
	}
	first = start(t, stores.options(dir, 0))
	equal(first)
	revokeKey(t, []*packhorsetest.Server{first, second}, token)
	if status, text := call(t, http.DefaultClient, "DELETE", first.URL+"/api/v1/repos/delete", token); status/100 != 2 {
		t.Fatalf("delete: %d %s", status, text)
	}
	for _, server := range []*packhorsetest.Server{first, second} {
		if status, text := call(t, http.DefaultClient, "GET", server.URL+"/api/v1/repo", token); status != http.StatusNotFound {
			t.Errorf("after the deletion: %d %s", status, text)
		}
		if status, text := call(t, http.DefaultClient, "GET", server.URL+"/readyz", ""); status != http.StatusOK {
			t.Errorf("readiness: %d %s", status, text)
		}
	}
}

// revokeKey has the key of a token replaced by another one, which no server takes from then on, and
// put back.
func revokeKey(t *testing.T, servers []*packhorsetest.Server, token string) {
	t.Helper()
	key, err := filepath.Glob(filepath.Join(servers[0].OrgDir(), "*.pem"))
	if err != nil || len(key) != 1 {
		t.Fatal(key, err)
	}
	was, err := os.ReadFile(key[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		key  []byte
		want int
	}{{otherPublicKey(t), http.StatusUnauthorized}, {was, http.StatusOK}} {
		if err := os.WriteFile(key[0], step.key, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := servers[0].ApplyOrgs(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, server := range servers {
			for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
				status, text := call(t, http.DefaultClient, "GET", server.URL+"/api/v1/repo", token)
				if status == step.want {
					break
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("a minute after the change: %d %s, want %d", status, text, step.want)
				}
			}
		}
	}
}

// awaitDuties waits until so many servers live and they have the given duties together, or any if
// none is given, and returns these. Each has one server.
func awaitDuties(t *testing.T, stores *sharedStores, count int, want []string) []string {
	t.Helper()
	var told result // by the last one that was answered
	for begun, tries := time.Now(), 1; ; tries++ {
		got := packhorse(t, nil, "cluster", "--keys", stores.keys) // which fails if the database is slow
		if got.status == 0 {
			told = got
		}
		var duties []string
		live := 0
		for line := range strings.Lines(got.out) {
			if fields := strings.Fields(line); len(fields) == 5 && fields[1] == "live" {
				live++
				duties = append(duties, strings.Split(fields[4], ",")...)
			}
		}
		duties = slices.DeleteFunc(duties, func(duty string) bool { return duty == "-" })
		slices.Sort(duties)
		if len(slices.Compact(slices.Clone(duties))) != len(duties) {
			t.Errorf("a duty has two servers:\n%s", got.out)
		}
		if got.status == 0 && live == count && len(duties) > 0 && (want == nil || slices.Equal(duties, want)) {
			return duties
		}
		if time.Since(begun) > patienceOfTests {
			t.Fatalf("not so far, after %d tries; the last one that was answered: %+v; the last one: %+v", tries, told, got)
		}
	}
}

// rows is every row of the database but notes of files: a failed probe leaves its own to the
// collector. A line each, with a hash of the value.
func (s *sharedStores) rows(t *testing.T) (rows []string) {
	t.Helper()
	keys, err := postgres.Open(t.Context(), postgres.Options{URL: s.keys, Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	}()
	for row, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Key[0] != intent.Table {
			rows = append(rows, fmt.Sprintf("row %q %x", row.Key, sha256.Sum256(row.Value)))
		}
	}
	return rows
}

// stateOf is what servers keep: every file below a folder but sockets, every row of databases, and
// every object of buckets. A line each, with a hash of the content.
func stateOf(t *testing.T, dir string, stores ...*sharedStores) (state []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(where, name string, content []byte) {
		state = append(state, fmt.Sprintf("%s %q %x", where, name, sha256.Sum256(content)))
	}
	must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		// To open and close the file of a lock would end the lock that this process has.
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "LOCK" {
			add(entry.Type().String(), path, nil)
			return err
		}
		content, err := os.ReadFile(path)
		add("file", path, content)
		return err
	}))
	for _, s := range stores {
		state = append(state, s.rows(t)...)
		location, err := s3.ParseLocation(s.files)
		must(err)
		client := s.service.Client()
		list, err := client.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: &location.Bucket})
		must(err)
		if *list.IsTruncated || len(list.Contents) == 0 {
			t.Fatalf("%d objects in the bucket", len(list.Contents))
		}
		for _, object := range list.Contents {
			got, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: &location.Bucket, Key: object.Key})
			must(err)
			content, err := io.ReadAll(got.Body)
			must(errors.Join(err, got.Body.Close()))
			add("object", *object.Key, content)
		}
	}
	return state
}

// TestServersRefusals starts servers with stores that are not theirs: each refusal is a line that
// says why, and changes nothing: no file, no row, no object.
func TestServersRefusals(t *testing.T) {
	t.Parallel()
	stores, other, dir := newSharedStores(t), newSharedStores(t), t.TempDir()
	serve := func(data string, flags ...string) result {
		return packhorse(t, append([]string{"PACKHORSE_MIN_FREE=1MiB"}, stores.env...),
			append([]string{
				"serve", "--listen", "127.0.0.1:0", "--orgs", filepath.Join(dir, "orgs"), "--log-level", "error",
				"--data", filepath.Join(dir, data),
			}, flags...)...)
	}
	for _, s := range []*sharedStores{stores, other} { // each knows its own
		options := s.options(dir, 0)
		options.Dir = t.TempDir()
		server := start(t, options)
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	alone := start(t, packhorsetest.Options{Dir: filepath.Join(dir, "alone"), Orgs: dir})
	if err := alone.Stop(); err != nil {
		t.Fatal(err)
	}
	shared := start(t, stores.options(dir, 0))
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 7, Commits: 50, Binary: true})
	git.Git("push", "--quiet", "--mirror", strings.Replace(shared.URL, "://", "://t:"+create(t, shared, "r")+"@", 1)+"/r.git")
	if err := shared.Stop(); err != nil { // it would change rows
		t.Fatal(err)
	}
	noDatabase := stores.keys[:strings.LastIndex(stores.keys, "/packhorse_test_")] + "/none" +
		stores.keys[strings.Index(stores.keys, "?"):]
	with := func(keys, files string) []string { return []string{"--keys", keys, "--files", files} }
	otherwise := func(old, replaced string) string { return strings.Replace(stores.files, old, replaced, 1) }
	for name, c := range map[string]struct {
		data   string
		flags  []string
		status int
		want   string
	}{
		"keys alone":           {"new", []string{"--keys", stores.keys}, 2, "--keys and --files go together"},
		"files alone":          {"new", []string{"--files", stores.files}, 2, "--keys and --files go together"},
		"no URL":               {"new", with("mysql://x", stores.files), 2, "--keys"},
		"no database":          {"new", with(noDatabase, stores.files), 1, "none"},
		"no location":          {"new", with(stores.keys, "/srv/files"), 2, "want s3://BUCKET"},
		"no bucket":            {"new", with(stores.keys, otherwise("s3://", "s3://none-")), 1, "--files"},
		"another bucket":       {"new", with(stores.keys, other.files), 1, "belongs to another store"},
		"an empty bucket":      {"new", with(stores.keys, otherwise("?", "-empty?")), 1, "does not have the files of this store"},
		"a folder with stores": {"alone/data", stores.flags(), 2, "choose another folder"},
		"a folder without":     {"server0/data", nil, 2, "choose another folder"},
		"a folder in use":      {"server0/data", stores.flags(), 2, "in use"},
		"organizations twice":  {"new", stores.flags(), 2, "--orgs: the organizations are in the database of --keys: leave --orgs out"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(c.want, "in use") { // as by a server that changes nothing meanwhile
				options := stores.service.Options(t)
				options.Dir = filepath.Join(dir, c.data, "spool")
				s3test.Open(t, options)
			}
			before := stateOf(t, dir, stores, other)
			got := serve(c.data, c.flags...)
			after := stateOf(t, dir, stores, other)
			for _, line := range slices.Concat(before, after) {
				if slices.Contains(before, line) != slices.Contains(after, line) {
					t.Errorf("changed: %s", line)
				}
			}
			line := strings.TrimSuffix(got.errOut, "\n")
			if got.status != c.status || !strings.Contains(line, c.want) || strings.Contains(line, "\n") {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
	got := packhorse(t, nil, "cluster", "--keys", stores.keys, "--watch", "2s")
	if got.status != 2 || !strings.Contains(got.errOut, "--watch: 2s is too short") {
		t.Errorf("%+v", got)
	}
	got = packhorse(t, nil, "serve", "--data", filepath.Join(dir, "new"), "--listen", "127.0.0.1:0")
	if got.status != 2 || !strings.Contains(got.errOut, "missing flags: --orgs=DIR") {
		t.Errorf("%+v", got)
	}
}
