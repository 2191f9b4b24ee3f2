package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/webhook"
)

// inventory returns what a host lists, an item a line.
func inventory(t *testing.T, host *engine.Host, org, query string) (lines []string) {
	t.Helper()
	for r, err := range host.Inventory(t.Context(), org, query) {
		must(t, err)
		if r.Damage != nil || r.Written.IsZero() || r.Sync != nil {
			t.Errorf("%+v", r)
		}
		lines = append(lines, fmt.Sprintf("%s/%s stored %t", r.Org, r.Name, r.StoredBytes > 0))
	}
	return lines
}

// TestInventory lists the repositories of two organizations, one of whose names begins with the
// other, and those that were deleted.
func TestInventory(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	if got := inventory(t, host, "", ""); got != nil {
		t.Errorf("an empty store: %q", got)
	}
	beta := engine.Actor{Org: enginetest.Org + "2", Subject: "somebody"}
	for _, name := range []string{"web", "Webhooks"} {
		_, err := host.CreateRepository(t.Context(), beta, engine.CreateRequest{Name: name})
		must(t, err)
	}
	for _, name := range []string{"zoo", "web"} {
		repo := enginetest.Create(t, host, name)
		_, err := upload(repo, acme, main, change{path: "a", content: name})
		must(t, err)
	}
	all := []string{
		enginetest.Org + "/zoo stored true", enginetest.Org + "/web stored true", beta.Org + "/web stored false",
		beta.Org + "/Webhooks stored false",
	}
	for _, test := range []struct {
		org, query string
		want       []string
	}{
		{want: all},
		{query: "WEB", want: all[1:]},
		{org: beta.Org, want: all[2:]},
		{org: enginetest.Org, query: "web", want: all[1:2]},
		{org: "nobody"},
	} {
		if got := inventory(t, host, test.org, test.query); !slices.Equal(got, test.want) {
			t.Errorf("of %q with %q: %q, want %q", test.org, test.query, got, test.want)
		}
	}

	_, err := host.DeleteRepository(t.Context(), beta, "web")
	must(t, err)
	_, err = host.DeleteRepository(t.Context(), acme, "zoo")
	must(t, err)
	if got := inventory(t, host, "", ""); !slices.Equal(got, []string{all[1], all[3]}) {
		t.Errorf("after two deletions: %q", got)
	}
	deleted := func(org, query string) (lines []string) {
		for r, err := range host.DeletedInventory(t.Context(), org, query) {
			must(t, err)
			if r.Purge.Sub(r.Deleted) < time.Hour {
				t.Errorf("%+v", r)
			}
			lines = append(lines, r.Org+"/"+r.Name+" by "+r.Actor)
		}
		return lines
	}
	gone := []string{enginetest.Org + "/zoo by " + acme.Subject, beta.Org + "/web by somebody"}
	if got := deleted("", ""); !slices.Equal(got, gone) {
		t.Errorf("deleted: %q, want %q", got, gone)
	}
	if got := deleted(beta.Org, ""); !slices.Equal(got, gone[1:]) {
		t.Errorf("deleted of one: %q", got)
	}
	if got := deleted("", "Z"); !slices.Equal(got, gone[:1]) {
		t.Errorf("deleted with a part of the name: %q", got)
	}
}

// TestInventoryBacklog lists a repository whose events reach no receiver.
func TestInventoryBacklog(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	receiver.server.Close()
	config := hooked(t, []string{"127.0.0.1"}, receiver.server.URL)
	config.Webhooks.GiveUp = -1
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), config)
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "web")
	enginetest.Create(t, host, "quiet")
	_, err := upload(repo, acme, main, change{path: "a", content: "a"})
	must(t, err)
	var last webhook.Backlog
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for last.Dead == 0 && ctx.Err() == nil {
		for r, err := range host.Inventory(ctx, "", "") {
			must(t, err)
			if r.Name == "web" {
				last = r.Hooks
			} else if r.Hooks != (webhook.Backlog{}) {
				t.Fatalf("another repository: %+v", r.Hooks)
			}
		}
	}
	if last.Dead != 1 || last.Parked != 0 || last.Behind != 0 || last.LastError == "" {
		t.Errorf("%+v", last)
	}
	if got, err := repo.Backlog(t.Context()); err != nil || got != last {
		t.Errorf("of the repository: %+v, %v", got, err)
	}
}
