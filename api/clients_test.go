package api_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/fuzz/oracle"
)

// run runs a real client, which must be on the machine or the test is skipped.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("skipped: no %s on this machine", name)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir = dir
	command.Env = oracle.EnvOutside(dir)
	output, err := command.CombinedOutput()
	t.Logf("%s: %v", name, err)
	return string(output)
}

// An early refusal of a large upload reaches the clients that people use. A server that just closes
// loses it for most of them.
func TestEarlyRefusalReachesClients(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	large := filepath.Join(t.TempDir(), "large")
	random := make([]byte, size)
	_, _ = rand.Read(random)
	must(os.WriteFile(large, random, 0o600))
	f := serve(t, map[string]api.Handler{"POST /read": reader}, func(c *api.Config) {
		c.Git.Serve = func(x exchange.Exchange, path exchange.GitPath, _ *auth.Grant) error {
			switch {
			case path.Service == "info/refs":
				line := "0000000000000000000000000000000000000000 capabilities^{}\x00report-status\n"
				x.Respond(200, "application/x-git-receive-pack-advertisement",
					fmt.Appendf(nil, "001f# service=git-receive-pack\n0000%04x%s0000", len(line)+4, line))
			case x.BodyLength() == 4: // git asks first whether it may
				x.Respond(200, "application/x-git-receive-pack-result", nil)
			default:
				return &exchange.LimitError{Limit: "pack", Max: 1}
			}
			return nil
		}
	})
	t.Run("curl", func(t *testing.T) {
		t.Parallel()
		for _, how := range [][]string{
			{"--data-binary", "@" + large},
			{"-T", large, "-X", "POST"},
			{"-T", large, "-X", "POST", "-H", "Transfer-Encoding: chunked"},
			{"-T", large, "-X", "POST", "-H", "Expect:"},
		} {
			args := append([]string{"-s", "-S", "-i", "http://" + f.address + "/read"}, how...)
			if got := run(t, t.TempDir(), "curl", args...); !strings.Contains(got, "HTTP/1.1 401") ||
				!strings.Contains(got, "missing authorization") {
				t.Errorf("curl %v got %.300q", how, got)
			}
		}
	})
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		const script = `
			const body = Buffer.alloc(8 << 20);
			const stream = () => new ReadableStream({ pull(c) { this.n = (this.n ?? 0) + 1; this.n > 128 ? c.close() : c.enqueue(new Uint8Array(65536)); } });
			for (let i = 0; i < 20; i++) {
				const options = i % 2 ? { body } : { body: stream(), duplex: 'half' };
				const answer = await fetch(process.argv[1], { method: 'POST', ...options });
				console.log(answer.status, (await answer.json()).error);
			}`
		got := run(t, t.TempDir(), "node", "--input-type=module", "-e", script, "http://"+f.address+"/read")
		if n := strings.Count(got, "401 missing authorization header\n"); n != 20 {
			t.Errorf("%d of 20 answers arrived:\n%s", n, got)
		}
	})
	t.Run("git", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		run(t, dir, "git", "init", "-q", ".")
		must(os.WriteFile(filepath.Join(dir, "large"), bytes.Clone(random), 0o600))
		run(t, dir, "git", "add", "large")
		run(t, dir, "git", "commit", "-q", "-m", "large")
		password := strings.TrimPrefix(token("r", "git:write"), "Bearer ")
		got := run(t, dir, "git", "push", fmt.Sprintf("http://t:%s@%s/r.git", password, f.address), "HEAD:refs/heads/main")
		if !strings.Contains(got, fmt.Sprint(http.StatusRequestEntityTooLarge)) {
			t.Errorf("git says %q", got)
		}
	})
}
