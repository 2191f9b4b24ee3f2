package rest_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// blameParts puts the parts of a blame together, and counts them.
func (c *client) blameParts(query string, limit int) (whole blamePage, count int) {
	c.t.Helper()
	for cursor := ""; count == 0 || cursor != ""; count++ {
		p := c.blame(fmt.Sprintf("%s&limit=%d&cursor=%s", query, limit, cursor))
		if p.HasMore == nil || *p.HasMore != (p.NextCursor != "") {
			c.t.Fatalf("part %d of %s: more %v, cursor %q", count, query, p.HasMore, p.NextCursor)
		}
		whole.Lines = append(whole.Lines, p.Lines...)
		whole.Ref, whole.Path, whole.CommitSHA, cursor = p.Ref, p.Path, p.CommitSHA, p.NextCursor
	}
	slices.SortFunc(whole.Lines, func(x, y blameLine) int { return x.Number - y.Number })
	return whole, count
}

// versions commits so many versions of a file, each with one line changed, and returns the commits.
func (c *client) versions(path string, count int) (commits []string) {
	random := rand.New(rand.NewPCG(uint64(count), 6))
	text := slices.Repeat([]string{"first"}, 30)
	for i := range count {
		text[random.IntN(len(text))] = fmt.Sprintf("line of %d", i)
		commits = append(commits, c.commit("main", path, strings.Join(text, "\n")+"\n").Commit.SHA)
	}
	return commits
}

// TestBlameParts puts the parts of blames together, which gives the whole ones.
func TestBlameParts(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{HistoryBytes: 1}) // remembers no changes
	t.Cleanup(shut)
	c.door = rest.New(rest.Config{Host: host})
	c.create("").want(http.StatusCreated)
	commits := c.versions("dir/a", 25)
	for _, query := range []string{"path=dir/a", "path=dir/a&range=3,9", "path=dir/a&detect_moves=true", "path=dir/a&ref=" + commits[9]} {
		whole := c.blame(query)
		if whole.HasMore != nil || whole.NextCursor != "" {
			t.Errorf("%s: a whole blame is told as a part", query)
		}
		for limit, least := range map[int]int{1: 5, 3: 2, 1000: 1} {
			parts, count := c.blameParts(query, limit)
			if !reflect.DeepEqual(parts, whole) || count < least || limit == 1000 && count != 1 {
				t.Errorf("%s: %d parts of %d versions are not the whole blame:\n%+v\n%+v", query, count, limit, parts, whole)
			}
		}
	}
	if first := c.blame("path=dir/a&limit=1"); len(first.Lines) != 1 || first.Lines[0].CommitSHA != commits[24] {
		t.Errorf("the first part is %+v, want the line that changed last", first)
	}
}

// The parts of a blame are of the commit of the first one, wherever the branch has moved.
func TestBlamePartsKeepCommit(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.versions("a", 5)
	first, whole := c.blame("path=a&limit=1"), c.blame("path=a")
	c.commit("main", "a", "another\n")
	rest := c.blame("path=a&limit=100&cursor=" + first.NextCursor)
	if rest.CommitSHA != whole.CommitSHA || len(first.Lines)+len(rest.Lines) != len(whole.Lines) {
		t.Errorf("%d lines, and %d of %s; the blame had %d, of %s", len(first.Lines), len(rest.Lines), rest.CommitSHA,
			len(whole.Lines), whole.CommitSHA)
	}
}

// TestBlamePartsRefused tries cursors that are none, of other blames, and of commits that the
// repository must not see.
func TestBlamePartsRefused(t *testing.T) {
	t.Parallel()
	c := newForkClient(t)
	c.create("").want(http.StatusCreated)
	shared := c.versions("a", 2)[1]
	fork := c.as("fork")
	fork.create(`{"base_repo":{` + forkOfR + `}}`).want(http.StatusCreated)
	hidden := c.versions("a", 4)
	cursor := c.blame("path=a&limit=1").NextCursor
	if cursor == "" {
		t.Fatal("there is one part only")
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatal(err)
	}
	patched := func(at int, bytes ...byte) string {
		other := slices.Clone(data)
		copy(other[at:], bytes)
		return base64.RawURLEncoding.EncodeToString(other)
	}
	of := func(id string) []byte {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const commitAt, pendingAt, countAt, runAt = 1, 29, 50, 51
	if got := hex.EncodeToString(data[pendingAt : pendingAt+20]); got != hidden[2] {
		t.Fatalf("the rest begins at %s, want %s", got, hidden[2])
	}
	twice := base64.RawURLEncoding.EncodeToString(append(slices.Clone(data), data[pendingAt:]...))
	for query, says := range map[string]string{
		"path=a&limit=0":                             "limit",
		"path=a&limit=many":                          "limit",
		"path=a&cursor=x":                            "cursor",
		"path=a&cursor=" + cursor[:30]:               "cursor",
		"path=a&cursor=" + cursor[:len(cursor)-3]:    "cursor",
		"path=a&range=1,2&cursor=" + cursor:          "another blame",
		"path=a&detect_moves=true&cursor=" + cursor:  "another blame",
		"path=a&at=seq:4&cursor=" + cursor:           "another moment",
		"path=a&cursor=" + patched(commitAt, 1, 2):   "cursor",
		"path=a&cursor=" + patched(pendingAt, 1, 2):  "cursor",
		"path=a&cursor=" + patched(countAt, 0):       "cursor",
		"path=a&cursor=" + patched(countAt, 99):      "cursor",
		"path=a&cursor=" + patched(runAt, 1):         "cursor", // before the first line
		"path=a&cursor=" + patched(runAt+2, 126):     "cursor", // more lines than there are
		"path=a&cursor=" + patched(pendingAt+20, 12): "cursor", // another path
		"path=a&cursor=" + twice:                     "cursor",
	} {
		c.call(c.door.Blame, http.MethodGet, "/?"+query, nil).refused(http.StatusBadRequest, says)
	}
	for _, stolen := range []string{cursor, patched(commitAt, of(shared)...)} {
		fork.call(fork.door.Blame, http.MethodGet, "/?path=a&cursor="+stolen, nil).refused(http.StatusBadRequest, "cursor")
	}
	seen := patched(commitAt, of(shared)...)
	if again := c.blame("path=a&limit=100&cursor=" + seen); len(again.Lines) == 0 {
		t.Error("the patched cursor is refused for another reason")
	}
}
