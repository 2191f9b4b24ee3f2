package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// forks are forks that were acknowledged, and their main at that time.
type forks struct {
	mu   sync.Mutex
	tips map[string]object.ID // guarded by mu
}

// forkUntil forks a repository until ctx ends, deletes every third fork again, and commits to the
// others.
func (f *forks) forkUntil(ctx context.Context, t *testing.T, host *engine.Host, source string, worker int) {
	t.Helper()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d-%d", source, worker, i)
		_, err := host.CreateRepository(context.Background(), acme,
			engine.CreateRequest{Name: name, Base: &engine.Base{Name: source}})
		if errors.Is(err, engine.ErrNotFound) {
			return // the source has been deleted
		}
		if errors.Is(err, refs.ErrBusy) {
			continue // the source was written to too often
		}
		if err != nil {
			t.Errorf("fork %s: %v", name, err)
			return
		}
		if i%3 == 2 {
			if _, err := host.DeleteRepository(context.Background(), acme, name); err != nil {
				t.Errorf("delete %s: %v", name, err)
			}
			continue
		}
		fork, err := host.Repository(context.Background(), enginetest.Org, name)
		if err != nil {
			t.Error(err)
			return
		}
		result, err := upload(fork, acme, main, change{path: "fork", content: name})
		if err != nil {
			t.Errorf("commit to %s: %v", name, err)
			return
		}
		f.mu.Lock()
		f.tips[name] = result.New
		f.mu.Unlock()
	}
}

// check wants every fork to be there with all that its main reaches, and nothing in the store to be
// wrong.
func (f *forks) check(t *testing.T, host *engine.Host, tips map[string]object.ID) {
	t.Helper()
	if len(tips) == 0 {
		t.Log("no fork was acknowledged") // on a slow machine
	}
	for name, tip := range tips {
		repo, err := host.Repository(t.Context(), enginetest.Org, name)
		if err != nil {
			t.Errorf("%s was acknowledged: %v", name, err)
			continue
		}
		if _, err := clone(repo, engine.FetchRequest{Wants: []object.ID{tip}}, engine.SendOptions{}); err != nil {
			t.Errorf("clone %s: %v", name, err)
		}
	}
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range checked.Problems() {
			t.Errorf("%s: %s", checked.Name, problem)
		}
	}
}

func (f *forks) acknowledged() map[string]object.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.tips)
}

// gcUntil maintains with no grace for objects that nothing reaches and for files that nothing uses.
func gcUntil(ctx context.Context, t *testing.T, host *engine.Host) {
	t.Helper()
	for ctx.Err() == nil {
		for done, err := range host.Maintain(ctx, engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1}) {
			if ctx.Err() == nil && (err != nil || done.Err != nil) {
				t.Error("maintain:", err, done.Err)
			}
		}
	}
}

// TestForksAmongWriters forks a repository while it is written to, while its branches are deleted,
// while maintenance with no grace rewrites and removes, and finally deleted: every fork has all
// objects that it took.
func TestForksAmongWriters(t *testing.T) {
	t.Parallel()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(),
		engine.Config{Objects: odb.Options{Limits: odb.Limits{HotCount: 10}, AuxiliaryCount: 50}})
	t.Cleanup(shut)
	source := enginetest.Create(t, host, "source")
	seedHistory(t, source, 10)
	made := &forks{tips: map[string]object.ID{}}
	told := &ledger{tips: map[string]object.ID{}}
	ctx, stop := context.WithCancel(t.Context())
	var forking, writers, maintaining sync.WaitGroup
	for w := range 2 {
		forking.Go(func() { made.forkUntil(ctx, t, host, "source", w) })
	}
	writing, end := context.WithCancel(t.Context())
	writers.Go(func() { commitUntil(writing, t, source, told, "api") })
	writers.Go(func() { pushUntil(writing, t, source, told, pushes(t)) })
	writers.Go(func() {
		for i := 0; writing.Err() == nil; i++ {
			branch := fmt.Sprint("short", i%3)
			if _, err := upload(
				source, acme, engine.CommitTarget{Branch: branch, Base: "main"}, change{path: "x", content: fmt.Sprint(i)},
			); err != nil {
				t.Error("commit to a short branch:", err)
			}
			if _, err := source.DeleteBranch(context.Background(), acme, refs.Main, branch); err != nil {
				t.Error("delete a short branch:", err)
			}
		}
	})
	maintaining.Go(func() { gcUntil(ctx, t, host) })
	for len(made.acknowledged()) < 8 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	end()
	writers.Wait()
	if _, err := host.DeleteRepository(t.Context(), acme, "source"); err != nil {
		t.Error(err)
	}
	forking.Wait() // until there is no source any more
	stop()
	maintaining.Wait()
	for done, err := range host.Maintain(t.Context(), engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1}) {
		if err != nil || done.Err != nil {
			t.Error(err, done.Err)
		}
	}
	made.check(t, host, made.acknowledged())
}

// TestPowerLossWhileForking cuts the power while forks are made, deleted and maintained.
func TestPowerLossWhileForking(t *testing.T) {
	t.Parallel()
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 8))
			fs := vfs.NewCrashableMem()
			config := engine.Config{Objects: odb.Options{Limits: odb.Limits{HotCount: 10}, AuxiliaryCount: 20}}
			host, shut := enginetest.OpenOn(t, fs, config)
			source := enginetest.Create(t, host, "source")
			seedHistory(t, source, 5)
			made := &forks{tips: map[string]object.ID{}}
			told := &ledger{tips: map[string]object.ID{}}
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			for w := range 2 {
				work.Go(func() { made.forkUntil(ctx, t, host, "source", w) })
			}
			work.Go(func() { commitUntil(ctx, t, source, told, "api") })
			work.Go(func() { gcUntil(ctx, t, host) })
			for want := 1 + rng.IntN(4); len(made.acknowledged()) < want && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
			tips := made.acknowledged()
			dead := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			stop()
			work.Wait()
			shut()
			host, shut = enginetest.OpenOn(t, dead, config)
			defer shut()
			made.check(t, host, tips)
			if _, err := host.Repository(t.Context(), enginetest.Org, "source"); err != nil {
				t.Error(err)
			}
			made.forkOnce(t, host)
		})
	}
}

// forkOnce makes sure that the store goes on.
func (f *forks) forkOnce(t *testing.T, host *engine.Host) {
	t.Helper()
	_, err := host.CreateRepository(t.Context(), acme,
		engine.CreateRequest{Name: "after", Base: &engine.Base{Name: "source"}})
	if err != nil {
		t.Error(err)
	}
	repo, err := host.Repository(t.Context(), enginetest.Org, "after")
	if err != nil {
		t.Fatal(err)
	}
	page, err := repo.Branches(t.Context(), refs.Main, "", 1)
	if err != nil || len(page.Items) != 1 {
		t.Errorf("branches of a fork: %+v, %v", page, err)
	}
}
