//go:build clients

package clienttest_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestEarlyRefusals has clients send bodies that the server refuses before it has read them. Each
// must get the answer, not a broken connection.
func TestEarlyRefusals(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{Flags: []string{"--pack-max", "1MiB"}})
	url := createRepository(t, server, "refusals")
	reader := token(t, server, "refusals", "--scope", "git:read")
	upload := server.URL + "/api/v1/repos/commit-pack"

	t.Run("fetch", func(t *testing.T) {
		t.Parallel()
		const count = 20
		out := command(t, t.TempDir(), nil, need(t, "node"), filepath.Join(modules(t), "refused.mjs"), upload, reader, "20")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != count {
			t.Errorf("%d answers to %d uploads:\n%s", len(lines), count, out)
		}
		for _, line := range lines {
			var body struct {
				Error string `json:"error"`
			}
			answer := []any{0, &body}
			if err := json.Unmarshal([]byte(line), &answer); err != nil || answer[0] != 401.0 || body.Error == "" {
				t.Errorf("answer %s, %v; want 401 and an error", line, err)
			}
		}
	})

	for name, flags := range map[string][]string{
		"curl that asks first": {"-H", "Expect: 100-continue"},
		"curl that just sends": {"-H", "Expect:"},
		"curl in chunks":       {"-H", "Expect:", "-H", "Transfer-Encoding: chunked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := randomFile(t, 16<<20)
			args := append([]string{
				"-sS", "-w", " %{http_code}", "-H", "Authorization: Bearer " + reader,
				"-H", "Content-Type: application/x-ndjson", "--data-binary", "@" + body, upload,
			}, flags...)
			for range 5 {
				out := command(t, t.TempDir(), nil, need(t, "curl"), args...)
				if !strings.HasSuffix(out, " 401") || !strings.Contains(out, `"error"`) {
					t.Errorf("answer %q, want 401 and an error", out)
				}
			}
		})
	}

	t.Run("git", func(t *testing.T) {
		t.Parallel()
		work := t.TempDir()
		command(t, work, nil, "git", "init", "-q", "-b", "main")
		content, err := os.ReadFile(randomFile(t, 8<<20))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, "large"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, work, nil, "git", "add", ".")
		command(t, work, nil, "git", "commit", "-q", "-m", "large")
		out, err := try(t, work, nil, "git", "push", url, "main")
		if err == nil || !strings.Contains(out, "413") && !strings.Contains(out, "limit") {
			t.Errorf("push of too much: %v\n%s", err, out)
		}
		out, err = try(t, work, nil, "git", "push", withToken(server.URL, reader)+"/refusals.git", "main")
		if err == nil || !strings.Contains(out, "403") {
			t.Errorf("push without the scope: %v\n%s", err, out)
		}
		if got := tip(t, url, "refs/heads/main"); got != "" {
			t.Errorf("main is at %s after refused pushes", got)
		}
	})
}

// randomFile makes a file that does not compress.
func randomFile(t *testing.T, size int) string {
	t.Helper()
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(data); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "random")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
