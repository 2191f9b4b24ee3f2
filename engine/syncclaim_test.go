package engine_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/cluster"
	"packhorse/engine/enginetest"
	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// peer is one of several servers over the same stores. Its link can be cut.
type peer struct {
	*near
	*odbtest.Away
	asked atomic.Int64 // how often it asked whether another server lives
}

// Get implements [kv.Reader].
func (p *peer) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.HasPrefix(key, []byte{cluster.Table, 's'}) {
		p.asked.Add(1)
	}
	return p.Away.Get(ctx, key)
}

// deferred waits until the server has looked a few times at who works on an upstream.
func (p *peer) deferred() {
	p.t.Helper()
	before := p.asked.Load()
	eventually(p.t, "it looks whether another server lives", func() bool { return p.asked.Load() >= before+3 })
}

// peers opens two servers with one upstream.
func peers(t *testing.T, configs ...engine.Config) (keys kv.Store, all []*peer) {
	t.Helper()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	for _, config := range configs {
		config.Sharing = &engine.Sharing{Beat: 5 * time.Millisecond, Patience: time.Hour}
		p := &peer{Away: odbtest.NewAway(keys)}
		host := enginetest.OpenOver(t, p, files, config)
		p.near = &near{t: t, host: host}
		t.Cleanup(func() { must(t, host.Close(context.Background())) }) //nolint:usetesting // t.Context has ended
		all = append(all, p)
	}
	return keys, all
}

// without cuts a server off while another one does something.
func (p *peer) without(do func()) {
	p.t.Helper()
	p.Leave(0)
	do()
	p.Return()
}

// apply changes rows beside the servers.
func apply(t *testing.T, keys kv.Store, fill func(b *kv.Batch)) {
	t.Helper()
	b := kv.NewBatch()
	fill(b)
	_, err := keys.Apply(t.Context(), b)
	must(t, err)
}

// kill cuts a server off, and removes its row, as another server does with one that is silent.
func (p *peer) kill(keys kv.Store) {
	p.t.Helper()
	p.Leave(0)
	p.t.Cleanup(func() { p.Return() })
	id, err := hex.DecodeString(p.host.Member().ID())
	must(p.t, err)
	apply(p.t, keys, func(b *kv.Batch) {
		servers := kv.ScanOptions{Start: []byte{cluster.Table}, End: []byte{cluster.Table + 1}}
		for pair, err := range keys.Scan(p.t.Context(), servers) {
			must(p.t, err)
			if bytes.Contains(append(pair.Key, pair.Value...), id) {
				b.Delete(bytes.Clone(pair.Key))
			}
		}
	})
}

// TestOneServerSyncs has one server hang in a sync. The other one, which has something to send,
// asks the upstream for nothing meanwhile, and sends it afterwards; and what a client asked it to
// pull is pulled, although the hanging sync began before.
func TestOneServerSyncs(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	keys, all := peers(t, slow(f.config()), slow(f.config()))
	a, b := all[0], all[1]
	repo := a.create(engine.UpstreamBase{})
	a.synced()
	listed := make(chan struct{})
	f.intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/ada/r.git/git-receive-pack" {
			select {
			case <-listed:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	})
	reached := f.count("/git-receive-pack")
	a.commit("main", "", "of a")
	eventually(t, "the upstream is asked", func() bool { return f.count("/git-receive-pack") > reached })
	state, _, err := upstream.ReadState(t.Context(), keys, repo.Item().ID)
	must(t, err)
	if state.Syncer == b.host.Member().ID() { // it has found what is to be sent first
		a, b = b, a
	}
	before := f.count("")
	f.commit("other", "theirs")
	b.commit("main", "", "of b")
	b.deferred()
	if _, err := b.open().PullUpstream(t.Context(), ada, ""); err != nil {
		t.Fatal(err)
	}
	b.deferred()
	if got := f.count(""); got != before {
		t.Errorf("%d requests while another server syncs: %q", got-before, f.requests[before:])
	}
	close(listed)
	b.equal(f)
	b.synced()
}

// TestDetachWhileAnotherServerSyncs detaches on one server while another one hangs in a sync, which
// is cancelled: nothing is sent from then on.
func TestDetachWhileAnotherServerSyncs(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	reached, release := f.hang("git-upload-pack")
	defer release()
	keys, all := peers(t, f.config(), f.config())
	a, b := all[0], all[1]
	var repo *engine.Repository
	b.without(func() {
		repo = a.create(engine.UpstreamBase{})
		arrive(t, reached)
	})
	if _, err := b.open().Detach(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if state, _, err := upstream.ReadState(t.Context(), keys, repo.Item().ID); err != nil || state.Syncer != "" {
		t.Errorf("a sync runs behind the detachment: %+v, %v", state, err)
	}
	eventually(t, "what the sync has left ends", func() bool { return a.host.UpstreamStats().Running == 0 })
	if _, ok := a.open().Sync(); ok {
		t.Error("the other server sees an upstream")
	}
	before := f.count("")
	f.intercept(nil)
	a.commit("main", "", "ours alone")
	must(t, a.host.Close(t.Context()))
	if got := f.count(""); got != before {
		t.Errorf("the upstream was asked for %q", f.requests[before:])
	}
}

// TestDetachTimesOutForAnotherServer detaches on one server while another one syncs and does not
// hear that it is to stop: nothing changes, and it works when the sync has ended.
func TestDetachTimesOutForAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	hanging := slow(f.config())
	d := &deaf{reached: make(chan struct{}), release: make(chan struct{})}
	hanging.Upstreams.Client = &http.Client{Transport: d}
	impatient := slow(f.config())
	impatient.Upstreams.DetachWait = 20 * time.Millisecond
	_, all := peers(t, hanging, impatient)
	a, b := all[0], all[1]
	b.without(func() {
		a.create(engine.UpstreamBase{})
		arrive(t, d.reached)
	})
	for range 2 {
		if _, err := b.open().Detach(t.Context(), ada); !errors.Is(err, engine.ErrDetachTimeout) {
			t.Errorf("error is %v", err)
		}
		if state, ok := b.open().Sync(); !ok || state.Phase != upstream.Syncing {
			t.Errorf("state is %+v", state)
		}
	}
	close(d.release)
	eventually(t, "it is detached", func() bool {
		_, err := b.open().Detach(t.Context(), ada)
		return err == nil
	})
}

// TestSyncOfAServerThatIsGone has a server die in a sync: another one does it, and the one that
// died changes nothing when it goes on.
func TestSyncOfAServerThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.commit("main", "one")
	hanging := f.config()
	d := &deaf{reached: make(chan struct{}), release: make(chan struct{})}
	hanging.Upstreams.Client = &http.Client{Transport: d}
	keys, all := peers(t, hanging, f.config())
	a, b := all[0], all[1]
	var repo *engine.Repository
	b.without(func() {
		repo = a.create(engine.UpstreamBase{})
		arrive(t, d.reached)
	})
	a.kill(keys)
	b.synced()
	b.equal(f)
	_, want, err := upstream.ReadState(t.Context(), keys, repo.Item().ID)
	must(t, err)
	a.Return()
	close(d.release)
	eventually(t, "the sync of the first server has ended", func() bool { return a.host.UpstreamStats().Running == 0 })
	if _, got, err := upstream.ReadState(t.Context(), keys, repo.Item().ID); err != nil || string(got) != string(want) {
		t.Errorf("the state was %s, and is %s, %v", want, got, err)
	}
}

// TestDetachmentOfAServerThatIsGone leaves a detachment to the server that has begun it, while that
// one lives; then another one ends it.
func TestDetachmentOfAServerThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	keys, all := peers(t, f.config(), f.config())
	a, b := all[0], all[1]
	repo := a.create(engine.UpstreamBase{})
	a.synced()
	a.Leave(0) // or a sync that it still has to do would end the detachment, which does not hold it back here
	state, err := (&upstream.State{
		Phase: upstream.Detaching, Detacher: a.host.Member().ID(), Syncer: "ff",
	}).Encode()
	must(t, err)
	apply(t, keys, func(batch *kv.Batch) { batch.Put(upstream.StateKey(repo.Item().ID), state) })
	b.commit("main", "", "wakes the sync") // which finds a detachment
	b.deferred()
	if _, err := b.open().Detach(t.Context(), ada); !errors.Is(err, upstream.ErrDetaching) {
		t.Errorf("error is %v", err)
	}
	a.kill(keys)
	b.gone()
}
