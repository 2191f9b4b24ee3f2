package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// apiArgs are the flags of commands that work through a server's API.
func apiArgs(server *packhorsetest.Server, base string) []string {
	return []string{"--url", base, "--org", packhorsetest.Org, "--key", server.KeyFile()}
}

// imported runs packhorse import to its end.
func imported(t *testing.T, server *packhorsetest.Server, args ...string) result {
	t.Helper()
	return packhorse(t, nil, append(append([]string{"import"}, apiArgs(server, server.URL)...), args...)...)
}

// contentOf is what a repository is: HEAD, its refs, and all that they reach.
func contentOf(repo *oracle.Repository) string {
	var text strings.Builder
	text.WriteString(repo.Git("symbolic-ref", "HEAD") + "\n")
	for line := range strings.Lines(repo.Git("for-each-ref", "--format=%(objectname) %(refname)") + "\n") {
		if !strings.Contains(line, "refs/replace/") {
			text.WriteString(line)
		}
	}
	lines := strings.Split(repo.Git("--no-replace-objects", "rev-list", "--objects", "--no-object-names", "--all"), "\n")
	slices.Sort(lines)
	return text.String() + strings.Join(lines, "\n")
}

// held is the content of a repository of a server.
func held(t *testing.T, server *packhorsetest.Server, name string) string {
	t.Helper()
	token, err := server.Token(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	clone := oracle.NewAt(t, filepath.Join(t.TempDir(), "clone.git"))
	remote := strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/" + name + ".git"
	clone.Git("fetch", "-q", remote, "+refs/*:refs/*")
	for line := range strings.Lines(clone.Git("ls-remote", "--symref", remote, "HEAD")) {
		if target, ok := strings.CutPrefix(line, "ref: "); ok {
			clone.Git("symbolic-ref", "HEAD", strings.Fields(target)[0])
		}
	}
	return contentOf(clone)
}

// origins makes a folder of different bare repositories. It returns them by name.
func origins(t *testing.T) (dir string, repos map[string]*oracle.Repository) {
	t.Helper()
	dir, repos = t.TempDir(), make(map[string]*oracle.Repository)
	for i, name := range []string{"plain", "web/site", "web/tools", "old"} {
		repo := oracle.NewAt(t, filepath.Join(dir, name+".git"))
		repo.Seed(oracle.History{Seed: uint64(i + 1), Commits: 6 + 24*(i%2), Merges: true, Tags: true})
		repos[name] = repo
	}
	repos["plain"].Git("tag", "-a", "-m", "a tag", "annotated", "main")
	repos["plain"].Git("notes", "add", "-m", "a note", "main")
	repos["plain"].Git("update-ref", "refs/custom/deep/x", repos["plain"].Write("blob", []byte("a blob")))
	repos["plain"].Git("update-ref", "refs/replace/"+repos["plain"].Git("rev-parse", "main"), "main~1")
	repos["web/site"].Git("repack", "-adq")
	repos["web/site"].Git("pack-refs", "--all")
	repos["old"].Git("branch", "-m", "main", "trunk")
	repos["old"].Git("symbolic-ref", "HEAD", "refs/heads/trunk")
	return dir, repos
}

// killer is a proxy of a server that kills its client at one request.
type killer struct {
	t      *testing.T
	target *url.URL
	proxy  *httptest.Server

	mu     sync.Mutex // guards the fields below
	client *exec.Cmd
	at     func(r *http.Request) bool
	after  bool // kill when the server has answered
}

func newKiller(t *testing.T, server *packhorsetest.Server) *killer {
	t.Helper()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{t: t, target: target}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(response *http.Response) error {
			if k.due(response.Request, true) {
				k.kill()
			}
			return nil
		},
	}
	k.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k.due(r, false) {
			_, _ = io.CopyN(io.Discard, r.Body, 1000) // a part of a pack, if it has one
			k.kill()
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(k.proxy.Close)
	return k
}

func (k *killer) due(r *http.Request, after bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.client != nil && k.after == after && k.at(r)
}

// kill ends the client, once.
func (k *killer) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		_ = k.client.Process.Kill() // Wait tells whether it ended so
		k.client = nil
	}
}

// run runs packhorse import until it is killed.
func (k *killer) run(at func(*http.Request) bool, after bool, args ...string) {
	k.t.Helper()
	client := exec.Command(bin, args...)
	k.mu.Lock()
	err := client.Start()
	k.client, k.at, k.after = client, at, after
	k.mu.Unlock()
	if err != nil {
		k.t.Fatal(err)
	}
	_ = client.Wait() // its status is looked at below
	if status, ok := client.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		k.t.Errorf("the import ended before it was killed: %s", client.ProcessState)
	}
}

// nth is true at one of the POST requests whose path ends so.
func nth(n int, suffix string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, suffix) {
			n--
			return n == 0
		}
		return false
	}
}

// TestImport kills imports at several moments; the last one finishes what they have begun.
func TestImport(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	dir, repos := origins(t)
	oracle.NewAt(t, filepath.Join(dir, "empty.git"))
	k := newKiller(t, server)
	args := append(append([]string{"import", "--jobs", "2"}, apiArgs(server, k.proxy.URL)...), dir)
	k.run(nth(1, "/api/repos"), false, args...)
	k.run(nth(1, "/api/repos"), true, args...)
	k.run(nth(1, "/git-receive-pack"), false, args...)
	k.run(nth(2, "/git-receive-pack"), true, args...)
	k.run(nth(1, "/git-receive-pack"), false, args...)

	dry := imported(t, server, "--dry-run", dir)
	if dry.status != 0 || !strings.Contains(dry.out, "would import ") || !strings.Contains(dry.out, "5 repositories: ") {
		t.Errorf("dry run: %+v", dry)
	}
	if got := imported(t, server, dir); got.status != 0 || !strings.Contains(got.out, " 0 failed; ") {
		t.Fatalf("%+v", got)
	}
	for name, repo := range repos {
		if got, want := held(t, server, name), contentOf(repo); got != want {
			t.Errorf("%s holds\n%s\nwant\n%s", name, got, want)
		}
	}
	var names []string
	list := packhorse(t, nil, append([]string{"repos", "list"}, apiArgs(server, server.URL)...)...)
	for line := range strings.Lines(list.out) {
		var row struct {
			Name string `json:"repo_name"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %+v", err, list)
		}
		names = append(names, row.Name)
	}
	slices.Sort(names)
	if want := []string{"empty", "old", "plain", "web/site", "web/tools"}; !slices.Equal(names, want) {
		t.Errorf("the server has %q, want %q", names, want)
	}
	again := imported(t, server, dir)
	if again.status != 0 || !strings.HasPrefix(strings.SplitAfter(again.out, "repositories: ")[1], "0 imported, 0 updated, 5 equal") {
		t.Errorf("once more: %+v", again)
	}
}

// TestImportMovesOn brings what an origin got later, and never takes back what the server has.
func TestImportMovesOn(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	repo := oracle.NewAt(t, filepath.Join(t.TempDir(), "site.git"))
	repo.Seed(oracle.History{Seed: 7, Commits: 12})
	tip := repo.Git("rev-parse", "main")
	repo.Git("update-ref", "refs/heads/main", "main~2")
	args := []string{"--prefix", "mirror", repo.Dir}
	if got := imported(t, server, args...); got.status != 0 || !strings.Contains(got.out, "imported mirror/site, ") {
		t.Fatalf("%+v", got)
	}
	repo.Git("update-ref", "refs/heads/main", tip)
	if got := imported(t, server, args...); got.status != 0 || !strings.Contains(got.out, "updated mirror/site, 1 ref,") {
		t.Fatalf("%+v", got)
	}
	if got, want := held(t, server, "mirror/site"), contentOf(repo); got != want {
		t.Errorf("it holds\n%s\nwant\n%s", got, want)
	}
	repo.Git("update-ref", "refs/heads/main", "main~4")
	got := imported(t, server, args...)
	if got.status != 1 || !strings.Contains(got.out, "denied by policy: no-force-push on refs/heads/main") {
		t.Errorf("an origin that went back: %+v", got)
	}
	if got := imported(t, server, append(args, "--force")...); got.status != 0 {
		t.Errorf("with --force: %+v", got)
	}
	if got, want := held(t, server, "mirror/site"), contentOf(repo); got != want {
		t.Errorf("it holds\n%s\nwant\n%s", got, want)
	}
}

// TestImportHosts brings repositories of a host, by their URLs and by what GitHub lists. The host
// is the server itself, where they get other names.
func TestImportHosts(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	dir, repos := origins(t)
	if got := imported(t, server, dir); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	remote := func(name string) string {
		token, err := server.Token(t.Context(), name, "--scope", "git:read")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/" + name + ".git"
	}
	token, err := server.Token(t.Context(), "plain", "--scope", "git:read")
	if err != nil {
		t.Fatal(err)
	}
	github := fakeGitHub(t, token, server.URL+"/plain.git")
	list := write(t, "list", "# of the old host\n\n"+remote("web/site")+"\n"+remote("old")+" renamed\n"+server.URL+"/absent.git\n")
	got := imported(t, server, "--prefix", "copy", "--github-api", github, "--github-token-file", write(t, "token", token+"\n"), "@"+list, "github:acme")
	if got.status != 1 || !strings.Contains(got.out, "4 repositories: 3 imported, 0 updated, 0 equal, 1 failed") ||
		!strings.Contains(got.out, "failed: copy/absent from "+server.URL+"/absent.git") {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got.out+got.errOut, token) {
		t.Error("a token is told")
	}
	for name, origin := range map[string]string{"web/site": "web/site", "renamed": "old", "acme/plain": "plain"} {
		if got, want := held(t, server, "copy/"+name), contentOf(repos[origin]); got != want {
			t.Errorf("%s holds\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestImportManyRefs brings more refs than one push may change, from a folder and from a host: the
// second push needs no objects, and the third builds on those of the first.
func TestImportManyRefs(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	repo := oracle.NewAt(t, filepath.Join(t.TempDir(), "many.git"))
	tip := repo.Seed(oracle.History{Seed: 8, Commits: 20})
	late := repo.Git("commit-tree", "-p", tip, "-m", "late", "main~1^{tree}")
	var packed strings.Builder // as git keeps them, because making so many files takes long
	for i := range 10_000 {
		fmt.Fprintf(&packed, "%s refs/heads/b%05d\n", tip, i)
	}
	fmt.Fprintf(&packed, "%s refs/heads/late\n", late)
	if err := os.WriteFile(filepath.Join(repo.Dir, "packed-refs"), []byte(packed.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	remote := func(name string) string {
		token, err := server.Token(t.Context(), name, "--scope", "git:read")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(server.URL, "://", "://t:"+token+"@", 1) + "/" + name + ".git"
	}
	want := repo.Git("ls-remote", repo.Dir)
	for _, step := range []struct{ prefix, source, name string }{
		{"one", repo.Dir, "one/many"}, {"two", remote("one/many"), "two/one/many"},
	} {
		got := imported(t, server, "--prefix", step.prefix, step.source)
		if got.status != 0 || !strings.Contains(got.out, "imported "+step.name+", 10002 refs") {
			t.Fatalf("%+v", got)
		}
		far := remote(step.name)
		if got := repo.Git("ls-remote", far); got != want {
			t.Errorf("from %s: %d bytes of refs, want %d", step.source, len(got), len(want))
		}
		clone := oracle.NewAt(t, filepath.Join(t.TempDir(), "clone.git"))
		clone.Git("fetch", "-q", far, "refs/heads/late")
		clone.Git("fsck", "--strict")
	}
}

// fakeGitHub is an API of GitHub with one repository on the second page of a user's.
func fakeGitHub(t *testing.T, token, clone string) string {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch {
		case r.URL.Path != "/users/acme/repos":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Get("page") == "":
			w.Header().Set("Link", `<`+server.URL+`/users/acme/repos?page=2>; rel="next", <`+server.URL+`/x>; rel="last"`)
			_, _ = io.WriteString(w, "[]")
		default:
			_, _ = fmt.Fprintf(w, `[{"full_name": "acme/plain", "clone_url": %q, "size": 12}]`, clone)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestImportUsage(t *testing.T) {
	t.Parallel()
	key := write(t, "k.pem", "no key")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no repositories": {[]string{t.TempDir()}, "is a folder without repositories"},
		"SSH":             {[]string{"ssh://git@example.com/a.git"}, "is not an http or https URL with a host"},
		"open password":   {[]string{"http://u:hunter2@example.com/a.git"}, "would send a password without encryption"},
		"no account":      {[]string{"github:"}, "is not github: and the name of an account: expected one as in github:acme"},
		"long line":       {[]string{"@" + write(t, "l", "https://a.example/b c d\n")}, ":1\" has more than two words: expected a URL and perhaps a name"},
		"malformed":       {[]string{"https://u:hunter2@[/a.git"}, "<source>: an argument is not a URL: expected one as in https://"},
		"no jobs":         {[]string{"--jobs=0", "."}, "--jobs: 0 is too little: expected 1 or more"},
	} {
		got := packhorse(t, nil, append([]string{"import", "--url", "http://127.0.0.1:1", "--org", "a", "--key", key}, test.args...)...)
		if got.status != 2 || !strings.Contains(got.errOut, test.want) || strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestImportRefused has the server refuse the key: one line says so, and not one for each
// repository.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	dir, _ := origins(t)
	got := packhorse(t, nil, "import", "--url", server.URL, "--org", "stranger", "--key", server.KeyFile(), dir)
	if got.status != 2 || got.out != "" || !strings.Contains(got.errOut, `--key and --org: `) ||
		!strings.Contains(got.errOut, `takes no token of organization "stranger"`) {
		t.Errorf("%+v", got)
	}
	nothing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nothing.Close)
	got = packhorse(t, nil, "import", "--url", nothing.URL, "--org", packhorsetest.Org, "--key", server.KeyFile(), dir)
	if got.status != 1 || got.out != "" || !strings.Contains(got.errOut, "--url: the server cannot be reached: ") {
		t.Errorf("another server: %+v", got)
	}
}

// TestImportMany imports PACKHORSE_IMPORT_COUNT repositories, killed ten times at random requests:
// all are equal to their origins in the end, and there is none twice.
func TestImportMany(t *testing.T) {
	t.Parallel()
	count := fromEnvironment(t, "PACKHORSE_IMPORT_COUNT", 0)
	if count == 0 {
		t.Skip("PACKHORSE_IMPORT_COUNT is not set")
	}
	server := start(t, packhorsetest.Options{})
	dir := t.TempDir()
	seeded := make([]*oracle.Repository, 20)
	for i := range seeded {
		seeded[i] = oracle.New(t)
		seeded[i].Seed(oracle.History{Seed: uint64(i + 1), Commits: 1 + 17*i, Merges: true, Tags: true})
		if i%2 == 0 {
			seeded[i].Git("repack", "-adq")
		}
	}
	for n := range count {
		path := filepath.Join(dir, fmt.Sprintf("group%d", n/100), fmt.Sprintf("r%d.git", n))
		if err := os.CopyFS(path, os.DirFS(seeded[n%len(seeded)].Dir)); err != nil {
			t.Fatal(err)
		}
	}
	k := newKiller(t, server)
	args := append(append([]string{"import"}, apiArgs(server, k.proxy.URL)...), dir)
	random := rand.New(rand.NewPCG(1, 2))
	begun := time.Now()
	for range 10 {
		at := nth(1+random.IntN(max(count/11, 1)), "/git-receive-pack")
		k.run(at, random.IntN(2) == 0, args...)
	}
	final := exec.Command(bin, args...)
	var out bytes.Buffer
	final.Stdout, final.Stderr = &out, &out
	if err := final.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	usage, _ := final.ProcessState.SysUsage().(*syscall.Rusage)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	t.Logf("%d repositories and ten kills in %s; the last run: %s; peak memory %d KiB", count, time.Since(begun), lines[len(lines)-1], usage.Maxrss)
	list := packhorse(t, nil, append([]string{"repos", "list"}, apiArgs(server, server.URL)...)...)
	if got := strings.Count(list.out, "\n"); got != count {
		t.Errorf("the server has %d repositories, want %d", got, count)
	}
	want := make([]string, len(seeded))
	for i, repo := range seeded {
		want[i] = contentOf(repo)
	}
	for n := range count {
		if held(t, server, fmt.Sprintf("group%d/r%d", n/100, n)) != want[n%len(want)] {
			t.Errorf("repository %d is not equal to its origin", n)
		}
	}
}
