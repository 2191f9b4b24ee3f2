package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/refs"
)

// TestRenameRace renames repositories to one name, which others create meanwhile: it has one owner
// in the end, and every other repository is still to be found by its own name.
func TestRenameRace(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	const wanted = "wanted"
	for round := range 10 {
		var working sync.WaitGroup
		names := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		for _, name := range names {
			repo := enginetest.Create(t, host, name)
			working.Go(func() {
				_, err := repo.ChangeSettings(t.Context(), acme, engine.Settings{Name: wanted})
				if err != nil && !errors.Is(err, engine.ErrExists) {
					t.Error(err)
				}
			})
		}
		working.Go(func() {
			_, err := host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: wanted})
			if err != nil && !errors.Is(err, engine.ErrExists) {
				t.Error(err)
			}
		})
		working.Wait()
		found := 0
		page, err := host.Repositories(t.Context(), enginetest.Org, engine.ListOptions{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			repo, err := host.Repository(t.Context(), enginetest.Org, item.Name)
			if err != nil || repo.Item().ID != item.ID {
				t.Errorf("%s is listed as %s, and found as %v, %v", item.ID, item.Name, repo, err)
			}
			if item.Name == wanted {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d repositories have the name", found)
		}
		for _, item := range page.Items {
			if _, err := host.DeleteRepository(t.Context(), acme, item.Name); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRenamedMeanwhile renames a repository between two steps of those who look for it: under the
// old name nobody gets it, and fsck does not take it for damaged.
func TestRenamedMeanwhile(t *testing.T) {
	t.Parallel()
	host, stored := openAfterGet(t, engine.Config{})
	repo := enginetest.Create(t, host, "first")
	id := repo.Item().ID
	_, err := repo.ChangeSettings(t.Context(), acme, engine.Settings{Name: "old"}) // which nobody has opened yet
	must(t, err)
	rename := func(key []byte, to string) {
		repo, err := host.RepositoryByID(t.Context(), enginetest.Org, id)
		must(t, err)
		stored.next.Store(&happening{key, func() {
			_, err := repo.ChangeSettings(t.Context(), acme, engine.Settings{Name: to})
			must(t, err)
		}})
	}

	rename(append([]byte("Nacme\x00"), "old"...), "new")
	if _, err := host.Repository(t.Context(), enginetest.Org, "old"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the old name gives %v", err)
	}
	_, err = host.Repository(t.Context(), enginetest.Org, "new")
	must(t, err)
	rename(append([]byte("R"), id[:]...), "newer")
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		must(t, err)
		if checked.Damaged() {
			t.Errorf("%s: %q", checked.Name, checked.Problems())
		}
	}
	if stored.next.Load() != nil {
		t.Error("fsck did not read the record")
	}
	if _, err := host.Repository(t.Context(), enginetest.Org, "newer"); err != nil {
		t.Error(err)
	}
}

// TestRenamed looks that a write under the old name fails from then on, and that a crash undoes
// nothing.
func TestRenamed(t *testing.T) {
	t.Parallel()
	pack, id := oneCommit(t)
	fs := vfs.NewCrashableMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	t.Cleanup(shut)
	repo := unsettled(t, host)
	pushRefs(t, repo, refs.Main, pack, id, "refs/heads/main", "refs/heads/dev")
	changed, err := repo.ChangeSettings(t.Context(), acme, engine.Settings{Name: "s", DefaultBranch: "dev"})
	if err != nil || changed.Item.Name != "s" || changed.Item.DefaultBranch != "dev" {
		t.Errorf("changed to %+v, %v", changed, err)
	}
	if _, err := repo.DeleteBranch(t.Context(), acme, refs.Main, "main"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a write under the old name: %v", err)
	}
	again, shut := enginetest.OpenOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), engine.Config{})
	t.Cleanup(shut)
	for name, want := range map[string]error{"r": engine.ErrNotFound, "s": nil} {
		found, err := again.Repository(t.Context(), enginetest.Org, name)
		if !errors.Is(err, want) {
			t.Errorf("after a crash %s is %v", name, err)
		}
		if err == nil && found.Item().DefaultBranch != "dev" {
			t.Errorf("after a crash: %+v", found.Item())
		}
	}
	if _, err := again.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "r"}); err != nil {
		t.Errorf("the old name is not free: %v", err)
	}
}
