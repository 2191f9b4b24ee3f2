package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// newUpstreamClient returns a client of a host without syncs: new repositories stay in their first
// state.
func newUpstreamClient(t *testing.T) *client {
	t.Helper()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Upstreams: engine.UpstreamConfig{ImportWait: 1}})
	t.Cleanup(shut)
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host})
	return c
}

// upstreamItem is a repository with an upstream in an answer.
type upstreamItem struct {
	DefaultBranch string                                  `json:"default_branch"`
	Base          *struct{ Provider, Owner, Name string } `json:"base_repo"`
	Sync          *struct {
		State       string
		LastSuccess *string `json:"last_success"`
		LastError   *string `json:"last_error"`
	}
}

// TestCreateWithUpstream creates repositories with each provider; whether an upstream can be
// reached is not asked.
func TestCreateWithUpstream(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"github":    `"provider":"github","auth":{"auth_type":"public"}`,
		"gitlab":    `"provider":"gitlab"`,
		"bitbucket": `"provider":"bitbucket"`,
		"gitea":     `"provider":"gitea","upstream_host":"git.example.com:3000"`,
		"forgejo":   `"provider":"forgejo","operation":null`,
		"codeberg":  `"provider":"codeberg","default_branch":"trunk"`,
		"sr.ht":     `"provider":"sr.ht"`,
	}
	c := newUpstreamClient(t)
	for provider, fields := range tests {
		target := c.as(provider)
		var created, found upstreamItem
		target.create(`{"base_repo":{` + fields + `,"owner":"own","name":"repo"}}`).want(http.StatusCreated).decode(&created)
		target.call(target.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK).decode(&found)
		owner, branch := "own", "main"
		switch provider {
		case "sr.ht":
			owner = "~own"
		case "codeberg":
			branch = "trunk"
		}
		for _, item := range []upstreamItem{created, found} {
			if item.Base == nil || item.Base.Provider != provider || item.Base.Owner != owner || item.Base.Name != "repo" ||
				item.DefaultBranch != branch {
				t.Errorf("%s: %+v with base %+v", provider, item, item.Base)
			}
		}
		if found.Sync == nil || found.Sync.State != "syncing" || found.Sync.LastSuccess != nil ||
			found.Sync.LastError != nil {
			t.Errorf("%s: sync is %+v", provider, found.Sync)
		}
	}
	var list struct{ Repos []upstreamItem }
	c.call(c.door.Repositories, http.MethodGet, "/", nil).want(http.StatusOK).decode(&list)
	if len(list.Repos) != len(tests) || list.Repos[0].Base == nil || list.Repos[0].Sync != nil {
		t.Errorf("listing is %+v", list)
	}
}

func TestCreateWithUpstreamRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		base   string
		status int
		says   string
	}{
		"no app":              {`"provider":"github","owner":"o","name":"n"`, 412, "GitHub app"},
		"no such provider":    {`"provider":"cvs","owner":"o","name":"n"`, 400, "base_repo.provider"},
		"no owner":            {`"provider":"gitlab","name":"n"`, 400, "base_repo.owner"},
		"no name":             {`"provider":"gitlab","owner":"o"`, 400, "base_repo.name"},
		"owner of wrong type": {`"provider":"gitlab","owner":1,"name":"n"`, 400, "base_repo.owner"},
		"host of wrong type": {
			`"provider":"gitlab","owner":"o","name":"n","upstream_host":[]`, 400, "base_repo.upstream_host",
		},
		"host with a scheme": {
			`"provider":"gitlab","owner":"o","name":"n","upstream_host":"http://h"`, 400, "base_repo.upstream_host",
		},
		"loopback": {`"provider":"gitlab","owner":"o","name":"n","upstream_host":"127.0.0.1"`, 400, "loopback"},
		"metadata service": {
			`"provider":"gitlab","owner":"o","name":"n","upstream_host":"169.254.169.254"`, 400, "link-local",
		},
		"hexadecimal address": {
			`"provider":"gitlab","owner":"o","name":"n","upstream_host":"0x7f000001"`, 400, "base_repo.upstream_host",
		},
		"host for GitHub": {
			`"provider":"github","auth":{"auth_type":"public"},"owner":"o","name":"n","upstream_host":"h"`, 400,
			"base_repo.upstream_host",
		},
		"a bad branch": {
			`"provider":"gitlab","owner":"o","name":"n","default_branch":"a..b"`, 400, "base_repo.default_branch",
		},
		"an operation": {
			`"provider":"gitlab","owner":"o","name":"n","operation":"fork"`, 400, "base_repo.operation",
		},
		"a ref":    {`"provider":"gitlab","owner":"o","name":"n","ref":"main"`, 400, "base_repo.ref"},
		"a commit": {`"provider":"gitlab","owner":"o","name":"n","sha":"1234567"`, 400, "base_repo.sha"},
		"a token": {
			`"provider":"gitlab","owner":"o","name":"n","auth":{"token":"t"}`, 400, "base_repo.auth.token",
		},
		"a strange auth": {
			`"provider":"github","owner":"o","name":"n","auth":{"auth_type":"private"}`, 400, "base_repo.auth.auth_type",
		},
		"public elsewhere": {
			`"provider":"gitlab","owner":"o","name":"n","auth":{"auth_type":"public"}`, 400, "base_repo.auth.auth_type",
		},
		"given twice": {`"provider":"gitlab","owner":"o","owner":"o","name":"n"`, 400, "twice"},
		"with a first commit": {
			`"provider":"gitlab","owner":"o","name":"n"},` + first + `,"more":{`, 400, "initial_commit",
		},
		"an owner that climbs":  {`"provider":"gitlab","owner":"..","name":"n"`, 400, "base_repo.owner"},
		"a name with a request": {`"provider":"gitlab","owner":"o","name":"n?x=1"`, 400, "base_repo.name"},
	}
	c := newUpstreamClient(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &client{t: t, door: c.door, grant: c.grant}
			target := c.as("new-" + strings.ReplaceAll(name, " ", "-"))
			target.create(`{"base_repo":{`+test.base+`}}`).refused(test.status, test.says)
			target.call(target.door.Repository, http.MethodGet, "/", nil).want(http.StatusNotFound)
		})
	}
}

// TestPullUpstreamAndDetach takes a repository from its creation, with an import that does not end,
// to its detachment.
func TestPullUpstreamAndDetach(t *testing.T) {
	t.Parallel()
	c := newUpstreamClient(t)
	pull := func(body string) answer {
		return c.call(c.door.PullUpstream, http.MethodPost, "/", strings.NewReader(body))
	}
	pull("").refused(http.StatusNotFound, `"r"`)
	c.create(`{"base_repo":{"provider":"gitlab","owner":"o","name":"n"}}`).want(http.StatusCreated)
	for _, body := range []string{"", "{}", `{"ref":"main"}`, `{"ref":"refs/tags/v1","more":true}`} {
		if got := pull(body).want(http.StatusAccepted); got.Header.Get("X-Repo-Sequence") != "1" {
			t.Errorf("headers are %v", got.Header)
		}
	}
	for range 2 { // under a key it happens once, as the journal shows
		got := c.call(c.door.PullUpstream, http.MethodPost, "/", strings.NewReader("{}"), "Idempotency-Key", "p").
			want(http.StatusAccepted)
		if got.Header.Get("X-Repo-Sequence") != "2" {
			t.Errorf("headers are %v", got.Header)
		}
	}
	pull(`{"ref":1}`).refused(http.StatusBadRequest, "ref")
	pull(`{"ref":"a..b"}`).refused(http.StatusBadRequest, "ref")
	pull(`{"ref":"a","ref":"a"}`).refused(http.StatusBadRequest, "twice")

	c.call(c.door.FilesMetadata, http.MethodGet, "/", nil).refused(http.StatusServiceUnavailable, "syncing")
	c.call(
		c.door.Merge, http.MethodPost, "/", strings.NewReader(`{"source_branch":"a","target_branch":"b","strategy":"merge"}`),
	).
		refused(http.StatusServiceUnavailable, "syncing")
	c.call(c.door.Files, http.MethodGet, "/", nil).want(http.StatusNotFound)

	x := exchangetest.New(http.MethodGet, "/", nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	x.Ctx = cancelled
	err := c.door.FilesMetadata(x, c.grant)
	if err == nil {
		t.Error("a cancelled request was answered")
	}

	for range 2 {
		var done struct{ Message string }
		got := c.call(c.door.Detach, http.MethodDelete, "/", nil, "Idempotency-Key", "k").want(http.StatusOK)
		got.decode(&done)
		if done.Message == "" || got.Header.Get("X-Repo-Sequence") != "3" {
			t.Errorf("answer is %s with %v", got.Body, got.Header)
		}
	}
	var found upstreamItem
	c.call(c.door.Repository, http.MethodGet, "/", nil).want(http.StatusOK).decode(&found)
	if found.Base != nil || found.Sync != nil {
		t.Errorf("after the detachment: %+v", found)
	}
	pull("").refused(http.StatusConflict, "no upstream")
	c.call(c.door.FilesMetadata, http.MethodGet, "/", nil).want(http.StatusNotFound)
}
