package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

func atSequence(n uint64) engine.Moment { return engine.Moment{BySequence: true, Sequence: n} }

// TestReadOnlyMoments tries every write on a repository at a moment.
func TestReadOnlyMoments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	git := oracle.New(t)
	tip, err := object.ParseID(git.Seed(oracle.History{Seed: 1, Commits: 3}))
	if err != nil {
		t.Fatal(err)
	}
	pack := git.Input([]byte("main\n"), "pack-objects", "--revs", "--stdout", "-q")
	push := engine.Command{Name: "refs/heads/main", New: tip}
	enginetest.Push(t, repo, pack, push)
	then, err := repo.At(ctx, atSequence(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := then.At(ctx, atSequence(1)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a moment of a moment: %v", err)
	}
	actor := engine.Actor{Org: enginetest.Org, Subject: "tester"}
	someone := commit.Person{Name: "A", Email: "a@example.com"}
	details := engine.CommitDetails{Message: "m", Author: someone}
	target := engine.CommitTarget{Branch: "main"}
	for name, write := range map[string]func() error{
		"branch": func() error {
			_, err := then.CreateBranch(ctx, actor, engine.CreateBranchRequest{Branch: "x", Base: engine.CommitName{Text: "main"}})
			return err
		},
		"delete branch": func() error { _, err := then.DeleteBranch(ctx, actor, refs.Main, "main"); return err },
		"tag": func() error {
			_, err := then.CreateTag(ctx, actor, refs.Main, "x", engine.CommitName{Text: "main"})
			return err
		},
		"delete tag": func() error { _, err := then.DeleteTag(ctx, actor, refs.Main, "x"); return err },
		"note": func() error {
			_, err := then.AddNote(ctx, actor,
				engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: engine.CommitName{Text: "main"}}, "n", false)
			return err
		},
		"upload": func() error {
			_, err := then.NewUpload(ctx, actor, engine.UploadRequest{
				Target: target, Details: details, Operations: []engine.FileOperation{{Path: "x", Delete: true}},
			})
			return err
		},
		"patch": func() error {
			_, err := then.NewPatchUpload(ctx, actor, engine.PatchRequest{Target: target, Details: details})
			return err
		},
		"restore": func() error {
			_, err := then.RestoreCommit(ctx, actor,
				engine.RestoreRequest{Target: target, Details: details, Commit: engine.CommitName{Text: "main~1"}})
			return err
		},
		"merge": func() error {
			_, err := then.Merge(ctx, actor, engine.MergeRequest{
				Source: engine.CommitName{Text: "main~1"}, Target: engine.MergeBranch{Name: "main"},
				Strategy: engine.AlwaysMerge, Details: details,
			})
			return err
		},
		"push": func() error {
			_, err := then.Receive(ctx, actor, engine.PushRequest{
				Commands: []engine.Command{{Name: "refs/heads/x", New: tip}}, Pack: strings.NewReader(string(pack)),
			})
			return err
		},
		"settings": func() error {
			_, err := then.ChangeSettings(ctx, actor, engine.Settings{Name: "other"})
			return err
		},
		"detach": func() error { _, err := then.Detach(ctx, actor); return err },
		"pull":   func() error { _, err := then.PullUpstream(ctx, actor, ""); return err },
	} {
		if err := write(); !errors.Is(err, engine.ErrReadOnly) {
			t.Errorf("%s: %v, want that it is read-only", name, err)
		}
	}
	if now, err := repo.Sequence(ctx); err != nil || now != 2 {
		t.Errorf("the journal is at %d, %v", now, err)
	}
}

// TestMomentsAmongMaintenance reads a moment whose objects go away, while a maintenance removes
// them: a read is whole, or refused.
func TestMomentsAmongMaintenance(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	git := oracle.New(t)
	for i := range 6 {
		tip, err := object.ParseID(git.Seed(oracle.History{Seed: uint64(i) + 1, Commits: 5}))
		if err != nil {
			t.Fatal(err)
		}
		before, err := repo.Branch(ctx, refs.Main, "main")
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Fatal(err)
		}
		enginetest.Push(t, repo, git.Input([]byte("main\n"), "pack-objects", "--revs", "--stdout", "-q"),
			engine.Command{Name: "refs/heads/main", Old: before.Tip, New: tip})
		git.Git("update-ref", "-d", "refs/heads/main")
	}
	read := func(sequence uint64) error {
		then, err := repo.At(ctx, atSequence(sequence))
		if err != nil {
			return err
		}
		files, err := then.Files(ctx, engine.FilesRequest{})
		if err != nil {
			return err
		}
		defer files.Close()
		for _, err := range files.All(ctx) {
			if err != nil {
				return fmt.Errorf("the listing was open: %w", err)
			}
		}
		return nil
	}
	for sequence := uint64(2); sequence < 8; sequence++ {
		if err := read(sequence); err != nil {
			t.Fatal(sequence, err)
		}
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for sequence := uint64(2); sequence < 7; sequence++ {
		readers.Go(func() {
			for open := true; open; {
				select {
				case <-done: // once more
					open = false
				default:
				}
				if err := read(sequence); err != nil && (!errors.Is(err, engine.ErrPast) ||
					strings.Contains(err.Error(), "was open")) {
					t.Error(sequence, err)
					return
				}
			}
		})
	}
	keep(t, host, none)
	close(done)
	readers.Wait()
	for sequence := uint64(2); sequence < 7; sequence++ {
		past, ok := errors.AsType[*engine.PastError](read(sequence))
		if !ok || past.Oldest != 7 && past.Oldest != 8 {
			t.Error(sequence, past)
		}
	}
	if now, err := repo.Sequence(ctx); err != nil || read(now) != nil {
		t.Error(now, err, read(now))
	}
}

// TestKeepHistory holds organizations to the time for which their repositories are kept as they
// were: their own, or that of the host, which a maintenance with a shorter grace shortens.
func TestKeepHistory(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	var tips []object.ID // 30 roots, with their packs
	var packs [][]byte
	git := oracle.New(t)
	tree := git.Write("tree", nil)
	for i := range 30 {
		tip, err := object.ParseID(git.Git("commit-tree", "-m", fmt.Sprint(i), tree))
		if err != nil {
			t.Fatal(err)
		}
		pack := git.Input([]byte(tip.String()+"\n"), "pack-objects", "--revs", "--stdout", "-q")
		tips, packs = append(tips, tip), append(packs, pack)
	}
	for name, test := range map[string]struct {
		host, own time.Duration // 0: the default; none
		grace     time.Duration // of the maintenance
		days      int           // that can be read
	}{
		"default":            {days: 14},
		"of the host":        {host: 5 * day, days: 5},
		"longer":             {host: 20 * day, days: 20},
		"own":                {own: 3 * day, days: 3},
		"own, longer":        {own: 25 * day, days: 25},
		"shortened":          {grace: 2 * day, days: 2},
		"own, not shortened": {own: 9 * day, grace: 2 * day, days: 9},
		"none":               {host: -1, days: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, now := t.Context(), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			config := engine.Config{Now: func() time.Time { return now }}
			config.Maintenance.KeepHistory = test.host
			config.KeepHistory = func(org string) (time.Duration, bool) {
				return test.own, org == enginetest.Org && test.own > 0
			}
			host, _ := enginetest.OpenOn(t, vfs.NewMem(), config)
			repo := enginetest.Create(t, host, "r")
			var before object.ID
			for i, tip := range tips { // each day another one, from seq:2 on
				now = now.Add(day)
				enginetest.Push(t, repo, packs[i], engine.Command{Name: "refs/heads/main", Old: before, New: tip})
				before = tip
			}
			keep(t, host, engine.MaintainOptions{Grace: test.grace, ReaderGrace: -1})
			oldest := uint64(31 - test.days)
			for sequence := uint64(1); sequence <= 31; sequence++ {
				then, err := repo.At(ctx, atSequence(sequence))
				switch {
				case sequence < oldest:
					if past, ok := errors.AsType[*engine.PastError](err); !ok || past.Oldest != oldest ||
						!past.Since.Equal(now.Add(-time.Duration(test.days)*day)) {
						t.Errorf("seq:%d: %v", sequence, err)
					}
				case err != nil:
					t.Errorf("seq:%d: %v", sequence, err)
				default:
					if _, err := then.Commit(ctx, engine.CommitName{Text: "main"}); err != nil {
						t.Errorf("seq:%d: %v", sequence, err)
					}
				}
			}
		})
	}
}
