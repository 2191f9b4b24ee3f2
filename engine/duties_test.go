package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/cluster"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestSharedDuties has two hosts share stores, and makes commits on both while they come and go:
// one of them sends each event, once and in order, whichever host made the commit.
func TestSharedDuties(t *testing.T) {
	t.Parallel()
	receiver := newHearing(t, nil)
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	open := func() *engine.Host {
		config := hooked(t, []string{"127.0.0.1"}, receiver.server.URL)
		config.Background = true
		config.Webhooks.Linger = time.Hour
		config.Scrub.BytesPerSecond, config.Census = 1<<30, time.Minute
		config.Sharing = &engine.Sharing{URL: "http://server", Beat: 5 * time.Millisecond, Patience: time.Hour}
		return enginetest.OpenOver(t, keys, files, config)
	}
	hosts := []*engine.Host{open(), open()}
	enginetest.Create(t, hosts[0], "r")
	var want []string
	for round := range 4 {
		for i, host := range hosts {
			repo, err := host.Repository(t.Context(), enginetest.Org, "r")
			must(t, err)
			for n := range 3 {
				done, err := upload(repo, acme, main, change{path: "f", content: fmt.Sprint(round, i, n)})
				must(t, err)
				want = append(want, done.New.String())
			}
		}
		eventually(t, "every event is sent", func() bool { return len(receiver.heard()) >= len(want) })
		eventually(t, "each duty has one owner", func() bool {
			var held []string
			for _, host := range hosts {
				held = append(held, host.Member().Held()...)
			}
			slices.Sort(held)
			return strings.Join(held, " ") == "census maintenance scrub webhooks"
		})
		must(t, hosts[0].Close(context.Background())) // its duties go to the other one
		other := hosts[1]
		eventually(t, "the other server holds every duty", func() bool { return len(other.Member().Held()) == 4 })
		hosts = []*engine.Host{other, open()}
	}
	servers, err := cluster.List(t.Context(), keys)
	must(t, err)
	if len(servers) != 2 {
		t.Errorf("%d servers: %+v", len(servers), servers)
	}
	for _, host := range hosts {
		must(t, host.Close(context.Background()))
	}
	for i, event := range receiver.heard() {
		if i >= len(want) || !strings.HasSuffix(event, want[i]) {
			t.Fatalf("event %d is %q of %q", i, event, want)
		}
	}
}

// TestSweepWaitsForOtherHosts has one host replace the layers that a view of another host reads:
// they stay until the view is closed, without any grace.
func TestSweepWaitsForOtherHosts(t *testing.T) {
	t.Parallel()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	open := func() *engine.Host {
		host, err := engine.Open(t.Context(), engine.Config{
			KV: keys, Files: files, Sharing: &engine.Sharing{Beat: time.Millisecond, Patience: time.Hour},
		})
		must(t, err)
		t.Cleanup(func() { must(t, host.Close(context.Background())) }) //nolint:usetesting // t.Context has ended
		return host
	}
	keeper, reader := open(), open()
	enginetest.Create(t, keeper, "r")
	repo, err := reader.Repository(t.Context(), enginetest.Org, "r")
	must(t, err)
	var commits []object.ID
	for i := range 40 {
		done, err := upload(repo, acme, main, change{path: fmt.Sprint("f", i%3), content: fmt.Sprint(i)})
		must(t, err)
		commits = append(commits, done.New)
	}
	maintain := func() {
		t.Helper()
		for done, err := range keeper.Maintain(t.Context(), engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1}) {
			must(t, errors.Join(err, done.Err))
		}
	}
	obsolete := func() (count int) {
		t.Helper()
		for _, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: []byte{'d'}, End: []byte{'e'}}) {
			must(t, err)
			count++
		}
		return count
	}
	view, err := repo.Objects(t.Context())
	must(t, err)
	waiting := obsolete()
	for range 20 {
		maintain()
		time.Sleep(2 * time.Millisecond) // some beats
	}
	if obsolete() <= waiting {
		t.Error("nothing waits for the view")
	}
	for _, id := range commits {
		if _, _, err := view.Read(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	must(t, view.Close())
	eventually(t, "the old layers are removed", func() bool {
		maintain()
		return obsolete() == 0
	})
	if n := reader.DamageCount() + keeper.DamageCount(); n != 0 {
		t.Errorf("%d things count as damaged", n)
	}
}
