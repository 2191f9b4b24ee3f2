package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"packhorse/bench/process"
)

// httpBackend is git's own server: git http-backend, run by lighttpd for every request.
type httpBackend struct {
	repos string
	base  string
	cmd   *exec.Cmd
}

// lighttpdConfig serves /git from a folder of bare repositories. lighttpd spools request bodies,
// since it refuses to pass on chunked ones; answers are streamed.
const lighttpdConfig = `server.document-root = %[1]q
server.bind = "127.0.0.1"
server.port = %[2]d
server.modules = ( "mod_setenv", "mod_alias", "mod_cgi" )
server.stream-response-body = 2
server.max-request-size = 0
server.errorlog = %[3]q
server.upload-dirs = ( %[4]q )
alias.url += ( "/git" => %[5]q )
$HTTP["url"] =~ "^/git" {
  cgi.assign = ( "" => "" )
  setenv.set-environment = ( "GIT_PROJECT_ROOT" => %[6]q, "GIT_HTTP_EXPORT_ALL" => "1", "REMOTE_USER" => "bench" )
}
`

func startHTTPBackend(ctx context.Context, dir string) (*httpBackend, error) {
	lighttpd, err := provide(ctx, "lighttpd", "/usr/sbin/lighttpd")
	if err != nil {
		return nil, err
	}
	core, err := process.Output(exec.CommandContext(ctx, "git", "--exec-path"))
	if err != nil {
		return nil, err
	}
	backend := filepath.Join(strings.TrimSpace(core), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPeer, err)
	}
	p := &httpBackend{repos: filepath.Join(dir, "repos")}
	spool := filepath.Join(dir, "spool")
	for _, folder := range []string{p.repos, spool} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "lighttpd.conf")
	text := fmt.Sprintf(lighttpdConfig, spool, port, filepath.Join(dir, "error.log"), spool, backend, p.repos)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p.base = fmt.Sprintf("http://127.0.0.1:%d/git", port)
	p.cmd = exec.Command(lighttpd, "-D", "-f", config) // outlives ctx, so that stop can end it in order
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, awaitPort(ctx, port)
}

func (p *httpBackend) name() string { return sideGit }
func (p *httpBackend) pid() int     { return p.cmd.Process.Pid }

func (p *httpBackend) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return p.cmd.Wait()
}

func (p *httpBackend) create(ctx context.Context, repo string) (remote, error) {
	path := p.path(repo)
	if err := run(exec.CommandContext(ctx, "git", "init", "-q", "--bare", "-b", "main", path)); err != nil {
		return remote{}, err
	}
	err := p.configure(ctx, repo, [][2]string{
		{"http.receivepack", "true"},
		{"receive.autogc", "false"},
		{"uploadpack.allowFilter", "true"},
		{"uploadpack.allowAnySHA1InWant", "true"},
	})
	if err != nil {
		return remote{}, err
	}
	return p.remote(ctx, repo)
}

func (p *httpBackend) configure(ctx context.Context, repo string, settings [][2]string) error {
	for _, setting := range settings {
		if err := run(exec.CommandContext(ctx, "git", "-C", p.path(repo), "config", setting[0], setting[1])); err != nil {
			return err
		}
	}
	return nil
}

// withoutBitmaps returns a clone that shares the packs of a repository, made once.
func (p *httpBackend) withoutBitmaps(ctx context.Context, repo string) (remote, error) {
	plain := repo + "-plain"
	if _, err := os.Stat(p.path(plain)); errors.Is(err, fs.ErrNotExist) {
		if err := run(exec.CommandContext(
			ctx, "git", "clone", "-q", "--bare", "--shared", p.path(repo), p.path(plain),
		)); err != nil {
			return remote{}, err
		}
		if err := p.configure(
			ctx, plain, [][2]string{{"pack.useBitmaps", "false"}, {"uploadpack.allowAnySHA1InWant", "true"}},
		); err != nil {
			return remote{}, err
		}
	}
	return p.remote(ctx, plain)
}

func (p *httpBackend) remote(_ context.Context, repo string) (remote, error) {
	url := p.base + "/" + repo + ".git"
	return remote{url: url, gitURL: url}, nil
}

// repack packs the refs, and writes one pack with bitmaps and a commit-graph.
func (p *httpBackend) repack(ctx context.Context, repo string) error {
	for _, args := range [][]string{
		{"pack-refs", "--all"}, {"repack", "-adbq"}, {"commit-graph", "write", "--reachable"},
	} {
		if err := run(exec.CommandContext(ctx, "git", append([]string{"-C", p.path(repo)}, args...)...)); err != nil {
			return err
		}
	}
	return nil
}

func (p *httpBackend) path(repo string) string { return filepath.Join(p.repos, repo+".git") }

// findCommand returns the first that can be run.
func findCommand(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s", errNoPeer, names[0])
}

// freePort returns an unused port.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// awaitPort returns when a server accepts connections.
func awaitPort(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens on port %d: %w", port, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
