package main_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// helper runs packhorse credential as git does, with a request on stdin.
func helper(t *testing.T, request string, args ...string) result {
	t.Helper()
	return runReading(t, strings.NewReader(request), bin, nil, append([]string{"credential"}, args...)...)
}

// answerForm is what git gets, in the order in which it is printed.
var answerForm = regexp.MustCompile(`^username=(.*)\npassword=(.*)\n(?:password_expiry_utc=(.*)\n)?$`)

const siteRequest = "protocol=https\nhost=git.example.com\npath=web/site.git\n\n"

func TestCredentialMints(t *testing.T) {
	t.Parallel()
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, public := keyPair(t, edKey)
	orgs := t.TempDir()
	if got := packhorse(t, nil, "org", "add", "acme", "--key", public, "--kid", "k1", "--orgs", orgs); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	verifier, err := auth.Open(auth.Options{Dir: orgs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(verifier.Close)

	tests := map[string]struct {
		args    []string
		request string
		user    string
		scopes  auth.Scope
		ttl     time.Duration
	}{
		"defaults": {request: siteRequest, user: "t", scopes: readWrite, ttl: 5 * time.Minute},
		"narrow": {
			args:    []string{"--scope", "git:read", "--ttl", "30s", "--kid", "k1", "--subject", "somebody"},
			request: siteRequest, user: "t", scopes: auth.GitRead, ttl: 30 * time.Second,
		},
		"user of the URL": {request: "username=ada\n" + siteRequest, user: "ada", scopes: readWrite, ttl: 5 * time.Minute},
		"second server": {
			args:    []string{"--url", "http://127.0.0.1:8080/git"},
			request: "protocol=http\nhost=127.0.0.1:8080\npath=git/web/site+ephemeral\nwwwauth[]=Basic realm=\"x\"\n\n",
			user:    "t", scopes: readWrite, ttl: 5 * time.Minute,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--url", "https://git.example.com", "--org", "acme", "--key", private}, test.args...)
			got := helper(t, test.request, append(args, "get")...)
			answer := answerForm.FindStringSubmatch(got.out)
			if got.status != 0 || got.errOut != "" || answer == nil {
				t.Fatalf("%+v", got)
			}
			grant, err := verifier.Verify("Bearer " + answer[2])
			if err != nil {
				t.Fatal(err)
			}
			if grant.Org != "acme" || grant.Repo != "web/site" || grant.Scopes != test.scopes || answer[1] != test.user {
				t.Errorf("user %s, grant %+v", answer[1], grant)
			}
			if answer[3] != strconv.FormatInt(grant.Expires.Unix(), 10) {
				t.Errorf("git is told %s, the token expires at %d", answer[3], grant.Expires.Unix())
			}
			if left := time.Until(grant.Expires); left > test.ttl {
				t.Errorf("the token is valid for another %s, want %s at most", left, test.ttl)
			}
		})
	}
}

func TestCredentialCommand(t *testing.T) {
	t.Parallel()
	withExpiry := "eyJhbGciOiJub25lIn0.eyJleHAiOjE5MDAwMDAwMDB9.x" // {"exp":1900000000}
	tests := map[string]struct {
		command string
		want    result
		told    string // in errOut
	}{
		"first line": {
			`echo $PACKHORSE_PROTOCOL-$PACKHORSE_HOST-$PACKHORSE_REPO; echo more`,
			result{out: "username=t\npassword=https-git.example.com-web/site\n"},
			"",
		},
		"expiry of the token": {
			"echo " + withExpiry, result{out: "username=t\npassword=" + withExpiry + "\npassword_expiry_utc=1900000000\n"}, "",
		},
		"no line end":   {"printf 'abc'", result{out: "username=t\npassword=abc\n"}, ""},
		"CRLF":          {`printf 'abc\r\n'`, result{out: "username=t\npassword=abc\n"}, ""},
		"complaints":    {"echo careful >&2; echo abc", result{out: "username=t\npassword=abc\n"}, "careful\n"},
		"endless":       {"echo abc; yes 2>/dev/null | head -c 1000000", result{out: "username=t\npassword=abc\n"}, ""},
		"failure":       {"echo secret; echo no access >&2; exit 3", result{status: 1}, "no access\npackhorse: the command of --command failed: exit status 3\n"},
		"nothing":       {"true", result{status: 1}, "printed no token"},
		"empty line":    {"echo; echo secret", result{status: 1}, "printed no token"},
		"blank":         {"echo secret word", result{status: 1}, "no token"},
		"NUL":           {`printf 'secret\0'`, result{status: 1}, "no token"},
		"long":          {"head -c 8193 /dev/zero | tr '\\0' x", result{status: 1}, "no token"},
		"unknown one":   {"no-such-command-secret 2>/dev/null", result{status: 1}, "exit status 127"},
		"reads nothing": {"cat; echo abc", result{out: "username=t\npassword=abc\n"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := helper(t, siteRequest, "--url", "https://git.example.com", "--command", test.command, "get")
			if got.status != test.want.status || got.out != test.want.out || !strings.Contains(got.errOut, test.told) ||
				(test.told == "") != (got.errOut == "") {
				t.Errorf("%+v, want %+v and %q", got, test.want, test.told)
			}
			if strings.Contains(got.errOut, "secret") {
				t.Errorf("a secret is told: %s", got.errOut)
			}
		})
	}
}

// Nothing is said where nothing may be answered.
func TestCredentialSilence(t *testing.T) {
	t.Parallel()
	command := []string{"--url", "https://git.example.com", "--command", "echo secret"}
	tests := map[string]struct {
		args    []string
		request string
	}{
		"store":             {append(command, "store"), siteRequest + "password=secret\n"},
		"erase":             {append(command, "erase"), siteRequest},
		"unknown operation": {append(command, "approve"), siteRequest},
		"malformed store":   {append(command, "store"), "\x00\nx"},
		"store, bad flags":  {[]string{"--url", "x", "store"}, siteRequest},
		"another host":      {append(command, "get"), strings.Replace(siteRequest, "git.", "evil.", 1)},
		"another protocol":  {append(command, "get"), strings.Replace(siteRequest, "https", "http", 1)},
		"nothing asked":     {append(command, "get"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := helper(t, test.request, test.args...); got != (result{}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCredentialRefusals(t *testing.T) {
	t.Parallel()
	key := write(t, "key.pem", "secret")
	from := func(more ...string) []string { return append(more, "--url", "https://git.example.com", "get") }
	tests := map[string]struct {
		args    []string
		request string
		status  int
		want    string
	}{
		"no path": {
			from("--command", "echo secret"), "protocol=https\nhost=git.example.com\n\n", 1,
			"run: git config --global credential.https://git.example.com.useHttpPath true\n",
		},
		"no name":   {from("--command", "echo secret"), strings.Replace(siteRequest, "web/", "web/../", 1), 1, `".."`},
		"malformed": {from("--command", "echo secret"), "password:secret\n", 1, "malformed credential request"},
		"no key":    {from("--org", "acme", "--key", key), siteRequest, 2, "PEM"},
		"no file":   {from("--org", "acme", "--key", key+"x"), siteRequest, 2, "no such file"},

		"no source":   {from(), siteRequest, 2, "one of --key and --command is needed"},
		"two sources": {from("--org", "acme", "--key", key, "--command", "true"), siteRequest, 2, "do not go together"},
		"no org":      {from("--key", key), siteRequest, 2, "--key needs --org"},
		"no life":     {from("--org", "acme", "--key", key, "--ttl", "0s"), siteRequest, 2, "--ttl: 0s is too short: expected 1s or more"},
		"wide scope":  {from("--org", "acme", "--key", key, "--scope", "repo:write"), siteRequest, 2, "--scope"},
		"no URL":      {[]string{"--command", "echo secret", "get"}, siteRequest, 2, "missing flags: --url"},
		"no encryption": {
			[]string{"--command", "echo secret", "--url", "http://git.example.com", "get"},
			siteRequest, 2,
			"without encryption",
		},
		"password in the URL": {
			[]string{"--command", "true", "--url", "https://u:secret@git.example.com", "get"}, siteRequest, 2, "has a user",
		},
		"no operation": {[]string{"--command", "true", "--url", "https://git.example.com"}, siteRequest, 2, "<operation>"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := helper(t, test.request, test.args...)
			if got.status != test.status || got.out != "" || !strings.Contains(got.errOut, test.want) {
				t.Errorf("%+v, want status %d and %q", got, test.status, test.want)
			}
			if strings.Contains(got.errOut, "secret") {
				t.Errorf("a secret is told: %s", got.errOut)
			}
		})
	}
	allowed := helper(t, strings.Replace(siteRequest, "https", "http", 1),
		"--command", "echo abc", "--url", "http://git.example.com", "--allow-http", "get")
	if allowed.status != 0 || allowed.out != "username=t\npassword=abc\n" {
		t.Errorf("plain HTTP, allowed: %+v", allowed)
	}
}

// gitSession runs the installed git with packhorse credential as its helper, and remembers what
// that has answered.
type gitSession struct {
	env    []string
	config []string
	log    string // file with the answers
}

func newGitSession(t *testing.T, server *packhorsetest.Server, url string) *gitSession {
	t.Helper()
	home := t.TempDir()
	s := &gitSession{env: oracle.EnvOutside(home), log: filepath.Join(home, "answers")}
	s.config = []string{
		"-c", "credential.useHttpPath=true",
		"-c", fmt.Sprintf("credential.helper=!f() { '%s' credential --url '%s' --org %s --key '%s' \"$1\" | tee -a '%s'; }; f",
			bin, url, packhorsetest.Org, server.KeyFile(), s.log),
	}
	return s
}

func (s *gitSession) try(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", slices.Concat(s.config, args)...)
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *gitSession) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := s.try(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

// repos returns the repositories of the tokens that git got since the last call.
func (s *gitSession) repos(t *testing.T, verifier *auth.Verifier) []string {
	t.Helper()
	answers, err := os.ReadFile(s.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	_ = os.Remove(s.log) // absent when nothing was asked
	var repos []string
	for line := range strings.Lines(string(answers)) {
		token, ok := strings.CutPrefix(line, "password=")
		if !ok {
			continue
		}
		grant, err := verifier.Verify("Bearer " + strings.TrimSpace(token))
		if err != nil {
			t.Fatal(err)
		}
		repos = append(repos, grant.Repo)
	}
	return slices.Compact(repos)
}

func TestCredentialGit(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	verifier, err := auth.Open(auth.Options{Dir: filepath.Dir(server.OrgDir())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(verifier.Close)
	create(t, server, "team/lib")
	create(t, server, "team/app")
	lib, app := server.URL+"/team/lib.git", server.URL+"/team/app.git"
	s, work := newGitSession(t, server, server.URL), t.TempDir()
	asked := func(want ...string) {
		t.Helper()
		if got := s.repos(t, verifier); !slices.Equal(got, want) {
			t.Errorf("git got tokens for %q, want %q", got, want)
		}
	}

	s.git(t, work, "init", "-q", "-b", "main", "lib")
	s.git(t, filepath.Join(work, "lib"), "commit", "-q", "--allow-empty", "-m", "lib")
	s.git(t, filepath.Join(work, "lib"), "push", "-q", lib, "main")
	asked("team/lib")

	s.git(t, work, "init", "-q", "-b", "main", "app")
	s.git(t, filepath.Join(work, "app"), "submodule", "--quiet", "add", lib, "lib")
	s.git(t, filepath.Join(work, "app"), "commit", "-q", "-m", "app")
	s.git(t, filepath.Join(work, "app"), "push", "-q", app, "main")
	asked("team/lib", "team/app")
	s.git(t, filepath.Join(work, "app"), "push", "-q", server.URL+"/team/app+ephemeral.git", "main:draft")
	asked("team/app")

	// One session, two repositories of one host: a token for each.
	s.git(t, work, "clone", "-q", "--recurse-submodules", app, "clone")
	asked("team/app", "team/lib")
	if log := s.git(t, filepath.Join(work, "clone", "lib"), "log", "--format=%s"); log != "lib\n" {
		t.Errorf("log of the submodule %q", log)
	}

	// The same server under another name gets nothing.
	if out, err := s.try(t, work, "ls-remote", strings.Replace(app, "127.0.0.1", "localhost", 1)); err == nil ||
		!strings.Contains(out, "could not read Username") {
		t.Errorf("another host: %v\n%s", err, out)
	}
	asked()
	// Without the path git is told what to configure.
	s.config = append(s.config, "-c", "credential.useHttpPath=false")
	if out, err := s.try(t, work, "ls-remote", app); err == nil ||
		!strings.Contains(out, "git config --global credential."+server.URL+".useHttpPath true") {
		t.Errorf("without useHttpPath: %v\n%s", err, out)
	}
	asked()
}

// The lines of docs/operations.md make git clone and push.
func TestCredentialDocument(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(docsPage(t, "operations.md"), "\n### `packhorse credential`\n")
	_, lines, found := strings.Cut(section, "```sh\n")
	lines, _, ended := strings.Cut(lines, "```\n")
	if !found || !ended {
		t.Fatal("no lines")
	}
	server := start(t, packhorsetest.Options{})
	create(t, server, "web/site")
	home := t.TempDir()
	if err := os.Symlink(server.KeyFile(), filepath.Join(home, "acme-private.pem")); err != nil {
		t.Fatal(err)
	}
	script := "set -e\n" + strings.ReplaceAll(lines, "https://git.example.com", server.URL) +
		"cd site\ngit commit -q --allow-empty -m first\ngit push -q origin HEAD:main\ngit ls-remote\n"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = home
	cmd.Env = append(oracle.EnvOutside(home), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"),
		"GIT_CONFIG_GLOBAL="+filepath.Join(home, ".gitconfig"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\trefs/heads/main\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
