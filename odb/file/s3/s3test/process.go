package s3test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/fuzz/loopback"
)

// service is a program that serves S3.
type service struct {
	program string
	network string // that it listens on
	// args returns its arguments, for an address and a folder.
	args func(address, root string) []string
	env  []string
}

// versitygw listens on a socket in the file system, so that no port can be taken by others.
var versitygw = service{
	program: "versitygw",
	network: "unix",
	args: func(address, root string) []string {
		return []string{
			"--access", accessKey, "--secret", secretKey, "--quiet", "--keep-alive", "--port", address,
			"posix", "--sidecar", filepath.Join(root, "attributes"), filepath.Join(root, "files"),
		}
	},
}

// minio listens on a port that was free when it was asked for.
var minio = service{
	program: "minio",
	network: "tcp",
	args: func(address, root string) []string {
		return []string{"server", "--quiet", "--address", address, filepath.Join(root, "files")}
	},
	env: []string{"MINIO_ROOT_USER=" + accessKey, "MINIO_ROOT_PASSWORD=" + secretKey, "MINIO_BROWSER=off"},
}

// find returns the path of a program.
func find(program string) (string, bool) {
	if path, err := exec.LookPath(program); err == nil {
		return path, true
	}
	folder, err := os.Getwd()
	for err == nil && folder != filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			path, err := exec.LookPath(filepath.Join(folder, ".cache", "bin", program))
			return path, err == nil
		}
		folder = filepath.Dir(folder)
	}
	return "", false
}

// process is a service that runs.
type process struct {
	command   *exec.Cmd
	life      io.Closer
	output    strings.Builder
	transport http.RoundTripper
}

// end ends the service and waits until nothing is left of it.
func (p *process) end() {
	_ = p.life.Close()
	_ = p.command.Wait()
}

// script gets the folder of the service as $0 and the service as its arguments. It ends the service
// and removes the folder when its input ends, which also happens when the tests are killed.
const script = `"$@" </dev/null & service=$!; cat >/dev/null; kill -9 $service; wait; rm -rf "$0"`

// run starts a service, or skips the test where there is no program for it.
func run(tb testing.TB, s service) *process {
	tb.Helper()
	path, ok := find(s.program)
	if !ok {
		tb.Skipf("%s is neither in PATH nor in .cache/bin", s.program)
	}
	root, err := os.MkdirTemp("", "s3test") // the path of a socket is short
	if err != nil {
		tb.Fatal(err)
	}
	for _, folder := range []string{"files", "attributes"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	address := filepath.Join(root, "socket")
	if s.network == "tcp" {
		address = loopback.FreeAddress(tb)
	}
	p := &process{command: exec.Command("sh", append([]string{"-c", script, root, path}, s.args(address, root)...)...)}
	p.command.Env = append(os.Environ(), s.env...)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if p.life, err = p.command.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, s.network, address)
	}
	p.transport = &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true}
	for !p.answers(tb) {
		select {
		case <-tb.Context().Done():
			p.end()
			tb.Fatal(tb.Context().Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return p
}

// answers reports whether the service answers requests, whatever it says. One that is starting says
// that it is not available.
func (p *process) answers(tb testing.TB) bool {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://service/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := p.transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode < http.StatusInternalServerError
}
