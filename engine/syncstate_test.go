package engine_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
)

// afterGet is a store in which something happens, once, between the reading of a key and the next
// step of its reader.
type afterGet struct {
	kv.Store
	next atomic.Pointer[happening]
}

type happening struct {
	key []byte
	do  func()
}

func (s *afterGet) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := s.Store.Get(ctx, key)
	if next := s.next.Load(); next != nil && bytes.Equal(key, next.key) && s.next.CompareAndSwap(next, nil) {
		next.do()
	}
	return value, err
}

// openAfterGet opens a host behind an afterGet.
func openAfterGet(t *testing.T, config engine.Config) (*engine.Host, *afterGet) {
	t.Helper()
	stored := &afterGet{}
	return enginetest.OpenBehind(t, config, func(keys kv.Store) kv.Store {
		stored.Store = keys
		return stored
	}), stored
}

// TestSyncStateIsNotFromBefore opens a repository whose sync waits for its turn, and lets the whole
// of it, which fails, pass between two steps of that: the outcome of the previous sync is not
// returned.
func TestSyncStateIsNotFromBefore(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	config := slow(f.config())
	config.Upstreams.Settings.Workers = 1
	host, stored := openAfterGet(t, config)
	n := &near{t: t, host: host}
	repo := n.create(engine.UpstreamBase{})
	n.synced()

	reached, release := f.hang("info/refs")
	defer release()
	base := &engine.UpstreamBase{Origin: upstream.Origin{Provider: "gitea", Owner: "ada", Name: "r"}}
	_, err := host.CreateRepository(t.Context(), ada, engine.CreateRequest{Name: "other", Upstream: base})
	must(t, err)
	arrive(t, reached) // the only worker is taken
	f.commit("main", "theirs")
	n.commit("main", "", "ours")
	before := host.UpstreamStats().Syncs
	stored.next.Store(&happening{upstream.StateKey(repo.Item().ID), func() {
		release()
		eventually(t, "both syncs have ended", func() bool {
			stats := host.UpstreamStats()
			return stats.Syncs == before+2 && stats.Running == 0
		})
	}})
	if state, _ := n.open().Sync(); stored.next.Load() != nil || state.Phase != upstream.Syncing {
		t.Errorf("the state is %+v", state)
	}
	n.failed("refs/heads/main has diverged")
}
