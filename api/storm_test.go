package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// committed is the answer to a commit through the API.
type committed struct {
	Commit struct {
		SHA string `json:"commit_sha"`
	}
	Result struct {
		OldSHA string `json:"old_sha"`
		Status string
	}
}

// commit writes a file to main and returns the status and the answer.
func (w *writable) commit(extra, path, content string) (status int, told committed) {
	w.t.Helper()
	got := w.do(call{"POST " + v1 + "/commit-pack", "r", commitLines(extra, path, content)}, nil)
	if err := json.Unmarshal(got.body, &told); err != nil {
		w.t.Errorf("%v in %s", err, got.body)
	}
	if got.status != http.StatusCreated && got.status != http.StatusConflict {
		w.t.Errorf("status %d: %s", got.status, got.body)
	}
	return got.status, told
}

// listed returns the commits of main, newest first.
func (w *writable) listed() []string {
	w.t.Helper()
	var ids []string
	for cursor, more := "", true; more; {
		got := w.do(call{"GET " + v1 + "/commits?limit=100&cursor=" + cursor, "r", ""}, nil)
		got.done(w.t)
		var page struct {
			Commits []struct{ SHA string }
			Next    string `json:"next_cursor"`
			More    bool   `json:"has_more"`
		}
		if err := json.Unmarshal(got.body, &page); err != nil {
			w.t.Fatal(err)
		}
		for _, c := range page.Commits {
			ids = append(ids, c.SHA)
		}
		cursor, more = page.Next, page.More
	}
	return ids
}

// TestStormOfGuards lets writers race for one branch over HTTP, each expecting the tip that it
// knows: the winners form one chain, as the listing shows, and all others are answered 409 with the
// present tip.
func TestStormOfGuards(t *testing.T) {
	t.Parallel()
	writers, commits := 64, 200
	if testing.Short() {
		writers, commits = 12, 10
	}
	w := newWritable(t)
	var mu sync.Mutex
	parents := map[string]string{} // guarded by mu: of the commits that were acknowledged
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			tip := w.head
			for i := range commits {
				status, told := w.commit(fmt.Sprintf(`"expected_head_sha":%q,`, tip), fmt.Sprint("w", writer), fmt.Sprint(i))
				if status != http.StatusCreated {
					if told.Result.Status != "precondition_failed" || told.Result.OldSHA == tip {
						t.Errorf("writer %d expected %s and was refused with %+v", writer, tip, told.Result)
					}
					tip = told.Result.OldSHA
					continue
				}
				mu.Lock()
				parents[told.Commit.SHA] = tip
				mu.Unlock()
				tip = told.Commit.SHA
			}
		})
	}
	group.Wait()
	chain := w.listed()
	t.Logf("%d of %d won", len(parents), writers*commits)
	if len(chain) != len(parents)+1 {
		t.Fatalf("main has %d commits on top of the first, %d were acknowledged", len(chain)-1, len(parents))
	}
	for i, id := range chain[:len(chain)-1] {
		if parents[id] != chain[i+1] {
			t.Errorf("%s stands on %s, and its writer was told %q", id, chain[i+1], parents[id])
		}
	}
}

// TestStormWithoutGuards lets writers of files of their own share a branch over HTTP without an
// expectation: no write is refused.
func TestStormWithoutGuards(t *testing.T) {
	t.Parallel()
	writers, commits := 50, 20
	if testing.Short() {
		writers, commits = 10, 8
	}
	w := newWritable(t)
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := range commits {
				if status, _ := w.commit("", fmt.Sprintf("w%d/f%d", writer, i), fmt.Sprint(i)); status != http.StatusCreated {
					t.Errorf("writer %d: commit %d: status %d", writer, i, status)
				}
			}
		})
	}
	group.Wait()
	if got := len(w.listed()); got != writers*commits+1 {
		t.Errorf("main has %d commits, want %d", got, writers*commits+1)
	}
	got := w.do(call{"GET " + v1 + "/files", "r", ""}, nil)
	got.done(t)
	var files struct{ Paths []string }
	if err := json.Unmarshal(got.body, &files); err != nil {
		t.Fatal(err)
	}
	if len(files.Paths) != writers*commits+1 {
		t.Errorf("main has %d files, want %d", len(files.Paths), writers*commits+1)
	}
}
