//go:build clients

package clienttest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestNginx pushes, clones, uploads and downloads through nginx, with the settings of the
// documentation.
func TestNginx(t *testing.T) {
	t.Parallel()
	nginx := need(t, "nginx", "/usr/sbin/nginx")
	server := start(t, packhorsetest.Options{})
	front := startNginx(t, nginx, server.URL)
	through := func(url string) string {
		return strings.Replace(url, strings.TrimPrefix(server.URL, "http://"), front, 1)
	}
	url := through(createRepository(t, server, "nginx"))

	work := seed(t)
	large, err := os.ReadFile(randomFile(t, 12<<20)) // more than git sends without chunks
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "large"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, work, nil, "git", "add", ".")
	command(t, work, nil, "git", "commit", "-q", "-m", "large")
	pushAll(t, work, url)

	for _, version := range []string{"0", "1", "2"} {
		clone := filepath.Join(t.TempDir(), "clone.git")
		command(t, work, nil, "git", "-c", "protocol.version="+version, "clone", "-q", "--mirror", url, clone)
		command(t, clone, nil, "git", "fsck", "--full", "--strict", "--no-dangling")
		list := []string{"for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"}
		if got, want := command(t, clone, nil, "git", list...), command(t, work, nil, "git", list...); got != want {
			t.Errorf("refs of a clone with protocol %s:\n%s\nwant:\n%s", version, got, want)
		}
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	command(t, work, nil, "git", "clone", "-q", "--depth", "1", url, shallow)

	content := uploadChunks(t, "http://"+front, token(t, server, "nginx"))
	command(t, shallow, nil, "git", "pull", "-q")
	pulled, err := os.ReadFile(filepath.Join(shallow, "uploaded.bin"))
	if err != nil || sha256.Sum256(pulled) != content {
		t.Errorf("%d bytes were pulled, %v, and they are not those uploaded", len(pulled), err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+front+"/api/v1/repos/file?path=uploaded.bin", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token(t, server, "nginx"))
	downloaded, status := do(t, request)
	if status != http.StatusOK || sha256.Sum256(downloaded) != content {
		t.Errorf("download: status %d, %d bytes, and they are not those uploaded", status, len(downloaded))
	}
}

// uploadChunks commits a file of 24 MiB through the API, in a body without a length, and returns
// its SHA-256.
func uploadChunks(t *testing.T, base, token string) [sha256.Size]byte {
	t.Helper()
	hash := sha256.New()
	body, feed := io.Pipe()
	go func() {
		_, err := io.WriteString(feed,
			`{"metadata":{"target_branch":"main","commit_message":"upload","author":{"name":"A","email":"a@example.com"},`+
				`"files":[{"path":"uploaded.bin","content_id":"1"}]}}`+"\n")
		for i := 0; i < 12 && err == nil; i++ {
			chunk := bytes.Repeat([]byte(fmt.Sprintf("chunk %d ", i)), 2<<20/8)
			hash.Write(chunk)
			_, err = fmt.Fprintf(feed, `{"blob_chunk":{"content_id":"1","data":%q,"eof":%t}}`+"\n",
				base64.StdEncoding.EncodeToString(chunk), i == 11)
		}
		feed.CloseWithError(err) // nil ends the body in order
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/v1/repos/commit-pack", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	if text, status := do(t, request); status != http.StatusCreated {
		t.Fatalf("upload: status %d: %s", status, text)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// do sends a request and returns the whole answer.
func do(t *testing.T, request *http.Request) (body []byte, status int) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return body, response.StatusCode
}

// startNginx runs nginx in front of a server until the test ends, and returns its host and port.
func startNginx(t *testing.T, nginx, upstream string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```nginx\n")
	location, _, closed := strings.Cut(rest, "```")
	if !ok || !closed || !strings.Contains(location, "http://127.0.0.1:8080") {
		t.Fatal("docs/operations.md has no nginx block for http://127.0.0.1:8080")
	}
	location = strings.ReplaceAll(location, "http://127.0.0.1:8080", upstream)

	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := l.Addr().String()
	inherited, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A single process of nginx cannot take over a listener. If the master is root, so is its worker,
	// which needs access to the folder.
	config := fmt.Sprintf(`daemon off; user root; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[2]s; %[3]s }
}
`, dir, front, location)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-p", dir, "-c", file) // ended below, in order
	// nginx takes the listener over, as it does from an older nginx, so that no other process can take
	// the port in between.
	cmd.ExtraFiles, cmd.Env = []*os.File{inherited}, append(environment(), "NGINX=3;")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("nginx: %v\n%s", err, out.String())
		}
	})
	// Early connections wait in the listener's queue; it is nginx's alone, and ends with it.
	if err := errors.Join(inherited.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	return front
}
