package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// commitStep is an operation that writes a file to a branch.
func commitStep(part int, branch, path, contentID string) engine.Step {
	return engine.Step{Part: part, Operation: &engine.CommitOperation{UploadRequest: engine.UploadRequest{
		Target:     engine.CommitTarget{Branch: branch, Base: "main"},
		Details:    engine.CommitDetails{Message: "m", Author: thor},
		Operations: []engine.FileOperation{{Path: path, ContentID: contentID}},
	}}}
}

func mergeStep(part int, source, target string) engine.Step {
	return engine.Step{Part: part, Operation: &engine.MergeOperation{MergeRequest: engine.MergeRequest{
		Source: engine.CommitName{Text: source, Kind: engine.BranchName}, Target: engine.MergeBranch{Name: target},
		Strategy: engine.AlwaysMerge, Details: engine.CommitDetails{Message: "m", Author: thor},
	}}}
}

// transact runs a transaction with contents by their IDs.
func transact(
	ctx context.Context, host *engine.Host, parts []engine.Part, steps []engine.Step, contents map[string][]byte,
) (engine.TransactionResult, error) {
	work, err := host.NewTransaction(ctx, parts, steps)
	if err != nil {
		return engine.TransactionResult{}, err
	}
	defer work.Close()
	for id, content := range contents {
		if err := work.Chunk(ctx, id, content, true); err != nil {
			return engine.TransactionResult{}, err
		}
	}
	return work.Finish(ctx)
}

// tipsOf returns where a branch is in each repository, zero where it is not.
func tipsOf(t *testing.T, host *engine.Host, branch string, names ...string) []object.ID {
	t.Helper()
	var tips []object.ID
	for _, name := range names {
		repo, err := host.Repository(t.Context(), enginetest.Org, name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := repo.Branch(t.Context(), refs.Main, branch)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Fatal(err)
		}
		tips = append(tips, found.Tip)
	}
	return tips
}

// TestTransactionPowerLoss cuts the power at file operations of a transaction over three
// repositories, whose objects go to the log or into files: afterwards it has happened in all of
// them, or in none, and it has if it was acknowledged. What had not been synced stays, or some of
// it does. With PACKHORSE_TRANSACTION_ROUNDS it does so at every operation, with as many random
// remains.
func TestTransactionPowerLoss(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it crashes the file system of the stores")
	for step, hotCount := range map[int]int{1: 0, 3: 1} { // 0 is the default: no files
		rounds := 1
		if n, err := strconv.Atoi(os.Getenv("PACKHORSE_TRANSACTION_ROUNDS")); err == nil {
			step, rounds = 1, n
		}
		cuts, happened := 0, 0
		for at, over := 1, false; !over && !t.Failed(); at += step {
			for round := range rounds + 1 {
				random := rand.New(rand.NewPCG(uint64(at), uint64(round*2+hotCount)))
				acknowledged, there := cutTransaction(t, hotCount, at, &powerCut{
					disk: vfs.NewCrashableMem(), random: random, lucky: round == 0,
				})
				over = over || acknowledged
				if there && !acknowledged {
					happened++
				}
				cuts++
			}
		}
		t.Logf("hot count %d: %d cuts, %d after it had happened", hotCount, cuts, happened)
		if cuts < 3 || step == 1 && happened == 0 {
			t.Errorf("hot count %d: only %d cuts, %d after it had happened", hotCount, cuts, happened)
		}
	}
}

// cutTransaction cuts the power at a file operation of a transaction over three repositories, and
// looks at them afterwards. It reports whether the transaction was acknowledged before, and whether
// it has happened.
func cutTransaction(t *testing.T, hotCount, at int, disk *powerCut) (acknowledged, happened bool) {
	t.Helper()
	names := []string{"a", "b", "c"}
	config := engine.Config{}
	config.Objects.Limits.HotCount = hotCount
	host, shut := enginetest.OpenOn(t, disk.wrap(), config)
	var parts []engine.Part
	var steps []engine.Step
	contents := make(map[string][]byte)
	for i, name := range names {
		repo := enginetest.Create(t, host, name)
		if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, engine.Part{Repo: repo, Actor: acme})
		steps = append(steps, commitStep(i, "x", "file", name), commitStep(i, "x", "other", name+"2"))
		contents[name], contents[name+"2"] = []byte(name), []byte("more")
	}
	disk.arm(at)
	result, err := transact(t.Context(), host, parts, steps, contents)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged = disk.isOn()
	rest := disk.rest()
	shut()
	host, shut = enginetest.OpenOn(t, rest, config)
	defer shut()
	there := 0
	for i, tip := range tipsOf(t, host, "x", names...) {
		if tip.IsZero() {
			continue
		}
		there++
		if want := result.Outcomes[2*i+1].Commit.New; tip != want {
			t.Errorf("cut at %d: %s is at %s, not at %s", at, names[i], tip, want)
		}
	}
	if there != 0 && there != len(names) || acknowledged && there == 0 {
		t.Errorf("cut at %d: it has happened in %d repositories, acknowledged %t", at, there, acknowledged)
	}
	for _, name := range names {
		repo, err := host.Repository(t.Context(), enginetest.Org, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upload(repo, acme, engine.CommitTarget{Branch: "y", Base: "main"}, change{path: "later"}); err != nil {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
	return acknowledged, there > 0
}

// Merges of a transaction are made again when their target moves, and writers meet no part of it.
func TestTransactionAmongWriters(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	names := []string{"a", "b"}
	var parts []engine.Part
	for _, name := range names {
		repo := enginetest.Create(t, host, name)
		if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, engine.Part{Repo: repo, Actor: acme})
	}
	const rounds = 12
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for i, part := range parts {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path := change{path: fmt.Sprint("writer", i), content: fmt.Sprint(n)}
				if _, err := upload(part.Repo, acme, main, path); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range rounds {
		branch := fmt.Sprint("topic", round)
		contents := map[string][]byte{"a": fmt.Append(nil, "a", round), "b": fmt.Append(nil, "b", round)}
		result, err := transact(t.Context(), host, parts[round%2:], []engine.Step{
			commitStep(0, branch, fmt.Sprint("file", round), "a"), mergeStep(0, branch, "main"),
			commitStep(len(parts[round%2:])-1, branch, fmt.Sprint("more", round), "b"),
			mergeStep(len(parts[round%2:])-1, branch, "main"),
		}, contents)
		if err != nil {
			t.Errorf("round %d: %v", round, err)
			break
		}
		for _, i := range []int{1, 3} {
			if kind := result.Outcomes[i].Merge.Kind; kind != engine.MergeCommitted {
				t.Errorf("round %d: %s", round, kind)
			}
		}
	}
	close(stop)
	writers.Wait()
	for i, part := range parts {
		for round := range rounds {
			for _, path := range []string{fmt.Sprint("file", round), fmt.Sprint("more", round)} {
				if round%2 == 0 && (i == 0) != (path[0] == 'f') || round%2 == 1 && i == 0 {
					continue
				}
				file, err := part.Repo.File(t.Context(), engine.FileRequest{Ref: "main", Path: path})
				if err != nil {
					t.Errorf("%s in %s: %v", path, names[i], err)
					continue
				}
				if err := file.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
