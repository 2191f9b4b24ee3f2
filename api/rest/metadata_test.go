package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// metadataPage is an answer of files/metadata.
type metadataPage struct {
	Files []struct {
		Path, Type, Mode string
		Size             int64
		Last             string `json:"last_commit_sha"`
	}
	Commits map[string]struct{ Author, Date, Message string }
	Ref     string
	Next    string `json:"next_cursor"`
	HasMore *bool  `json:"has_more"`
}

func (c *client) metadata(query string) metadataPage {
	c.t.Helper()
	var p metadataPage
	c.call(c.door.FilesMetadata, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return p
}

// told formats files as one line each, with names for commits.
func (p metadataPage) told(names map[string]string) string {
	var told []string
	for _, f := range p.Files {
		told = append(told, fmt.Sprintf("%s %s %s %d %s", f.Mode, f.Type, f.Path, f.Size, names[f.Last]))
	}
	return strings.Join(told, ", ")
}

// mixed is a repository with every kind of entry, and names for its commits.
func mixed(t *testing.T) (*client, map[string]string) {
	t.Helper()
	c, done := seeded(t)
	names := map[string]string{}
	for i, d := range done {
		names[d.Commit.SHA] = []string{"first", "second", "third", "dev"}[i]
	}
	var odd committed
	c.commitPack(newPack(`"target_branch":"main","commit_message":"odd\n\nones\n\n",`+author+`,"files":[`+
		strings.Join([]string{
			`{"path":"lib/link","content_id":"1","mode":"120000"}`, `{"path":"lib/run","content_id":"2","mode":"100755"}`,
			`{"path":"mod","content_id":"3","mode":"160000"}`,
		}, ",")+"]").
		chunk("1", "a.go", true).chunk("2", "#!", true).chunk("3", strings.Repeat("1", 40), true)).want(http.StatusCreated).
		decode(&odd)
	names[odd.Commit.SHA] = "odd"
	return c, names
}

func TestFilesMetadata(t *testing.T) {
	t.Parallel()
	c, names := mixed(t)
	const (
		readme = "100644 blob README.md 12 third"
		lib    = "100644 blob lib/a.go 10 second, 120000 symlink lib/link 4 odd, 100755 blob lib/run 2 odd"
		all    = readme + ", " + lib + ", 160000 submodule mod 0 odd"
	)
	for query, want := range map[string]string{
		"":                                     all,
		"ref=refs/heads/main":                  all,
		"recursive=true":                       all,
		"recursive=false":                      readme + ", 040000 tree lib 0 odd, 160000 submodule mod 0 odd",
		"recursive=false&path=lib":             lib,
		"recursive=false&path=lib/a.go":        "100644 blob lib/a.go 10 second",
		"ephemeral=false":                      all,
		"path=lib":                             lib,
		"path=/lib/":                           lib,
		"path=lib/a.go":                        "100644 blob lib/a.go 10 second",
		"path=mod":                             "160000 submodule mod 0 odd",
		"ref=dev":                              readme + ", 100644 blob lib/a.go 10 second, 100644 blob lib/b.go 10 dev",
		"ref=" + keyOf(names, "second"):        "100644 blob README.md 6 first, 100644 blob lib/a.go 10 second",
		"ref=" + keyOf(names, "second")[:10]:   "100644 blob README.md 6 first, 100644 blob lib/a.go 10 second",
		"ref=" + keyOf(names, "odd") + "&path": all,
	} {
		p := c.metadata(query)
		if got := p.told(names); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
		if p.HasMore != nil || p.Next != "" {
			t.Errorf("%q: a listing that is not paged has has_more", query)
		}
		distinct := map[string]bool{}
		for _, f := range p.Files {
			distinct[f.Last] = true
			if _, ok := p.Commits[f.Last]; !ok {
				t.Errorf("%q: commits have no %s", query, names[f.Last])
			}
		}
		if len(p.Commits) != len(distinct) {
			t.Errorf("%q: %d commits for %d", query, len(p.Commits), len(distinct))
		}
	}
	p := c.metadata("")
	odd := p.Commits[keyOf(names, "odd")]
	if at, err := time.Parse(time.RFC3339, odd.Date); err != nil || time.Since(at) > time.Hour || odd.Author != "A" ||
		odd.Message != "odd\n\nones" {
		t.Errorf("a commit is told as %+v: %v", odd, err)
	}
	if p.Ref != "main" || c.metadata("ref=dev").Ref != "dev" {
		t.Errorf("ref is %q", p.Ref)
	}
}

func keyOf(names map[string]string, name string) string {
	for key, n := range names {
		if n == name {
			return key
		}
	}
	return ""
}

func TestFilesMetadataPages(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"recursive=true", "recursive=false"} {
		c, names := mixed(t)
		whole := c.metadata(kind).told(names)
		var pages []string
		query := kind + "&limit=2"
		for range 10 {
			p := c.metadata(query)
			pages = append(pages, p.told(names))
			if len(p.Files) > 2 || len(p.Commits) > 2 || *p.HasMore != (p.Next != "") {
				t.Fatalf("page %+v", p)
			}
			if p.Next == "" {
				break
			}
			query = kind + "&limit=2&cursor=" + p.Next
			c.commit("main", "lib/a.go", "pushed between pages")
		}
		if got := strings.Join(pages, ", "); got != whole || len(pages) < 2 {
			t.Errorf("%s: pages hold %s, want %s", kind, got, whole)
		}
		next := c.metadata(kind + "&limit=1&path=lib").Next
		if p := c.metadata(kind + "&path=lib&cursor=" + next); !*p.HasMore && len(p.Files) != 2 || p.Files[0].Path != "lib/link" {
			t.Errorf("%s: the second page of a folder is %s", kind, p.told(names))
		}
		other := map[string]string{"recursive=true": "false", "recursive=false": "true"}[kind]
		query = "/?path=lib&recursive=" + other + "&cursor=" + next
		c.call(c.door.FilesMetadata, http.MethodGet, query, nil).refused(http.StatusBadRequest, "cursor")
	}
}

// TestFilesMetadataFollows repeats the request while commits are made, so that answers are derived
// from earlier ones.
func TestFilesMetadataFollows(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	last, entries := map[string]string{}, map[string]string{}
	for i, path := range []string{"a", "d/a", "d/e/f", "a", "d/b", "a/b", "d/e/f", "d", "d/x"} {
		made := c.commit("main", path, fmt.Sprint("content ", i))
		for other := range last { // the entries that the path replaces
			if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
				delete(last, other)
			}
		}
		last[path] = made.Commit.SHA
		p := c.metadata("")
		for _, f := range p.Files {
			if f.Last != last[f.Path] {
				t.Errorf("after %d commits, %s: changed last by %s, want %s", i+1, f.Path, f.Last, last[f.Path])
			}
			file := c.call(c.door.File, http.MethodHead, "/?path="+f.Path, nil).want(http.StatusOK)
			if got := file.Header.Get("X-Last-Commit-Sha"); got != last[f.Path] {
				t.Errorf("after %d commits, X-Last-Commit-Sha of %s is %s", i+1, f.Path, got)
			}
		}
		if len(p.Files) != len(last) {
			t.Errorf("after %d commits there are %d files, want %d", i+1, len(p.Files), len(last))
		}
		top, _, _ := strings.Cut(path, "/")
		entries[top] = made.Commit.SHA
		for _, f := range c.metadata("recursive=false").Files {
			if f.Last != entries[f.Path] {
				t.Errorf("after %d commits, entry %s: changed last by %s, want %s", i+1, f.Path, f.Last, entries[f.Path])
			}
		}
	}
}

// TestFilesMetadataRefused has the rows of the specification's Errors table for files/metadata;
// those of tokens and methods are in package api.
func TestFilesMetadataRefused(t *testing.T) {
	t.Parallel()
	c, done := seeded(t)
	get := func(query string) answer { return c.call(c.door.FilesMetadata, http.MethodGet, "/?"+query, nil) }
	for query, says := range map[string]string{
		"ephemeral=yes":                            "ephemeral",
		"ephemeral=true":                           "main",
		"ephemeral=true&ref=main":                  "main",
		"ephemeral=true&ref=" + done[0].Commit.SHA: done[0].Commit.SHA,
		"recursive=maybe":                          "recursive",
		"limit=0":                                  "limit",
		"limit=-1":                                 "limit",
		"limit=some":                               "limit",
		"cursor=bogus":                             "cursor",
		"cursor=Zm9v":                              "cursor",
		"cursor=" + files(c, "limit=1"):            "cursor",
		"limit=2&cursor=bQ" + strings.Repeat("A", 40): "cursor",
	} {
		get(query).refused(http.StatusBadRequest, says)
	}
	for query, says := range map[string]string{
		"ref=nope":                           "nope",
		"ref=" + strings.Repeat("0", 40):     "000",
		"path=nope":                          "nope",
		"path=README.md/x":                   "README.md/x",
		"path=README.md&ref=refs/tags/never": "never",
	} {
		get(query).refused(http.StatusNotFound, says)
	}
	c.as("nope").call(c.door.FilesMetadata, http.MethodGet, "/", nil).refused(http.StatusNotFound, "nope")
	empty := c.as("empty")
	empty.create(`{"default_branch":"trunk"}`).want(http.StatusCreated)
	empty.call(c.door.FilesMetadata, http.MethodGet, "/", nil).refused(http.StatusNotFound, "main")
	made := empty.commitPack(newPack(`"target_branch":"trunk","commit_message":"m",`+author+
		`,"files":[{"path":"a","content_id":"1"}]`).chunk("1", "x", true))
	made.want(http.StatusCreated)
	if p := empty.metadata(""); p.Ref != "trunk" || len(p.Files) != 1 {
		t.Errorf("without a ref: %+v", p)
	}

	x := exchangetest.New(http.MethodGet, "/", nil)
	x.SlotErr = exchange.ErrBusy
	if err := c.door.FilesMetadata(x, c.grant); err != nil {
		t.Errorf("a small repository needs a slot: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x = exchangetest.New(http.MethodGet, "/", nil)
	x.Ctx = ctx
	if err := c.door.FilesMetadata(x, c.grant); !errors.Is(err, context.Canceled) {
		t.Errorf("for a client that has gone: %v", err)
	}
}

// files returns the cursor of a page of files.
func files(c *client, query string) string {
	var p struct {
		Next string `json:"next_cursor"`
	}
	c.call(c.door.Files, http.MethodGet, "/?"+query, nil).want(http.StatusOK).decode(&p)
	return p.Next
}

func TestFilesMetadataOfEphemeral(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	var made committed
	c.commitPack(newPack(`"target_branch":"spike","base_branch":"main","ephemeral":true,"commit_message":"m",`+author+
		`,"files":[{"path":"new","content_id":"1"}]`).chunk("1", "x", true)).want(http.StatusCreated).decode(&made)
	p := c.metadata("ref=spike&ephemeral=true")
	if len(p.Files) != 3 || p.Files[2].Path != "new" || p.Files[2].Last != made.Commit.SHA || p.Ref != "spike" {
		t.Errorf("the ephemeral branch has %+v", p)
	}
	c.call(c.door.FilesMetadata, http.MethodGet, "/?ref=spike", nil).refused(http.StatusNotFound, "spike")
}

// TestFilesMetadataBound has more distinct last commits than one answer lists: pages go on.
func TestFilesMetadataBound(t *testing.T) {
	t.Parallel()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Limits: engine.Limits{LastCommitCountMax: 2}})
	t.Cleanup(shut)
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host})
	c.create("").want(http.StatusCreated)
	for _, path := range []string{"a", "b"} {
		c.commit("main", path, path)
	}
	c.metadata("")
	c.commit("main", "c", "c")
	c.call(c.door.FilesMetadata, http.MethodGet, "/", nil).refused(http.StatusTooManyRequests, "more than 2")
	if p := c.metadata("limit=2"); len(p.Files) != 2 || !*p.HasMore {
		t.Errorf("a page within the bound is %+v", p)
	}
	c.metadata("path=c")
}
