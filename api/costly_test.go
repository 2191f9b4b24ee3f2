package api_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
)

// costly is a host with a repository in which three branches have one file: 250,000 lines of two
// kinds at random, which take seconds to compare.
func costly(t *testing.T) *engine.Host {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{})
	t.Cleanup(shut)
	git, random := oracle.New(t), rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same each time
	commit := func(more ...string) string {
		text := bytes.Repeat([]byte("a\n"), 250_000)
		for i := 0; i < len(text); i += 2 {
			text[i] += byte(random.IntN(2))
		}
		tree := git.Input(fmt.Appendf(nil, "100644 blob %s\tf\n", git.Write("blob", text)), "mktree")
		return git.Git(append([]string{"commit-tree", "-m", "m", strings.TrimSpace(string(tree))}, more...)...)
	}
	root := commit()
	ids := []string{commit("-p", root), commit("-p", root)}
	pack := git.Input([]byte(strings.Join(ids, "\n")+"\n"), "pack-objects", "--revs", "--stdout", "-q", "--window=0")
	enginetest.Push(t, enginetest.Create(t, host, "r"), pack,
		engine.Command{Name: "refs/heads/main", New: parsedID(ids[0])},
		engine.Command{Name: "refs/heads/side", New: parsedID(ids[1])})
	return host
}

// TestCostlyRequests makes requests each of which would compute for seconds, within one file. They
// are refused when they have used up their computing time, or cut when the answer has begun.
func TestCostlyRequests(t *testing.T) {
	t.Parallel()
	host := costly(t)
	f := serve(t, nil, func(c *api.Config) {
		patient(func(l *api.Limits) { l.WorkMax = 10 * time.Millisecond })(c)
		c.Routes, c.Refuse = api.Routes(rest.New(rest.Config{Host: host})), rest.Refuse
	})
	for name, request := range map[string]struct{ route, body string }{
		"diff":           {"GET " + v1 + "/diff?ref=main", ""},
		"diff of a path": {"GET " + v1 + "/diff?ref=main&path=f", ""},
		"branch diff":    {"GET " + v1 + "/branches/diff?branch=main&base=side", ""},
		"blame":          {"GET " + v1 + "/blame?path=f", ""},
		"merge preview":  {"GET " + v1 + "/merge/preview?source_branch=side&target_branch=main", ""},
		"merge": {
			"POST " + v1 + "/merge",
			`{"source_branch":"side","target_branch":"main","strategy":"merge","commit_message":"m",` + author + `}`,
		},
		"cherry-pick": {"POST " + v1 + "/cherry-pick", `{"commits":["side"],"target_branch":"main",` + author + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial(t)
			c.send(fmt.Sprintf("%s HTTP/1.1\nHost: x\nAuthorization: %s\nContent-Length: %d\n\n%s",
				request.route, token("r", "git:write"), len(request.body), request.body))
			method, _, _ := strings.Cut(request.route, " ")
			a := c.receive(method)
			if a.StatusCode != http.StatusRequestEntityTooLarge && (a.StatusCode != http.StatusOK || a.cut == nil) {
				t.Errorf("status %d, cut %v: %.300s", a.StatusCode, a.cut, a.body)
			}
			if a.StatusCode != http.StatusOK && !strings.Contains(a.body, `"request_too_costly"`) {
				t.Errorf("it says %s", a.body)
			}
		})
	}
}
