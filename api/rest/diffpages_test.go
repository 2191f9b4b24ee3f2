package rest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// diffPage is a diff, or a page of one.
type diffPage struct {
	diffAnswer
	HasMore    *bool  `json:"has_more"`
	NextCursor string `json:"next_cursor"`
}

func (c *client) diffPage(h handler, query string) diffPage {
	c.t.Helper()
	var p diffPage
	c.call(h, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return p
}

// allPages puts the pages of a diff together, and counts them.
func (c *client) allPages(h handler, query string, limit int) (whole diffPage, count int) {
	c.t.Helper()
	for cursor := ""; count == 0 || cursor != ""; count++ {
		p := c.diffPage(h, fmt.Sprintf("%s&limit=%d&cursor=%s", query, limit, cursor))
		if n := len(p.Files) + len(p.Filtered); n != p.Stats.Files || n > limit || (n == 0 && *p.HasMore) ||
			*p.HasMore != (p.NextCursor != "") || *p.Complete != (len(p.Filtered) == 0) {
			c.t.Fatalf("page %d of %s: %d files, stats %+v, more %v, cursor %q", count, query, n, p.Stats, *p.HasMore, p.NextCursor)
		}
		if cursor = p.NextCursor; count == 0 {
			whole = p
			continue
		}
		whole.Files, whole.Filtered = append(whole.Files, p.Files...), append(whole.Filtered, p.Filtered...)
		whole.Stats.Files += p.Stats.Files
		whole.Stats.Additions += p.Stats.Additions
		whole.Stats.Deletions += p.Stats.Deletions
		whole.Stats.Changes += p.Stats.Changes
	}
	return whole, count
}

// changedFiles commits files of all kinds, and then their changes: files that are changed, removed,
// moved, new, and left out of diffs.
func (c *client) changedFiles(count int) (before, after string) {
	random := rand.New(rand.NewPCG(uint64(count), 5))
	files, changes := map[string][]byte{}, map[string][]byte{}
	for i := range count {
		path := fmt.Sprintf("d%d/%s%d", random.IntN(5), []string{"a.", "a/", "a-"}[random.IntN(3)], i)
		text := bytes.Repeat(fmt.Appendf(nil, "line of %d\n", i), 1+random.IntN(20))
		switch random.IntN(6) {
		case 0:
			files[path], changes[path] = text, nil
		case 1:
			files[path], changes[path], changes["moved/"+path] = text, nil, append(text, "more\n"...)
		case 2:
			changes[path] = text
		case 3:
			changes[path+"/yarn.lock"] = text
		default:
			files[path], changes[path] = text, append([]byte("more\n"), text...)
		}
	}
	return c.commitFiles(files), c.commitFiles(changes)
}

// TestDiffPages puts the pages of diffs together, which gives the whole ones.
func TestDiffPages(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	before, after := c.changedFiles(150)
	for _, query := range []string{
		"sha=" + after, "sha=" + before, "sha=" + after + "&path=d1&path=moved", "sha=" + before + "&baseSha=" + after,
		"sha=" + after + "&baseSha=" + after,
	} {
		whole := c.diffPage(c.door.CommitDiff, query)
		if whole.HasMore != nil || whole.NextCursor != "" {
			t.Errorf("%s: a whole diff is told as a page", query)
		}
		for _, limit := range []int{1, 7, 64, 1000} {
			pages, count := c.allPages(c.door.CommitDiff, query, limit)
			if want := max(1, (whole.Stats.Files+limit-1)/limit); count != want {
				t.Errorf("%s: %d pages of %d files, want %d", query, count, limit, want)
			}
			pages.HasMore, pages.NextCursor, pages.Complete = nil, "", whole.Complete
			if !reflect.DeepEqual(pages, whole) {
				t.Errorf("%s: pages of %d files are not the whole diff:\n%+.2000v\n%+.2000v", query, limit, pages, whole)
			}
		}
	}
}

// The pages of a diff compare the commits of its first page, wherever the branches have moved.
func TestDiffPagesKeepCommits(t *testing.T) {
	t.Parallel()
	for _, branches := range []bool{false, true} {
		c := newClient(t)
		c.create("").want(http.StatusCreated)
		before, after := c.changedFiles(20)
		c.post(c.door.CreateBranch, fmt.Sprintf(`{"target_branch":"base","base_ref":%q}`, before)).want(http.StatusCreated)
		h, query := c.door.CommitDiff, "ref=main&base_ref=base"
		if branches {
			h, query = c.door.BranchDiff, "branch=main&base=base"
		}
		whole, first := c.diffPage(h, query), c.diffPage(h, query+"&limit=2")
		c.commit("main", "zzz", "later\n")
		c.commit("base", "later", "later\n")
		rest, later := c.diffPage(h, query+"&cursor="+first.NextCursor), c.diffPage(h, query)
		if first.Stats.Files+rest.Stats.Files != whole.Stats.Files || *rest.HasMore || rest.TreeSHA != whole.TreeSHA ||
			*rest.BaseTreeSHA != *whole.BaseTreeSHA || *rest.MergeBaseSHA != *whole.MergeBaseSHA {
			t.Errorf("branches %v: %d files and %d of %s; the diff had %d, of %s", branches, first.Stats.Files, rest.Stats.Files,
				rest.TreeSHA, whole.Stats.Files, whole.TreeSHA)
		}
		if !branches && (rest.SHA != after || *rest.BaseSHA != before) {
			t.Errorf("the second page is about %s and %s", rest.SHA, *rest.BaseSHA)
		}
		if later.TreeSHA == whole.TreeSHA {
			t.Error("the branches have not moved")
		}
	}
}

// A page of large diffs ends before its limit.
func TestDiffPageBytes(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	files := map[string][]byte{}
	for i := range 9 {
		files[fmt.Sprint(i)] = []byte(strings.Repeat("0123456789", 30_000)) // a line of 300 kB
	}
	sha := c.commitFiles(files)
	_, count := c.allPages(c.door.CommitDiff, "sha="+sha, 100)
	if _, few := c.allPages(c.door.CommitDiff, "sha="+sha, 5); few != count {
		t.Errorf("%d pages of at most five files, want %d", few, count)
	}
	if first := c.diffPage(c.door.CommitDiff, "limit=100&sha="+sha); len(first.Files) != 4 || count != 3 {
		t.Errorf("%d files in the first of %d pages, want 4 in three", len(first.Files), count)
	}
	if whole := c.diffPage(c.door.CommitDiff, "sha="+sha); len(whole.Files) != len(files) {
		t.Errorf("%d files in the whole diff", len(whole.Files))
	}
}

func TestDiffPagesRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	_, after := c.changedFiles(20)
	cursor := c.diffPage(c.door.CommitDiff, "limit=3&sha="+after).NextCursor
	other := c.diffPage(c.door.BranchDiff, "limit=3&branch="+after+"&base="+after+"~1").NextCursor
	if cursor == "" || other == "" {
		t.Fatal("there is one page only")
	}
	for query, says := range map[string]string{
		"limit=0":                            "limit",
		"limit=-1":                           "limit",
		"limit=many":                         "limit",
		"cursor=x":                           "cursor",
		"cursor=" + url.QueryEscape("?"):     "cursor",
		"cursor=" + other:                    "cursor",
		"cursor=" + cursor[:len(cursor)-4]:   "another diff",
		"cursor=" + cursor + "&path=nowhere": "another diff",
		"cursor=" + cursor[:20]:              "cursor",
		"cursor=ZAAA" + cursor[4:]:           "cursor",
		"cursor=" + cursor + "&at=seq:1":     "cursor",
	} {
		c.call(c.door.CommitDiff, http.MethodGet, "/?sha="+after+"&"+query, nil).refused(http.StatusBadRequest, says)
	}
}
