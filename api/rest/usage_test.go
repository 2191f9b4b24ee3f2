package rest_test

import (
	"net/http"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/quota"
)

// TestUsage reads what repositories store, with quotas and without, and writes beyond one.
func TestUsage(t *testing.T) {
	t.Parallel()
	var limits quota.Limits
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Quotas: func(string) quota.Limits { return limits }})
	t.Cleanup(shut)
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host, Verify: func(string) (*auth.Grant, error) { return c.grant, nil }})
	type sums struct {
		StoredBytes int64 `json:"stored_bytes"`
		QuotaBytes  int64 `json:"quota_bytes"`
		LeftBytes   int64 `json:"left_bytes"`
	}
	type usage struct {
		StoredBytes   int64  `json:"stored_bytes"`
		SharedBytes   int64  `json:"shared_bytes"`
		BorrowedBytes int64  `json:"borrowed_bytes"`
		Objects       int    `json:"objects"`
		Refs          int    `json:"refs"`
		LastWrite     string `json:"last_write"`
		Quota         *sums
		Organization  *sums
	}
	of := func(c *client) (u usage) {
		t.Helper()
		c.call(c.door.Usage, http.MethodGet, "/", nil).want(http.StatusOK).decode(&u)
		return u
	}
	c.call(c.door.Usage, http.MethodGet, "/", nil).refused(http.StatusNotFound, "not found")
	c.create("").want(http.StatusCreated)
	if u := of(c); u.LastWrite == "" || u != (usage{LastWrite: u.LastWrite}) {
		t.Errorf("an empty repository uses %+v", u)
	}
	created := of(c).LastWrite
	commit := func() answer {
		fields := `"target_branch":"main","commit_message":"m",` + author + `,"files":[{"path":"f","content_id":"1"}]`
		return c.commitPack(newPack(fields).chunk("1", "hello", true))
	}
	commit().want(http.StatusCreated)
	base := of(c)
	if base.Objects != 3 || base.Refs != 1 || base.StoredBytes < 100 || base.LastWrite <= created || base.Quota != nil {
		t.Errorf("after a commit it uses %+v", base)
	}
	c.as("fork").create(`{"base_repo":{` + forkOfR + `}}`).want(http.StatusCreated)
	limits = quota.Limits{Organization: base.StoredBytes, Repository: 1000}
	fork := of(c.as("fork"))
	if fork.StoredBytes != 0 || fork.Objects != 0 || fork.BorrowedBytes != base.StoredBytes || fork.Refs != 1 ||
		*fork.Quota != (sums{0, 1000, 1000}) || *fork.Organization != (sums{base.StoredBytes, base.StoredBytes, 0}) {
		t.Errorf("a fork uses %+v", fork)
	}
	if now := of(c); now.SharedBytes != base.StoredBytes || now.Quota.LeftBytes != 1000-base.StoredBytes {
		t.Errorf("its base uses %+v", now)
	}
	var refusal struct {
		Result struct{ Status, Message string }
		Quota  struct {
			Of         string
			QuotaBytes int64 `json:"quota_bytes"`
			UsedBytes  int64 `json:"used_bytes"`
		}
	}
	commit().want(http.StatusRequestEntityTooLarge).decode(&refusal)
	if refusal.Quota.Of != "organization" || refusal.Quota.QuotaBytes != base.StoredBytes ||
		refusal.Quota.UsedBytes != base.StoredBytes || refusal.Result.Status != "invalid" {
		t.Errorf("it is refused with %+v", refusal)
	}
}
