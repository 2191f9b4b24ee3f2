package main_test

import (
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// commit commits one file of bytes that do not compress.
func commit(t *testing.T, server *packhorsetest.Server, token string, seed uint64, size int) {
	t.Helper()
	content := make([]byte, size)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	body := `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a@example.com"},"files":[{"path":"f","content_id":"1"}]}}
{"blob_chunk":{"content_id":"1","data":"` + base64.StdEncoding.EncodeToString(content) + `","eof":true}}
`
	request, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/v1/repos/commit-pack",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("commit: %s, %v", response.Status, err)
	}
}

func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	server := start(t, packhorsetest.Options{Dir: dir})
	token := create(t, server, "copied")
	commit(t, server, token, 1, 300_000)

	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 ||
		!strings.HasPrefix(got.out, "backup 1: ") {
		t.Fatalf("through the server: %+v", got)
	}
	commit(t, server, token, 2, 100)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 ||
		!strings.HasPrefix(got.out, "backup 2: ") {
		t.Fatalf("in the folder: %+v", got)
	}
	got := packhorse(t, nil, "backup", "--prune", dest, "--data", data)
	if got.status != 0 || !strings.HasPrefix(got.out, "backup 3: ") ||
		!strings.Contains(got.out, " files of older backups\n") {
		t.Errorf("pruning: %+v", got)
	}

	if got := packhorse(t, nil, "restore", dest, "--data", data); got.status != 2 ||
		!strings.Contains(got.errOut, "is not empty") {
		t.Errorf("into a folder that is used: %+v", got)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if got := packhorse(t, nil, "restore", dest, "--data", data); got.status != 0 ||
		!strings.HasPrefix(got.out, "restored backup 3 into") {
		t.Fatalf("restore: %+v", got)
	}
	if got := packhorse(t, nil, "fsck", "--data", data); got.status != 0 ||
		got.out != "1 repository, 6 objects, 0 repositories damaged\n" {
		t.Errorf("fsck of what was restored: %+v", got)
	}
	server = start(t, packhorsetest.Options{Dir: dir})
	if status, text := call(
		t, http.DefaultClient, "GET", server.URL+"/api/v1/repos/file?path=f", token,
	); status != http.StatusOK || len(text) != 100 {
		t.Errorf("the file in what was restored: %d, %d bytes", status, len(text))
	}
}

func TestBackupRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	server := start(t, packhorsetest.Options{Dir: dir})
	commit(t, server, create(t, server, "copied"), 1, 300_000)
	dest := filepath.Join(dir, "backups")
	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	segments, err := filepath.Glob(filepath.Join(dest, "settled", "*", "*.segment"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	if err := os.Truncate(segments[0], 1000); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "restored")
	marked := t.TempDir()
	if err := os.WriteFile(filepath.Join(marked, "RESTORING"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a damaged backup":        {[]string{"restore", dest, "--data", target}, 1, filepath.Base(segments[0])},
		"again, into the same":    {[]string{"restore", dest, "--data", target}, 1, filepath.Base(segments[0])},
		"no backup":               {[]string{"restore", t.TempDir(), "--data", target}, 2, "holds no backup"},
		"a backup into the store": {[]string{"backup", filepath.Join(data, "b"), "--data", data}, 2, "lies in the folder"},
		"a folder half restored": {
			[]string{"serve", "--data", marked, "--orgs", filepath.Join(dir, "orgs"), "--listen", "127.0.0.1:0"},
			2,
			"contains a partly restored backup",
		},
		"a store that is not one":  {[]string{"backup", dest, "--data", t.TempDir()}, 2, "contains no store"},
		"a backup never taken":     {[]string{"restore", dest, "--data", target + "2", "--number", "7"}, 2, "number 7"},
		"a folder that is no path": {[]string{"backup", "/dev/null/x", "--data", data}, 2, "expected a folder"},
	}
	for _, name := range []string{"a damaged backup", "again, into the same"} { // in this order
		test := tests[name]
		delete(tests, name)
		if got := packhorse(t, nil, test.args...); got.status != test.status || !strings.Contains(got.errOut, test.want) {
			t.Errorf("%s: got %+v, want status %d and %q", name, got, test.status, test.want)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := packhorse(t, nil, test.args...); got.status != test.status || !strings.Contains(got.errOut, test.want) {
				t.Errorf("got %+v, want status %d and %q", got, test.status, test.want)
			}
		})
	}
}
