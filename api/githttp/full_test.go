package githttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/space"
)

// trigger calls act when count bytes have been read.
type trigger struct {
	io.ReadCloser
	count int
	act   func()
}

func (r *trigger) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if before := r.count; before > 0 {
		if r.count -= n; r.count <= 0 {
			r.act()
		}
	}
	return n, err
}

// TestDiskFillsDuringPush fills the disk while git push sends a pack: git gets the reason, clones
// go on, and the same push succeeds when there is room again.
func TestDiskFillsDuringPush(t *testing.T) {
	t.Parallel()
	const diskBytes = 1 << 40
	fs := vfs.NewMem()
	free := func(count uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: count, TotalBytes: diskBytes}) }
	free(diskBytes)
	watch, err := space.Open("", space.Options{FS: fs, MinBytes: 1000, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Space: watch})
	t.Cleanup(shut)
	r := serveHost(t, host, githttp.Config{})
	r.repo = enginetest.Create(t, host, repoName)

	var fills atomic.Bool
	fills.Store(true)
	refuse := func(x exchange.Exchange, err error) { githttp.Refuse(x, err) }
	inner := exchangetest.Handler(r.handle, refuse)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !fills.Load() || !strings.HasSuffix(request.URL.Path, "git-receive-pack") {
			inner.ServeHTTP(w, request)
			return
		}
		// git may still send when the answer is there: net/http closes the connection half a second
		// later, and the answer would be lost with it.
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		request.Body = &trigger{request.Body, 1 << 20, func() { free(1) }}
		inner.ServeHTTP(w, request)
		if control.Flush() == nil { // else git has gone
			_, _ = io.Copy(io.Discard, request.Body)
		}
	}))
	t.Cleanup(server.Close)
	url := server.URL + "/" + repoName + ".git"

	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 61, Commits: 20})
	git.Git("push", "--quiet", url, "main~5:refs/heads/main")
	noise := make([]byte, 24<<20)
	random := newRand(61)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	blob := git.Write("blob", noise)
	tree := strings.TrimSpace(string(git.Input([]byte("100644 blob "+blob+"\tnoise\n"), "mktree")))
	git.Git("update-ref", "refs/heads/large", git.Git("commit-tree", "-m", "large", tree))
	before := r.refs(0)

	_, err = git.Try(nil, "push", "--quiet", url, "large", "main")
	if err == nil || !strings.Contains(err.Error(), "remote: error: writes are paused: 1 bytes free") {
		t.Errorf("a push that fills the disk: %v", err)
	}
	if got := r.refs(0); strings.Join(got, "\n") != strings.Join(before, "\n") {
		t.Errorf("refs after a push that filled the disk: %q, before: %q", got, before)
	}
	if got := allRefs(cloneFrom(t, url, 2)); len(got) != 1 {
		t.Errorf("a clone from a full disk has %q", got)
	}
	if _, err := git.Try(nil, "push", "--quiet", url, "main"); err == nil {
		t.Error("a small push onto a full disk succeeds")
	}
	fills.Store(false)
	free(diskBytes)
	if err := watch.Look(); err != nil {
		t.Fatal(err)
	}
	git.Git("push", "--quiet", url, "large", "main")
	if got := allRefs(cloneFrom(t, url, 2)); len(got) != 2 {
		t.Errorf("a clone with room again has %q", got)
	}
}
