package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/demo"
	"packhorse/engine"
	"packhorse/odb/kv"
)

// devCommand serves from a folder that it fills itself.
type devCommand struct {
	Data      string `help:"Data folder, with an organization and its keys; created if missing." default:"packhorse-data" type:"path" is:"new folder"`
	Listen    string `help:"Address to serve on." default:"127.0.0.1:8080" is:"address"`
	PublicURL string `help:"Base URL to print, if clients use another one than the address." placeholder:"URL" is:"url"`
	Demo      bool   `help:"Begin with a repository that has a history to look at."`
	TLS       bool   `help:"Serve HTTPS with a certificate authority stored in the folder." name:"tls"`

	auditFlags
	serverFlags
}

// The files that dev adds to a data folder.
const (
	devOrg    = "dev"
	devRepo   = "demo"
	devOwn    = "mine"    // in place of it with --demo, which fills demo
	devOrgs   = "orgs"    // public keys
	devKey    = "dev.key" // the organization's private key, mode 0600
	devSecret = ".secret-key"
	devTTL    = 30 * 24 * time.Hour
)

// Run prepares the folder, serves until ctx ends, and prints lines to paste.
func (c devCommand) Run(ctx context.Context, to streams) error {
	orgs := filepath.Join(c.Data, devOrgs)
	if c.SecretKey == "" {
		c.SecretKey = filepath.Clean(c.Data) + devSecret
	}
	if err := c.check(ctx); err != nil {
		return err
	}
	key, err := prepareDev(c.Data, orgs, c.SecretKey)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", c.Data, err)
	}
	now := time.Now()
	mint := func(repo string) (string, error) {
		return auth.Mint(key, auth.Claims{
			Org: devOrg, Subject: devOrg, Repo: repo, Scopes: []string{"git:read", "git:write", "repo:write", "org:read"},
			IssuedAt: now, Expires: now.Add(devTTL),
		})
	}
	repo, demoToken := devRepo, ""
	if c.Demo {
		repo = devOwn
		if demoToken, err = mint(devRepo); err != nil {
			return err
		}
	}
	token, err := mint(repo)
	if err != nil {
		return err
	}
	c.Upstream.UpstreamAllow = append(slices.Clone(devAllow), c.Upstream.UpstreamAllow...)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	at, ca, err := c.place(orgs, now)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal is gone
	defer stop()
	s, err := openServer(ctx, at, c.serverFlags, &reloader{level: level}, to)
	if err != nil {
		return err
	}
	if c.PublicURL != "" {
		s.url = strings.TrimSuffix(c.PublicURL, "/")
	}
	scheme, authority, _ := strings.Cut(s.url, "://")
	return s.serve(ctx, func() error {
		if c.Demo {
			if err := makeDemo(ctx, s.store.host); err != nil {
				return err
			}
		}
		return devLines.Execute(to.out, map[string]any{
			"URL": s.url, "Scheme": scheme, "Authority": authority, "CA": ca, "Token": token, "Repo": repo, "Data": c.Data,
			"Program": program, "Org": devOrg, "Console": c.Console, "Key": filepath.Join(c.Data, devKey),
			"Demo": demoToken, "Ahead": demo.Ahead, "Conflicting": demo.Conflicting, "File": demo.File, "Script": demo.Script,
		})
	})
}

// makeDemo makes the repository of --demo by one push, unless there is a repository of that name.
func makeDemo(ctx context.Context, host *engine.Host) error {
	made, err := demo.Make()
	if err != nil {
		return err
	}
	push := engine.PushRequest{Import: true, Pack: bytes.NewReader(made.Pack)}
	for _, ref := range made.Refs {
		push.Commands = append(push.Commands, engine.Command{Name: ref.Name, New: ref.ID})
	}
	by := engine.Actor{Org: devOrg, Subject: devOrg}
	p, err := host.ReceiveFirst(ctx, by, engine.CreateRequest{Name: devRepo}, push)
	if errors.Is(err, engine.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the repository %s: %w", devRepo, err)
	}
	defer p.Close()
	result, err := p.Finish(ctx, nil)
	if err == nil {
		err = result.Unpack
	}
	for i := 0; err == nil && i < len(result.Commands); i++ {
		err = result.Commands[i].Err
	}
	if err != nil && !errors.Is(err, engine.RefusedRace) { // another server of the same stores has made it
		return fmt.Errorf("make the repository %s: %w", devRepo, err)
	}
	return nil
}

// check finds out, before anything is made, what would keep the server from starting.
func (c devCommand) check(ctx context.Context) error {
	if err := cmp.Or(
		tryAddress(ctx, "--listen", c.Listen), tryAddress(ctx, "--admin-listen", c.AdminListen),
		checkPlace(c.Data, c.sharedFlags), checkForeign(c.Data, c.SecretKey, c.Audit, c.Upstream.GithubAppKey),
	); err != nil {
		return err
	}
	if kv.InUse(filepath.Join(c.Data, lockedFolder(c.sharedFlags))) {
		return fmt.Errorf("%s %w", c.Data, errInUse)
	}
	if _, err := os.Stat(c.SecretKey); err == nil {
		return checkSecret(c.SecretKey)
	}
	dir, err := existing(filepath.Dir(c.SecretKey))
	if err == nil {
		err = checkMayAdd(dir)
	}
	if err != nil {
		return &usageError{fmt.Sprintf("--secret-key: %s is to be made: %v", c.SecretKey, err)}
	}
	return nil
}

// devAllow are the addresses of webhooks and upstreams on the same machine.
var devAllow = []string{"localhost", "127.0.0.0/8", "::1"}

// quoteShell quotes text as one word of a shell.
func quoteShell(text string) string {
	if text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+:@,") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// place returns the place of dev, with --tls with a certificate for every name by which clients may
// reach it, and the authority's certificate.
func (c devCommand) place(orgs string, now time.Time) (at place, ca string, err error) {
	at = place{data: c.Data, orgs: orgs, address: c.Listen, audit: c.Audit}
	hosts := []string{"localhost", "127.0.0.1", "::1", hostname()}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	if c.PublicURL != "" {
		public, err := url.Parse(c.PublicURL)
		if err != nil {
			return place{}, "", &usageError{fmt.Sprintf("--public-url: %v", err)}
		}
		hosts = append(hosts, public.Hostname())
	}
	if c.TLS {
		ca, at.cert, at.key, err = prepareTLS(c.Data, hosts, now)
	}
	return at, ca, err
}

// prepareDev creates missing files: the organization's key pair and the secret key. It returns the
// private key.
func prepareDev(data, orgs, secret string) ([]byte, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if err := makeSecret(secret); err != nil {
		return nil, err
	}
	path := filepath.Join(data, devKey)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = newPrivateKey(); err == nil {
			err = writeWhole(path, key, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	public, err := publicKeyOf(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	registered, kid, err := checkKey(devOrg, "", public)
	if err != nil {
		return nil, err
	}
	return key, registerKey(orgs, devOrg, kid, registered, public)
}

// newPrivateKey returns a new P-256 key as PEM.
func newPrivateKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// publicKeyOf returns the public half, as PEM, of a private key that newPrivateKey made.
func publicKeyOf(private []byte) ([]byte, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("unexpected key type %T", parsed)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// devLines is the output of dev. Everything below the dashes can be pasted unchanged, in the folder
// of any git repository.
var devLines = template.Must(template.New("dev").Funcs(template.FuncMap{"shell": quoteShell}).
	Parse(`packhorse serves {{.URL}}
data in {{.Data}}, organization "dev", stop with Ctrl-C

Paste into another terminal, in the folder of any git repository:
----
export PACKHORSE={{.URL}}
export TOKEN={{.Token}}
{{- if .CA}}
# trust the server's certificate: Node, git, and curl (as --cacert does)
export NODE_EXTRA_CA_CERTS={{shell .CA}} GIT_SSL_CAINFO={{shell .CA}} CURL_CA_BUNDLE={{shell .CA}}
{{- end}}
{{- if .Demo}}

# look at the repository "demo": clone it, draw its history, show a commit with its note
export DEMO={{.Demo}}
git clone -q {{.Scheme}}://t:$DEMO@{{.Authority}}/demo.git packhorse-demo
git -C packhorse-demo fetch -q origin 'refs/notes/*:refs/notes/*'
git --no-pager -C packhorse-demo log --graph --oneline --exclude='refs/notes/*' --all -20
git --no-pager -C packhorse-demo show --stat v1.0.0

# ask what two merges would come to: the first conflicts in {{.File}}, the second does not
curl -sS -H "Authorization: Bearer $DEMO" "$PACKHORSE/api/v1/repos/merge/preview?source_branch={{.Conflicting}}&target_branch=main&include_content=true"
curl -sS -H "Authorization: Bearer $DEMO" "$PACKHORSE/api/v1/repos/merge/preview?source_branch={{.Ahead}}&target_branch=main"

# see what a branch changes, and which commit each line of a file comes from, across a rename
curl -sS -H "Authorization: Bearer $DEMO" "$PACKHORSE/api/v1/repos/branches/diff?branch={{.Ahead}}&base=main"
curl -sS -H "Authorization: Bearer $DEMO" "$PACKHORSE/api/v1/repos/blame?path={{.Script}}&range=4,8"
{{- end}}

# make the repository "{{.Repo}}", push to it, clone it
curl -sS -X POST -H "Authorization: Bearer $TOKEN" $PACKHORSE/api/v1/repos
git push {{.Scheme}}://t:$TOKEN@{{.Authority}}/{{.Repo}}.git HEAD:refs/heads/main
git clone {{.Scheme}}://t:$TOKEN@{{.Authority}}/{{.Repo}}.git packhorse-{{.Repo}}

# commit a file through the API, then list the files and see it in the clone
curl -sS -X POST -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/x-ndjson' --data-binary @- $PACKHORSE/api/v1/repos/commit-pack <<'END'
{"metadata":{"target_branch":"main","commit_message":"Say hello","author":{"name":"Dev","email":"dev@example.com"},"files":[{"path":"HELLO.txt","content_id":"1"}]}}
{"blob_chunk":{"content_id":"1","data":"SGVsbG8gZnJvbSB0aGUgQVBJLgo=","eof":true}}
END
curl -sS -H "Authorization: Bearer $TOKEN" $PACKHORSE/api/v1/repos/files
git -C packhorse-{{.Repo}} pull && cat packhorse-{{.Repo}}/HELLO.txt

# a second repository: a token is for one repository, and signed with the key of the organization "{{.Org}}"
export SECOND=$({{shell .Program}} token --org {{.Org}} --key {{shell .Key}} --repo second --scope repo:write --scope git:write --ttl 720h)
curl -sS -X POST -H "Authorization: Bearer $SECOND" $PACKHORSE/api/v1/repos
git push {{.Scheme}}://t:$SECOND@{{.Authority}}/second.git HEAD
----

The same in JavaScript, with @pierre/storage:
    const store = new GitStorage({
      name: {{printf "%q" .Org}}, key: readFileSync({{printf "%q" .Key}}, 'utf8'),
      apiBaseUrl: {{printf "%q" .URL}}, storageBaseUrl: {{printf "%q" .Authority}},
    })
Webhooks and upstreams may be on this machine (localhost, 127.0.0.0/8, ::1).
{{if .Console}}Look at it, with the token above: {{.URL}}/console
{{end}}`))
