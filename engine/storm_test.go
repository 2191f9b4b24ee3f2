package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// storm is a repository of several hosts that work over one pair of stores, and its journal.
type storm struct {
	repos   []*engine.Repository // the same repository, as each host has opened it
	journal *refs.Store
	seed    engine.CommitResult
}

// newStorm opens a host for each configuration over one pair of stores, and makes a repository with
// a commit on main.
func newStorm(t *testing.T, hosts ...engine.Config) *storm {
	t.Helper()
	keys, repos := openHosts(t, hosts...)
	s := &storm{journal: refs.Open(keys, refs.Options{}), repos: repos}
	var err error
	if s.seed, err = upload(s.repos[0], acme, main, change{path: "seed"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// beside makes another repository on the hosts, with a commit on main.
func (s *storm) beside(t *testing.T, name string) *storm {
	t.Helper()
	other := &storm{journal: s.journal}
	enginetest.Create(t, s.repos[0].OfHost(), name)
	for _, repo := range s.repos {
		found, err := repo.OfHost().Repository(t.Context(), enginetest.Org, name)
		must(t, err)
		other.repos = append(other.repos, found)
	}
	var err error
	other.seed, err = upload(other.repos[0], acme, main, change{path: "seed of " + name})
	must(t, err)
	return other
}

// openHosts opens hosts over one pair of stores, and on each a repository that the first one makes.
// Each has connections and local files of its own where stores are shared by servers.
func openHosts(t *testing.T, configs ...engine.Config) (keys kv.Store, repos []*engine.Repository) {
	t.Helper()
	fs := vfs.NewMem()
	keys, files, shut := odbtest.OpenStores(t, fs)
	t.Cleanup(shut)
	for i, config := range configs {
		if i > 0 && odbtest.Shared() {
			keys, files, shut = odbtest.OpenStores(t, odbtest.Beside(t, fs))
			t.Cleanup(shut)
		}
		host := enginetest.OpenOver(t, keys, files, config)
		t.Cleanup(func() { must(t, host.Close(context.Background())) })
		if i == 0 {
			enginetest.Create(t, host, "r")
		}
		repo, err := host.Repository(t.Context(), enginetest.Org, "r")
		must(t, err)
		repos = append(repos, repo)
	}
	return keys, repos
}

// repo is the repository for the client of a number.
func (s *storm) repo(client int) *engine.Repository { return s.repos[client%len(s.repos)] }

// entries are the journal's after the seed, each on top of the previous one.
func (s *storm) entries(t *testing.T) []refs.Entry {
	t.Helper()
	var all []refs.Entry
	now := map[string]object.ID{"refs/heads/main": s.seed.New}
	for after, more := s.seed.Sequence, true; more; {
		page, err := s.journal.Events(t.Context(), s.repos[0].Item().ID, after, refs.EventsMax)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			if now[entry.Ref] != entry.Before {
				t.Errorf("%d: %s was at %s, and the journal says %s: an update is lost", entry.Sequence, entry.Ref, now[entry.Ref],
					entry.Before)
			}
			now[entry.Ref] = entry.After
		}
		all = append(all, page.Entries...)
		after, more = page.Next, page.More
	}
	return all
}

// TestStormOfGuards lets writers race for one branch, each with the tip that it knows for an
// expectation: the winners form one chain and everyone else hears of it.
func TestStormOfGuards(t *testing.T) {
	t.Parallel()
	writers, commits := 64, 200
	if testing.Short() {
		writers, commits = 12, 10
	}
	s := newStorm(t, engine.Config{}, engine.Config{})
	var mu sync.Mutex
	won := map[object.ID]engine.CommitResult{} // guarded by mu: by the tip that the winner built on
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			tip := s.seed.New
			for c := range commits {
				target := engine.CommitTarget{Branch: "main", Expected: &tip}
				result, err := engine.CommitResult{}, refs.ErrBusy
				for errors.Is(err, refs.ErrBusy) { // the other host was first too often, which changes nothing
					result, err = upload(s.repo(w), acme, target, change{path: fmt.Sprint(w), content: fmt.Sprint(c)})
				}
				var stale *engine.StaleError
				switch {
				case errors.As(err, &stale):
					if stale.Actual == tip {
						t.Errorf("writer %d was refused for the tip that it expected", w)
					}
					tip = stale.Actual
				case err != nil:
					t.Error(err)
				default:
					mu.Lock()
					if twin, ok := won[tip]; ok {
						t.Errorf("both %s and %s were built on %s", twin.New, result.New, tip)
					}
					won[tip] = result
					mu.Unlock()
					tip = result.New
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d of %d won", len(won), writers*commits)
	if len(won) < commits {
		t.Errorf("%d won: the last writer to be alone would win each time", len(won))
	}
	entries := s.entries(t)
	if len(entries) != len(won) {
		t.Fatalf("the journal holds %d commits, %d writers won", len(entries), len(won))
	}
	for _, entry := range entries {
		if winner := won[entry.Before]; winner.New != entry.After || winner.Sequence != entry.Sequence ||
			winner.Old != entry.Before {
			t.Errorf("%d: the journal has %s on %s, the writer was told %+v", entry.Sequence, entry.After, entry.Before, winner)
		}
	}
}

// TestStormWithoutGuards lets writers of disjoint files share one branch without an expectation:
// none fails, nothing is lost.
func TestStormWithoutGuards(t *testing.T) {
	t.Parallel()
	writers, commits := 50, 20
	if testing.Short() {
		writers, commits = 10, 8
	}
	s := newStorm(t, engine.Config{})
	var mu sync.Mutex
	told := map[uint64]engine.CommitResult{} // guarded by mu
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for c := range commits {
				result, err := upload(s.repo(w), acme, main, change{path: fmt.Sprintf("w%d/f%d", w, c), content: fmt.Sprint(c)})
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				told[result.Sequence] = result
				mu.Unlock()
			}
		})
	}
	group.Wait()
	entries := s.entries(t)
	if len(entries) != writers*commits || len(told) != len(entries) {
		t.Errorf("the journal holds %d commits, %d were told, %d were made", len(entries), len(told), writers*commits)
	}
	for _, entry := range entries {
		if told[entry.Sequence].New != entry.After || told[entry.Sequence].Old != entry.Before {
			t.Errorf("%d: the journal has %s on %s, the writer was told %+v", entry.Sequence, entry.After, entry.Before,
				told[entry.Sequence])
		}
	}
	if got := readTexts(t, s.repos[0]); len(got) != writers*commits+1 {
		t.Errorf("tree has %d files, want %d", len(got), writers*commits+1)
	} else {
		for w := range writers {
			for c := range commits {
				if text := got[fmt.Sprintf("w%d/f%d", w, c)]; text != fmt.Sprint(c) {
					t.Errorf("file %d of writer %d holds %q", c, w, text)
				}
			}
		}
	}
}

// readTexts returns the small files of the default branch by path.
func readTexts(t *testing.T, repo *engine.Repository) map[string]string {
	t.Helper()
	files, err := repo.Files(t.Context(), engine.FilesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	view, err := repo.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	texts := map[string]string{}
	for f, err := range files.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Mode.IsTree() {
			continue
		}
		_, data, err := view.Read(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		texts[f.Path] = string(data)
	}
	return texts
}
