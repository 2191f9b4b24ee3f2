//go:build clients

package clienttest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"packhorse/api/contract"
	"packhorse/cmd/packhorse/packhorsetest"
)

// install lets one test install the npm packages for all.
var install sync.Mutex

// modules returns a folder with the scripts of this package and the npm packages of the lock file
// beside them.
func modules(t *testing.T) string {
	t.Helper()
	npm := need(t, "npm")
	install.Lock()
	defer install.Unlock()
	dir := filepath.Join(scratch, "npm")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"package.json", "package-lock.json", ".npmrc", "*.mjs"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s here: %v", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := try(t, dir, nil, npm, "ci", "--no-audit", "--no-fund"); err != nil {
		t.Skipf("skipped: npm ci: %v\n%s", err, out)
	}
	return dir
}

// TestPierre drives the reference client through everything it offers for repositories, branches,
// tags, commits and files, over TLS, as its git URLs are https only.
func TestPierre(t *testing.T) {
	t.Parallel()
	node := need(t, "node")
	dir := modules(t)
	secret := filepath.Join(t.TempDir(), "secret-key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	served := t.TempDir()
	upstream := start(t, packhorsetest.Options{})
	folder := filepath.Join(served, "orgs", packhorsetest.Org)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(folder, "org.yaml"), fmt.Appendf(nil, "upstreams: {gitea: %q}\n", upstream.URL), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	server := start(t, packhorsetest.Options{
		Dir:   served,
		TLS:   true,
		Flags: []string{"--secret-key", secret, "--upstream-allow", "127.0.0.1", "--upstream-retry", "100ms"},
	})
	apply := []byte("[]")
	if rows := server.Rows(); rows != "" {
		var err error
		if apply, err = json.Marshal([]string{bin, "org", "apply", filepath.Dir(folder), "--keys", rows}); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{
		"PACKHORSE_TEST_ORG_APPLY=" + string(apply),
		"PACKHORSE_TEST_URL=" + server.URL,
		"PACKHORSE_TEST_ORG=" + packhorsetest.Org,
		"PACKHORSE_TEST_KEY=" + server.KeyFile(),
		"PACKHORSE_TEST_ORG_FOLDER=" + folder,
		"PACKHORSE_TEST_UPSTREAM_URL=" + upstream.URL,
		"PACKHORSE_TEST_UPSTREAM_KEY=" + upstream.KeyFile(),
		"NODE_EXTRA_CA_CERTS=" + server.CACert,
		"GIT_SSL_CAINFO=" + server.CACert,
	}
	out, err := try(t, dir, env, node, "--test", "--test-reporter=spec", "--test-timeout=300000", "pierre.test.mjs")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "pass ") {
		t.Errorf("no test ran:\n%s", out)
	}
}

// TestClientExample runs the program of the page /docs.
func TestClientExample(t *testing.T) {
	t.Parallel()
	node := need(t, "node")
	dir := modules(t)
	if err := os.WriteFile(filepath.Join(dir, "example.mjs"), []byte(contract.ClientExample()), 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, packhorsetest.Options{})
	env := []string{"PACKHORSE=" + server.URL, "ORG=" + packhorsetest.Org, "KEY=" + server.KeyFile()}
	out, err := try(t, dir, env, node, "example.mjs")
	if err != nil || !strings.Contains(out, "[ 'hello.txt' ]") {
		t.Errorf("%v\n%s", err, out)
	}
}
