package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// ledger is the knowledge of the clients: the tip of each branch after the last write that was
// acknowledged.
type ledger struct {
	mu    sync.Mutex           // guards the fields below
	tips  map[string]object.ID // by branch
	count int                  // of writes
}

func (l *ledger) note(branch string, tip object.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tips[branch] = tip
	l.count++
}

// has reports whether so many writes were acknowledged.
func (l *ledger) has(count int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count >= count
}

func (l *ledger) copy() map[string]object.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.tips)
}

// TestPowerLoss cuts the power while API commits and pushes run: acknowledged writes exist
// afterwards, and everything that exists is whole.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	packs := pushes(t)
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2))
			fs := vfs.NewCrashableMem()
			// Small limits, so that pushes are segments in some rounds and hot in others.
			config := engine.Config{}
			if seed%2 == 0 {
				config.Objects.Limits.HotCount = 10
			}
			host, shut := enginetest.OpenOn(t, fs, config)
			repo := enginetest.Create(t, host, "r")
			if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
				t.Fatal(err)
			}
			told := &ledger{tips: map[string]object.ID{}}
			ctx, stop := context.WithCancel(context.Background())
			var writers sync.WaitGroup
			for w := range 3 {
				writers.Go(func() { commitUntil(ctx, t, repo, told, fmt.Sprintf("api%d", w)) })
			}
			writers.Go(func() { pushUntil(ctx, t, repo, told, packs) })

			for want := 1 + rng.IntN(100); !told.has(want) && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
			acknowledged := told.copy()
			dead := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			stop()
			writers.Wait()
			shut()

			host, shut = enginetest.OpenOn(t, dead, config)
			defer shut()
			afterwards(t, host, acknowledged)
		})
	}
}

// commitUntil makes one-file commits to a branch of its own.
func commitUntil(ctx context.Context, t *testing.T, repo *engine.Repository, told *ledger, branch string) {
	t.Helper()
	for i := 0; ctx.Err() == nil; i++ {
		target := engine.CommitTarget{Branch: branch, Base: "main"}
		result, err := upload(repo, acme, target,
			change{path: fmt.Sprintf("%s/%d", branch, i%7), content: strings.Repeat(fmt.Sprintln(i), i%50)})
		if err != nil {
			t.Error(err)
			return
		}
		told.note(branch, result.New)
	}
}

// push is a pack with its update of a branch.
type push struct {
	pack []byte
	tip  object.ID
}

// pushes makes the packs of a history that grows.
func pushes(t *testing.T) []push {
	t.Helper()
	git := oracle.New(t)
	git.Seed(oracle.History{Commits: 40, Binary: true})
	tips := strings.Fields(git.Git("rev-list", "--reverse", "--first-parent", "main"))
	var list []push
	for i := 4; i < len(tips); i += 5 {
		revs := tips[i] + "\n"
		if i > 4 {
			revs += "^" + tips[i-5] + "\n"
		}
		id, err := object.ParseID(tips[i])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, push{git.Input([]byte(revs), "pack-objects", "--stdout", "--revs", "--thin", "-q"), id})
	}
	return list
}

// pushUntil pushes the growing history.
func pushUntil(ctx context.Context, t *testing.T, repo *engine.Repository, told *ledger, packs []push) {
	t.Helper()
	var tip object.ID
	for _, p := range packs {
		if ctx.Err() != nil {
			return
		}
		background := context.Background()
		pushed, err := repo.Receive(background, acme, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/pushed", Old: tip, New: p.tip}},
			Pack:     bytes.NewReader(p.pack),
		})
		if err != nil {
			t.Error(err)
			return
		}
		result, err := pushed.Finish(background, func(string) {})
		if err == nil {
			err = errors.Join(result.Unpack, result.Commands[0].Err)
		}
		pushed.Close()
		if err != nil {
			t.Error(err)
			return
		}
		tip = p.tip
		told.note("pushed", tip)
	}
}

// afterwards checks a host that was opened after a crash against the acknowledged writes.
func afterwards(t *testing.T, host *engine.Host, acknowledged map[string]object.ID) {
	t.Helper()
	ctx := context.Background()
	for checked, err := range host.Fsck(ctx, engine.FsckOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if checked.Damaged() {
			t.Errorf("damage: %v, %v", checked.Problem, checked.Objects)
		}
	}
	repo, err := host.Repository(ctx, enginetest.Org, "r")
	if err != nil {
		t.Fatal(err)
	}
	page, err := repo.Branches(ctx, refs.Main, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	tips := map[string]object.ID{}
	for _, branch := range page.Items {
		tips[branch.Name] = branch.Tip
	}
	view, err := repo.Objects(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	for branch, tip := range acknowledged {
		kept, err := revwalk.IsAncestor(ctx, view, tip, tips[branch])
		if err != nil || !kept {
			t.Errorf("%s was acknowledged at %s and is at %s: %v", branch, tip, tips[branch], err)
		}
	}
	if _, err := upload(repo, acme, main, change{path: "after", content: "the store takes writes again"}); err != nil {
		t.Error(err)
	}
}
