package api_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
)

// TestRefusedPushTellsWhy pushes more than a server takes, and more than fits into the buffers on
// the way: git shows the reason, and no branch has moved.
func TestRefusedPushTellsWhy(t *testing.T) {
	t.Parallel()
	const size = 24 << 20
	dir := t.TempDir()
	git := func(args ...string) string { return run(t, dir, "git", args...) }
	git("init", "-q", "-b", "main")
	random := make([]byte, size)
	_, _ = rand.Read(random)
	must(os.WriteFile(filepath.Join(dir, "large"), random, 0o600))
	must(os.WriteFile(filepath.Join(dir, "zeros"), make([]byte, size), 0o600))
	git("add", "large")
	git("commit", "-q", "-m", "large")
	git("tag", "random")
	git("rm", "-q", "--cached", "large")
	git("add", "zeros")
	git("commit", "-q", "--amend", "-m", "zeros")

	for name, test := range map[string]struct {
		what   string
		limits odb.Limits
		pack   int64
		args   []string
		says   string
		hint   string
	}{
		"object": {
			"random",
			odb.Limits{ObjectBytes: 1 << 20},
			0, nil, "an object is 24 MiB, the limit is 1 MiB (--object-max)",
			"remote: hint: find it with: git rev-list",
		},
		"object, announced": {
			"random",
			odb.Limits{ObjectBytes: 1 << 20},
			0,
			[]string{"-c", "http.postBuffer=50000000"},
			"an object is 24 MiB, the limit is 1 MiB (--object-max)", "remote: hint: find it with: git rev-list",
		},
		"pack": {
			"random", odb.Limits{PackBytes: 1 << 20}, 1 << 20, nil, "the pack is larger than 1 MiB, the limit (--pack-max)", "",
		},
		"inflated": {"main", odb.Limits{
			InflatedBytes: 1 << 20, InflatedRatio: 1,
		}, 0, nil, "the pack inflates to more than 1 MiB, the limit (--inflated-max)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Objects: odb.Options{Limits: test.limits}})
			t.Cleanup(shut)
			repo := enginetest.Create(t, host, "r")
			door := githttp.New(githttp.Config{Host: host, PackBytesMax: test.pack})
			f := serve(t, nil, func(c *api.Config) {
				c.Git = api.Git{Serve: door.Serve, Refuse: githttp.Refuse}
				c.Limits.PushBytes = test.pack
			})
			url := fmt.Sprintf("http://t:%s@%s/r.git", strings.TrimPrefix(token("r", "git:write"), "Bearer "), f.address)
			got := git(append(test.args, "push", url, test.what+":refs/heads/main")...)
			for _, want := range []string{
				"remote: error: " + test.says, test.hint, "error: remote unpack failed: " + test.says, "! [remote rejected]",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("git does not say %q, but\n%s", want, got)
				}
			}
			c := f.dial(t)
			c.send(get("/metrics"))
			if metrics := c.receive(http.MethodGet).body; !strings.Contains(metrics,
				`{method="POST",route="git/git-receive-pack",status="413"} 1`) {
				t.Error("the metrics do not count a 413")
			}
			if log := f.log.String(); !strings.Contains(log, "path=/r.git/git-receive-pack status=413 ") ||
				!strings.Contains(log, "limit of 1048576") {
				t.Errorf("the log does not tell of a 413:\n%s", log)
			}
			sequence, err := repo.Sequence(t.Context())
			if err != nil || sequence != 1 {
				t.Errorf("the repository is at %d, %v", sequence, err)
			}
		})
	}
}
