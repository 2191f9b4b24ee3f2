package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/kv/trips"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestCombinedWrites has writes of many kinds wait for one repository: they become one batch, each
// on top of those before it, and whoever is refused hears of the state that the others have left.
func TestCombinedWrites(t *testing.T) {
	t.Parallel()
	host := enginetest.OpenBehind(t, engine.Config{Objects: odb.Options{RemoteKeys: true}},
		func(keys kv.Store) kv.Store { return trips.Over(keys, 0) })
	repo := enginetest.Create(t, host, "r")
	seed, err := upload(repo, acme, main, change{path: "a/b/file", content: strings.Repeat("a line\n", 100)})
	must(t, err)
	git := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 1, CommitCount: 8}).Repository
	pushed := parseID(t, git.Git("rev-parse", "b7"))
	pack := git.Input([]byte("b7\n"), "pack-objects", "--quiet", "--revs", "--stdout")

	ctx, log := trips.Record(t.Context())
	var running sync.WaitGroup
	waiting := 0
	start := func(do func() error) *error {
		t.Helper()
		err, ended := new(error), make(chan struct{})
		running.Go(func() {
			defer close(ended)
			*err = do()
		})
		for waiting++; repo.WaitingWrites() < waiting; {
			select {
			case <-ended:
				t.Errorf("write %d did not wait: %v", waiting, *err)
				waiting--
				return err
			default:
				runtime.Gosched()
			}
		}
		return err
	}
	release := make(chan struct{})
	holding := acme
	holding.Recheck = func() error { <-release; return nil } // it has the turn
	holder := start(func() error {
		_, err := upload(repo, holding, main, change{path: "holder", content: "h"})
		return err
	})
	const commits = 6
	var results [commits]engine.CommitResult
	for i := range commits {
		start(func() (err error) {
			results[i], err = uploadWhile(ctx, repo, acme, main,
				change{path: "a/b/file", content: strings.Repeat("a line\n", 100) + fmt.Sprint(i)}, change{path: fmt.Sprint("a/", i), content: "same"})
			return err
		})
	}
	expected := main
	expected.Expected = &seed.New
	stale := start(func() error {
		_, err := uploadWhile(ctx, repo, acme, expected, change{path: "stale", content: "stale"})
		return err
	})
	keyed := acme
	keyed.Receipt = newTripReceipt("twice")
	keyed.Receipt.Key.Repo = "r"
	var twice [2]engine.CommitResult
	for i := range twice {
		start(func() (err error) {
			twice[i], err = uploadWhile(ctx, repo, keyed, main, change{path: "twice", content: "twice"})
			return err
		})
	}
	branch := start(func() error {
		_, err := uploadWhile(ctx, repo, acme, engine.CommitTarget{Branch: "made", Base: "main"}, change{path: "made", content: "m"})
		return err
	})
	note := start(func() error {
		_, err := repo.AddNote(ctx, acme, engine.NoteTarget{
			Ref: "refs/notes/commits", Object: engine.CommitName{Text: seed.New.String()},
		}, "a note", false)
		return err
	})
	push := start(func() error {
		p, err := repo.Receive(ctx, acme, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/pushed", New: pushed}},
			Pack:     bytes.NewReader(pack),
		})
		if err != nil {
			return err
		}
		defer p.Close()
		done, err := p.Finish(ctx, nil)
		if err == nil {
			err = errors.Join(done.Unpack, done.Commands[0].Err)
		}
		return err
	})
	later := acme // the branch is not there yet; with a key, the transaction says so
	later.Receipt = newTripReceipt("on-the-push")
	later.Receipt.Key.Repo = "r"
	last := start(func() error {
		_, err := uploadWhile(ctx, repo, later, engine.CommitTarget{Branch: "pushed"}, change{path: "on-top", content: "t"})
		return err
	})
	close(release)
	running.Wait()

	for name, err := range map[string]*error{
		"holder": holder, "branch": branch, "note": note, "push": push, "on the push": last,
	} {
		if *err != nil {
			t.Errorf("%s: %v", name, *err)
		}
	}
	before := results[0].Old
	for i, result := range results {
		if result.Old != before || result.Sequence != results[0].Sequence+uint64(i) {
			t.Errorf("commit %d: %+v", i, result)
		}
		before = result.New
	}
	var staleErr *engine.StaleError
	if !errors.As(*stale, &staleErr) || staleErr.Actual != before {
		t.Errorf("stale: %v", *stale)
	}
	if twice[0] != twice[1] || twice[0].New.IsZero() {
		t.Errorf("equal requests made %+v and %+v", twice[0], twice[1])
	}
	if applied := strings.Count(log.String(), "apply"); applied != 1 {
		t.Errorf("%d batches:\n%.3000s", applied, log)
	}
	for path, content := range map[string]string{
		"holder": "h", "twice": "twice", "a/5": "same", "a/b/file": strings.Repeat("a line\n", 100) + fmt.Sprint(commits-1),
	} {
		f, err := repo.File(t.Context(), engine.FileRequest{Ref: "main", Path: path})
		must(t, err)
		var got strings.Builder
		o, err := f.Content(t.Context())
		must(t, err)
		_, err = o.WriteTo(&got)
		must(t, errors.Join(err, o.Close(), f.Close()))
		if got.String() != content {
			t.Errorf("%s holds %.50q", path, got.String())
		}
	}
	sound(t, host)
}

// TestStormOfCombinedWrites lets writers of two hosts share branches over stores that combine, and
// some of them give up: batches are lost to the other host all the time, and nothing of them stays.
func TestStormOfCombinedWrites(t *testing.T) {
	t.Parallel()
	writers, commits := 12, 12
	if testing.Short() {
		writers, commits = 8, 6
	}
	remote := engine.Config{Objects: odb.Options{RemoteKeys: true}}
	s := newStorm(t, remote, remote)
	var mu sync.Mutex
	told := map[uint64]object.ID{s.seed.Sequence: s.seed.New} // guarded by mu
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for c := range commits {
				ctx, cancel := context.WithCancel(t.Context())
				actor := acme
				if (w+c)%5 == 0 {
					actor.Recheck = func() error { cancel(); return nil }
				}
				// Equal contents at equal paths: writers find each other's objects.
				result, err := uploadWhile(ctx, s.repo(w), actor, main,
					change{path: fmt.Sprintf("a/b/f%d", c%3), content: strings.Repeat(fmt.Sprintln(c), 50)},
					change{path: fmt.Sprintf("w%d", w), content: fmt.Sprint(c)})
				cancel()
				switch {
				case err == nil:
					mu.Lock()
					told[result.Sequence] = result.New
					mu.Unlock()
				case errors.Is(err, refs.ErrBusy), errors.Is(err, context.Canceled):
				default:
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	group.Wait()
	for _, entry := range s.entries(t) {
		if made, ok := told[entry.Sequence]; ok && made != entry.After {
			t.Errorf("%d: the journal has %s, the writer was told %s", entry.Sequence, entry.After, made)
		}
		delete(told, entry.Sequence)
	}
	if delete(told, s.seed.Sequence); len(told) > 0 {
		t.Errorf("%d commits were told and are not in the journal", len(told))
	}
	sound(t, s.repos[0].OfHost())
}
