package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/outbound"
	"packhorse/engine/webhook"
)

// TestHangingReceivers commits to repositories of organizations each of which has 300 receivers
// that never answer. The event of another organization's commit arrives while they hang, also where
// all receivers are behind one address; and when they answer at last, each has its event.
func TestHangingReceivers(t *testing.T) {
	t.Parallel()
	const hooksCount, underWay = 300, 32 // of an organization: hooks, and their limit of running deliveries
	for _, crowd := range [][]string{{"other"}, {"other", "third"}} {
		t.Run(fmt.Sprint(len(crowd)), func(t *testing.T) {
			t.Parallel()
			hanging, heard, release := make(chan struct{}, len(crowd)*hooksCount), make(chan struct{}, 10), make(chan struct{})
			var gaveUp atomic.Int64
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/quick" {
					heard <- struct{}{}
					return
				}
				hanging <- struct{}{}
				select {
				case <-release:
				case <-r.Context().Done():
					gaveUp.Add(1)
				}
			}))
			t.Cleanup(receiver.Close)
			guard, err := outbound.ParseGuard([]string{"127.0.0.1"})
			must(err)
			hooks := func(org string) (all []webhook.Hook) {
				if org == "acme" {
					return []webhook.Hook{{URL: receiver.URL + "/quick", Secret: "s"}}
				}
				for i := range hooksCount {
					all = append(all, webhook.Hook{URL: fmt.Sprint(receiver.URL, "/", org, "/", i), Secret: "s"})
				}
				return all
			}
			host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{
				Webhooks: engine.WebhookConfig{Guard: guard, Hooks: hooks, Timeout: time.Hour},
			})
			t.Cleanup(shut)
			w := newWritableOn(t, host)
			<-heard // of the first commit
			for _, org := range crowd {
				w.tokens.Store(fmt.Sprint("of "+org, []string(nil)),
					strings.TrimPrefix(tokenOf(org, "r", "git:write", "repo:write"), "Bearer "))
				w.do(call{"POST " + v1, "of " + org, ``}, nil).done(t)
				w.do(call{"POST " + v1 + "/commit-pack", "of " + org, commitLines("", "f", "1")}, nil).done(t)
			}
			for range len(crowd) * underWay {
				<-hanging
			}
			if status, _ := w.commit("", "g", "2"); status != http.StatusCreated {
				t.Errorf("status %d", status)
			}
			<-heard
			if stats := host.Webhooks().Stats(); gaveUp.Load() > 0 || stats.Failed > 0 || stats.Delivered > 2 {
				t.Errorf("%d were given up, %+v", gaveUp.Load(), stats)
			}
			close(release)
			for range len(crowd) * (hooksCount - underWay) {
				<-hanging
			}
		})
	}
}
