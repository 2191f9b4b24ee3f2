package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/maintain"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
	"packhorse/refs"
)

// none is a maintenance that leaves nothing for later.
var none = engine.MaintainOptions{Grace: -1, ReaderGrace: -1}

// keep maintains everything, and fails the test if that fails. It returns the report of the last
// repository.
func keep(t *testing.T, host *engine.Host, options engine.MaintainOptions) (last engine.Maintained) {
	t.Helper()
	for done, err := range host.Maintain(t.Context(), options) {
		if err = errors.Join(err, done.Err); err != nil {
			t.Fatal(err)
		}
		last = done
	}
	return last
}

// packOf returns a pack of everything that the branches of a repository reach, as a clone gets it.
func packOf(ctx context.Context, repo *engine.Repository) ([]byte, []object.ID, error) {
	page, err := repo.Branches(ctx, refs.Main, "", 1000)
	if err != nil {
		return nil, nil, err
	}
	var tips []object.ID
	for _, branch := range page.Items {
		tips = append(tips, branch.Tip)
	}
	view, err := repo.Objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer view.Close()
	plan, err := packgen.Plan(ctx, view, packgen.Request{Wants: tips, OFSDelta: true}, nil)
	if err != nil {
		return nil, tips, err
	}
	defer plan.Close()
	var pack bytes.Buffer
	_, err = plan.WriteTo(ctx, &pack, nil)
	return pack.Bytes(), tips, err
}

// fsckWithGit clones into an empty repository of git and lets git check everything.
func fsckWithGit(t *testing.T, repo *engine.Repository) *oracle.Repository {
	t.Helper()
	pack, tips, err := packOf(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	git := oracle.New(t)
	git.Input(pack, "index-pack", "--strict", "--stdin", "--fix-thin")
	for i, tip := range tips {
		git.Git("update-ref", fmt.Sprintf("refs/heads/b%d", i), tip.String())
	}
	git.Git("fsck", "--full", "--strict")
	return git
}

func fsckClean(t *testing.T, host *engine.Host) {
	t.Helper()
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if checked.Damaged() {
			t.Errorf("damage: %v, %v", checked.Problem, checked.Objects)
		}
	}
}

// TestMaintainStories runs histories of writes through maintenance, and compares every object with
// its content before.
func TestMaintainStories(t *testing.T) {
	t.Parallel()
	packs := pushes(t)
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
		t.Fatal(err)
	}
	told := &ledger{tips: map[string]object.ID{}}
	pushUntil(t.Context(), t, repo, told, packs)
	random := rand.New(rand.NewPCG(7, 7))
	for i := range 60 {
		content := strings.Repeat(fmt.Sprintln(i, random.Uint64()), 1+i%40)
		if _, err := upload(repo, acme, main, change{path: fmt.Sprintf("d%d/f%d", i%3, i%11), content: content}); err != nil {
			t.Fatal(err)
		}
		if i%20 == 19 {
			keep(t, host, engine.MaintainOptions{})
		}
	}
	before := strings.Split(fsckWithGit(t, repo).Git("cat-file", "--batch-all-objects", "--batch-check"), "\n")
	done := keep(t, host, engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1})
	if done.Compacted.ObjectCount == 0 {
		t.Errorf("nothing was rewritten: %+v", done)
	}
	fsckClean(t, host)
	after := strings.Split(fsckWithGit(t, repo).Git("cat-file", "--batch-all-objects", "--batch-check"), "\n")
	if !slices.Equal(before, after) {
		t.Errorf("%d objects before, %d after", len(before), len(after))
	}
}

func TestMaintainPrunesWhatIsDeleted(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Now: func() time.Time { return now }})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	if _, err := upload(repo, acme, main, change{path: "stays", content: "stays"}); err != nil {
		t.Fatal(err)
	}
	gone, err := upload(repo, acme, engine.CommitTarget{Branch: "topic", Base: "main"},
		change{path: "goes", content: "goes"})
	if err != nil {
		t.Fatal(err)
	}
	deleteBranch(t, repo, "topic", gone.New)
	has := func() bool {
		t.Helper()
		view, err := repo.Objects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		there, err := view.Has(t.Context(), gone.New)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	if keep(t, host, engine.MaintainOptions{}); !has() {
		t.Fatal("an object went before its grace was over")
	}
	now = now.Add(15 * 24 * time.Hour)
	if done := keep(t, host, engine.MaintainOptions{}); has() || done.PrunedCount != 3 {
		t.Errorf("after the grace: %+v, still there: %v", done, has())
	}
	fsckClean(t, host)
	fsckWithGit(t, repo)
	again, err := upload(repo, acme, engine.CommitTarget{Branch: "topic", Base: "main"},
		change{path: "goes", content: "goes"})
	if err != nil {
		t.Fatalf("the same commit again: %v, %v", again, err)
	}
	fsckClean(t, host)
}

func deleteBranch(t *testing.T, repo *engine.Repository, branch string, at object.ID) {
	t.Helper()
	pushed, err := repo.Receive(t.Context(), acme,
		engine.PushRequest{Commands: []engine.Command{{Name: "refs/heads/" + branch, Old: at}}})
	if err != nil {
		t.Fatal(err)
	}
	defer pushed.Close()
	result, err := pushed.Finish(t.Context(), func(string) {})
	if err == nil {
		err = result.Commands[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMaintainAmongWriters has writers and readers in loops beside maintenance in a loop that waits
// for nothing.
func TestMaintainAmongWriters(t *testing.T) {
	t.Parallel()
	packs := pushes(t)
	config := engine.Config{}
	config.Objects.Limits.HotCount = 30 // some pushes are segments
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), config)
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
		t.Fatal(err)
	}
	told := &ledger{tips: map[string]object.ID{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers, others sync.WaitGroup
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for w := range 2 {
		writers.Go(func() { commitTimes(t, repo, told, fmt.Sprintf("api%d", w), rounds) })
	}
	writers.Go(func() { pushUntil(ctx, t, repo, told, packs) })
	writers.Go(func() { pushAndDelete(t, repo, packs, rounds/10) })
	others.Go(func() { maintainUntil(ctx, t, host) })
	others.Go(func() { cloneUntil(ctx, t, repo) })
	writers.Wait()
	stop()
	others.Wait()
	afterwards(t, host, told.copy())
	keep(t, host, none)
	fsckClean(t, host)
	fsckWithGit(t, repo)
}

func commitTimes(t *testing.T, repo *engine.Repository, told *ledger, branch string, rounds int) {
	t.Helper()
	for i := range rounds {
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

// pushAndDelete pushes the same history again and again: its objects are new, or there and reached
// by nothing, or about to go.
func pushAndDelete(t *testing.T, repo *engine.Repository, packs []push, rounds int) {
	t.Helper()
	for range rounds {
		p := packs[0]
		pushed, err := repo.Receive(t.Context(), acme, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/comes-and-goes", New: p.tip}}, Pack: bytes.NewReader(p.pack),
		})
		if err != nil {
			t.Error(err)
			return
		}
		result, err := pushed.Finish(t.Context(), func(string) {})
		if err == nil {
			err = errors.Join(result.Unpack, result.Commands[0].Err)
		}
		pushed.Close()
		if err != nil {
			t.Error(err)
			return
		}
		deleteBranch(t, repo, "comes-and-goes", p.tip)
	}
}

func maintainUntil(ctx context.Context, t *testing.T, host *engine.Host) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		options := none
		options.All = n%3 == 2
		for done, err := range host.Maintain(ctx, options) {
			if err = errors.Join(err, done.Err); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}
}

func cloneUntil(ctx context.Context, t *testing.T, repo *engine.Repository) {
	t.Helper()
	for ctx.Err() == nil {
		pack, _, err := packOf(context.WithoutCancel(ctx), repo)
		if errors.Is(err, engine.ErrNotFound) || errors.Is(err, odb.ErrNotFound) {
			continue // a branch that came and went between the listing and the view
		}
		if err == nil {
			_, err = io.Copy(io.Discard, bytes.NewReader(pack))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// TestMaintainInTheBackground waits for what writes set off.
func TestMaintainInTheBackground(t *testing.T) {
	t.Parallel()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{
		Background: true, Maintenance: maintain.Settings{
			HotCount: 20, Pause: 0.01, SweepInterval: time.Millisecond, ReaderGrace: -1,
		},
	})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	for i := 0; host.MaintenanceStats().Compactions < 2; i++ {
		if _, err := upload(repo, acme, main, change{path: fmt.Sprint(i % 10), content: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if stats := host.MaintenanceStats(); stats.ObjectCount == 0 || stats.Failures > 0 {
		t.Errorf("%+v", stats)
	}
	fsckClean(t, host)
	fsckWithGit(t, repo)
}

// TestPowerLossInMaintenance cuts the power between two operations of the file system.
func TestPowerLossInMaintenance(t *testing.T) {
	t.Parallel()
	packs := pushes(t)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 3))
			disk := vfs.NewCrashableMem()
			power := &powerCut{disk: disk, random: random}
			host, shut := enginetest.OpenOn(t, power.wrap(), engine.Config{})
			repo := enginetest.Create(t, host, "r")
			if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
				t.Fatal(err)
			}
			told := &ledger{tips: map[string]object.ID{}}
			pushUntil(t.Context(), t, repo, told, packs[:2])
			for range 2 {
				commitTimes(t, repo, told, "api", 5)
				keep(t, host, none)
			}
			commitTimes(t, repo, told, "api", 10)
			pushAndDelete(t, repo, packs, 1)
			power.arm(random.IntN(120))
			for range 3 {
				keep(t, host, none)
				keep(t, host, engine.MaintainOptions{All: true, Grace: -1, ReaderGrace: -1})
			}
			shut()
			host, shut = enginetest.OpenOn(t, power.rest(), engine.Config{})
			defer shut()
			afterwards(t, host, told.copy())
			keep(t, host, none)
			fsckClean(t, host)
		})
	}
}
