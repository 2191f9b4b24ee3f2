package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestQuotaOfPushes pushes with git beyond a quota of org.yaml, which tells why nothing was stored,
// and again after the operator has raised it. The server goes on without a restart.
func TestQuotaOfPushes(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{Dir: t.TempDir()})
	token := create(t, server, "r")
	becomes := func(config string, most int64) (stored int64) {
		t.Helper()
		name := filepath.Join(server.OrgDir(), "org.yaml")
		if err := os.WriteFile(name+".new", []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
		var usage struct {
			StoredBytes int64 `json:"stored_bytes"`
			Quota       struct {
				QuotaBytes int64 `json:"quota_bytes"`
			}
		}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			status, text := call(t, http.DefaultClient, http.MethodGet, server.URL+"/api/v1/repos/usage", token)
			if status != http.StatusOK {
				t.Fatalf("usage: %d %s", status, text)
			}
			if err := json.Unmarshal([]byte(text), &usage); err != nil {
				t.Fatal(err)
			}
			if usage.Quota.QuotaBytes == most {
				return usage.StoredBytes
			}
		}
		t.Fatalf("the quota is %+v, not %d", usage, most)
		return 0
	}
	git := oracle.New(t)
	git.Seed(oracle.History{Commits: 3})
	remote := strings.Replace(server.URL, "://", "://t:"+token+"@", 1)
	git.Git("push", "--quiet", remote+"/r.git", "main")
	before := becomes("limits: {repository_quota_bytes: 100KiB}\n", 100<<10)

	random := rand.New(rand.NewPCG(7, 7))
	for _, size := range []int{300 << 10, 5 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		tree := git.Input(fmt.Appendf(nil, "100644 blob %s\tlarge\n", git.Write("blob", data)), "mktree")
		tip := git.Git("commit-tree", "-p", "main", "-m", "large", strings.TrimSpace(string(tree)))
		for _, variant := range []string{"/r.git", "/r+import.git"} {
			_, err := git.Try(nil, "push", "--quiet", remote+variant, tip+":refs/heads/large")
			const why = "remote: error: quota exceeded: the repository may store 100 KiB " +
				"(limits.repository_quota_bytes in org.yaml), "
			if err == nil || !strings.Contains(err.Error(), why) ||
				!strings.Contains(err.Error(), "[remote rejected]") {
				t.Errorf("push of %d bytes to %s: %v", size, variant, err)
			}
		}
		if after := becomes("limits: {repository_quota_bytes: 100KiB}\n", 100<<10); after != before {
			t.Errorf("%d bytes are stored instead of %d", after, before)
		}
	}
	git.Git("push", "--quiet", remote+"/r.git", "main:refs/heads/other") // stores nothing
	becomes("limits: {repository_quota_bytes: 6MiB, quota_bytes: 1GiB}\n", 6<<20)
	tip := git.Git("commit-tree", "-p", "main", "-m", "small", git.Git("rev-parse", "main^{tree}"))
	git.Git("push", "--quiet", remote+"/r.git", tip+":refs/heads/small")
}
