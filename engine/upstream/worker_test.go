package upstream_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/engine/upstream"
	"packhorse/odb/kv"
	"packhorse/refs"
)

const patience = 3 * time.Minute

// host is a Host whose syncs last until the test ends them.
type host struct {
	t       *testing.T
	orgs    map[refs.RepoID]string
	left    map[refs.RepoID]time.Time // for Pending
	away    atomic.Int32              // how many times the store cannot be reached
	begun   chan *run
	mu      sync.Mutex
	running map[refs.RepoID]int
}

// run is a sync that goes on.
type run struct {
	repo refs.RepoID
	ctx  context.Context
	end  chan time.Time
}

func newHost(t *testing.T) *host {
	t.Helper()
	return &host{t: t, orgs: map[refs.RepoID]string{}, begun: make(chan *run, 100), running: map[refs.RepoID]int{}}
}

func (h *host) repo(org string) refs.RepoID {
	id := refs.NewRepoID()
	h.orgs[id] = org
	return id
}

// Org implements upstream.Host.
func (h *host) Org(_ context.Context, repo refs.RepoID) (string, error) {
	if h.away.Add(-1) >= 0 {
		return "", kv.ErrUnavailable
	}
	org, ok := h.orgs[repo]
	if !ok {
		return "", refs.ErrRepositoryNotFound
	}
	return org, nil
}

// Sync implements upstream.Host.
func (h *host) Sync(ctx context.Context, repo refs.RepoID) (again time.Time, ran bool) {
	h.mu.Lock()
	h.running[repo]++
	if h.running[repo] > 1 {
		h.t.Error("a repository is synced twice at once")
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running[repo]--
	}()
	r := &run{repo, ctx, make(chan time.Time, 1)}
	h.begun <- r
	select {
	case again := <-r.end:
		return again, true
	case <-ctx.Done():
		return time.Time{}, true
	}
}

// Pending implements upstream.Host.
func (h *host) Pending(_ context.Context, wake func(repo refs.RepoID, at time.Time)) error {
	for repo, at := range h.left {
		wake(repo, at)
	}
	return nil
}

// next returns the sync that begins next.
func (h *host) next() *run {
	h.t.Helper()
	select {
	case r := <-h.begun:
		return r
	case <-time.After(patience):
		h.t.Fatal("no sync begins")
		return nil
	}
}

func start(t *testing.T, h *host) *upstream.Worker {
	t.Helper()
	w := upstream.NewWorker(upstream.Settings{Workers: 4})
	w.Start(h)
	t.Cleanup(w.Stop)
	if err := w.FindPending(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (h *host) idle(w *upstream.Worker, repos ...refs.RepoID) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		busy := false
		for _, repo := range repos {
			busy = busy || w.Busy(repo)
		}
		if !busy {
			return
		}
	}
	h.t.Fatal("the worker is still busy")
}

// A repository that is woken while it is synced is synced once more, however often it was woken.
func TestWorkerRunsAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	repo := h.repo("a")
	w := start(t, h)
	w.Wake(repo)
	first := h.next()
	for range 3 {
		w.Wake(repo)
		w.WakeNow(repo)
	}
	first.end <- time.Time{}
	h.next().end <- time.Time{}
	h.idle(w, repo)
	if stats := w.Stats(); stats.Syncs != 2 || stats.Running != 0 || stats.Waiting != 0 ||
		stats.Lag != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

// After a failure a change waits for the next try; an explicit request does not.
func TestWorkerWaitsAfterFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	repo, other := h.repo("a"), h.repo("a")
	w := start(t, h)
	w.Wake(repo)
	h.next().end <- time.Now().Add(time.Hour)
	h.idle(w, repo)
	w.Wake(repo)
	w.Wake(other) // whose turn would come after that of repo
	r := h.next()
	if r.repo != other {
		t.Error("a change did not wait for the next try")
	}
	w.WakeNow(repo)
	if got := h.next(); got.repo != repo {
		t.Error("another repository was synced")
	} else {
		w.WakeNow(repo) // while it runs, and fails again
		got.end <- time.Now().Add(time.Hour)
	}
	h.next().end <- time.Time{}
	r.end <- time.Time{}
	h.idle(w, repo, other)
}

// An organization has half of the workers at most.
func TestWorkerShares(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var greedy []refs.RepoID
	for range 5 {
		greedy = append(greedy, h.repo("greedy"))
	}
	modest := h.repo("modest")
	w := start(t, h)
	for _, repo := range greedy {
		w.Wake(repo)
	}
	runs := []*run{h.next(), h.next()}
	w.Wake(modest)
	r := h.next()
	if r.repo != modest {
		t.Error("an organization has more than its share")
	}
	if stats := w.Stats(); stats.Running != 3 || stats.Waiting != 3 || stats.Lag <= 0 {
		t.Errorf("stats are %+v", stats)
	}
	r.end <- time.Time{}
	for _, r := range runs {
		r.end <- time.Time{}
	}
	for range 3 {
		h.next().end <- time.Time{}
	}
	h.idle(w, append(greedy, modest)...)
}

// Hold ends a sync, and none begins before it is released.
func TestWorkerHold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	repo, other := h.repo("a"), h.repo("a")
	w := start(t, h)
	w.Wake(repo)
	r := h.next()
	release, err := w.Hold(t.Context(), repo)
	if err != nil || r.ctx.Err() == nil {
		t.Fatal("the sync was not ended", err)
	}
	w.WakeNow(repo)
	w.Wake(other)
	if got := h.next(); got.repo != other {
		t.Error("a sync began while it was held")
	} else {
		got.end <- time.Time{}
	}
	release()
	h.next().end <- time.Time{}
	h.idle(w, repo, other)

	// One that waits for another try is held too.
	w.Wake(repo)
	h.next().end <- time.Now().Add(time.Hour)
	h.idle(w, repo)
	if release, err = w.Hold(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	release()
	h.next().end <- time.Time{}
	h.idle(w, repo)
}

// The next process finds the syncs that a process left, and drops those of deleted repositories.
func TestWorkerTakesUp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	due, later, deleted := h.repo("a"), h.repo("a"), refs.NewRepoID()
	h.left = map[refs.RepoID]time.Time{due: {}, later: time.Now().Add(time.Hour), deleted: {}}
	w := start(t, h)
	r := h.next()
	if r.repo != due {
		t.Error("what is not due was synced")
	}
	r.end <- time.Time{}
	h.idle(w, due, deleted)
}

// A repository whose organization cannot be read while the store is away is synced afterwards, also
// one that is held meanwhile.
func TestWorkerStoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		free, held := h.repo("a"), h.repo("b")
		h.away.Store(5)
		w := start(t, h)
		release, err := w.Hold(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		w.Wake(free)
		w.Wake(held)
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := h.next(); r.repo != free {
			t.Error("a held repository was synced")
		} else {
			r.end <- time.Time{}
		}
		h.away.Store(1)
		release()
		time.Sleep(time.Hour)
		h.next().end <- time.Time{}
		synctest.Wait()
		if stats := w.Stats(); stats.Waiting != 0 || stats.Syncs != 2 {
			t.Errorf("stats are %+v", stats)
		}
	})
}

// Stop ends what runs and waits for it; nothing begins afterwards.
func TestWorkerStop(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	repo := h.repo("a")
	w := start(t, h)
	w.Wake(repo)
	r := h.next()
	w.Stop()
	if r.ctx.Err() == nil {
		t.Error("the sync was not cancelled")
	}
	w.WakeNow(repo)
	if stats := w.Stats(); stats.Running != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

// panicking is a host whose calls panic for some time.
type panicking struct {
	*host
	orgs, syncs atomic.Int32 // how many calls still panic
}

func (h *panicking) Org(ctx context.Context, repo refs.RepoID) (string, error) {
	if h.orgs.Add(-1) >= 0 {
		panic("on purpose")
	}
	return h.host.Org(ctx, repo)
}

func (h *panicking) Sync(ctx context.Context, repo refs.RepoID) (again time.Time, ran bool) {
	if h.syncs.Add(-1) >= 0 {
		panic("on purpose")
	}
	return h.host.Sync(ctx, repo)
}

// A repository is synced soon after panics of the host, or at once when somebody asks for it, and
// others meanwhile.
func TestWorkerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &panicking{host: newHost(t)}
		repo, other := h.repo("a"), h.repo("b")
		w := upstream.NewWorker(upstream.Settings{})
		w.Start(h)
		t.Cleanup(w.Stop)
		for name, panics := range map[string]*atomic.Int32{"organization": &h.orgs, "sync": &h.syncs} {
			panics.Store(3)
			w.Wake(repo)
			time.Sleep(time.Second)
			if panics.Load() != 2 || len(h.begun) > 0 {
				t.Errorf("%s: %d panics are left, %d syncs have begun", name, panics.Load(), len(h.begun))
			}
			panics.Store(0)
			w.Wake(other)
			h.next().end <- time.Time{}
			panics.Store(2)
			time.Sleep(time.Minute)
			h.next().end <- time.Time{}
			synctest.Wait()
			if stats := w.Stats(); stats.Waiting != 0 || stats.Running != 0 {
				t.Errorf("%s: stats are %+v", name, stats)
			}
			panics.Store(1)
			w.Wake(repo)
			synctest.Wait()
			w.WakeNow(repo)
			synctest.Wait()
			if len(h.begun) != 1 {
				t.Errorf("%s: a sync that was asked for has not begun", name)
			}
			h.next().end <- time.Time{}
			synctest.Wait()
		}
	})
}
