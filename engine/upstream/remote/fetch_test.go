package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"packhorse/engine/upstream/remote"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// walked are the commits of a repository, newest first, as [remote.Haves].
type walked struct {
	ids    []object.ID
	common map[object.ID]bool
}

func walk(t *testing.T, repo *oracle.Repository, from ...string) *walked {
	t.Helper()
	w := &walked{common: make(map[object.ID]bool)}
	for line := range strings.FieldsSeq(repo.Git(append([]string{"rev-list", "--date-order"}, from...)...)) {
		w.ids = append(w.ids, parseID(t, line))
	}
	return w
}

func (w *walked) Next(_ context.Context, most int) ([]object.ID, error) {
	n := min(most, len(w.ids))
	next := w.ids[:n]
	w.ids = w.ids[n:]
	return next, nil
}

func (w *walked) Common(id object.ID) { w.common[id] = true }

// fetch fetches into a repository, and returns how long the pack was.
func fetch(
	t *testing.T, r *remote.Remote, ad *remote.Advertisement, q remote.FetchRequest, into *oracle.Repository,
) int {
	t.Helper()
	stream, err := r.Fetch(t.Context(), ad, q)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		t.Fatal(err)
	}
	into.Input(data, "index-pack", "--stdin", "--fix-thin", "--strict")
	return len(data)
}

func ids(ad *remote.Advertisement) []object.ID {
	var all []object.ID
	for _, ref := range ad.Refs {
		all = append(all, ref.ID)
	}
	return all
}

func TestClone(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Seed(oracle.History{Seed: 5, Merges: true, Tags: true, Binary: true})
	for _, version := range versions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			repo := oracle.Open(t, repo.Dir)
			r := serve(t, repo, version, "").remote()
			ad := list(t, r)
			into := oracle.New(t)
			var progress bytes.Buffer
			fetch(t, r, ad, remote.FetchRequest{Wants: ids(ad), Progress: &progress}, into)
			for _, ref := range ad.Refs {
				into.Git("update-ref", ref.Name, ref.ID.String())
			}
			into.Git("fsck", "--strict", "--full")
			if got, want := into.Git("for-each-ref"), repo.Git("for-each-ref"); got != want {
				t.Errorf("refs\n%s\nwant\n%s", got, want)
			}
			if got, want := into.Git("rev-list", "--objects", "--all"), repo.Git("rev-list", "--objects", "--all"); got != want {
				t.Error("other objects")
			}
			if !strings.Contains(progress.String(), "objects") {
				t.Errorf("progress %q", progress.String())
			}
		})
	}
}

// TestFetchNegotiates is a fetch into a repository with many commits of its own above the common
// history: several rounds, and a small thin pack.
func TestFetchNegotiates(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Seed(oracle.History{Seed: 11, Commits: 60})
	here := oracle.New(t)
	here.Git("fetch", "-q", repo.Dir, "+refs/heads/*:refs/heads/*")
	base := repo.Git("rev-parse", "main")
	tree := here.Git("rev-parse", "main^{tree}")
	var own strings.Builder
	for i := range 300 { // more than are tried in vain, once something is common; nothing is before the base is reached
		from := ""
		if i == 0 {
			from = "from " + base + "\n"
		}
		own.WriteString("commit refs/heads/own\ncommitter A <a@example.com> 1800000000 +0000\ndata 1\nx" + "\n" + from + "\n")
	}
	here.Input([]byte(own.String()), "fast-import", "--quiet")
	repo.Git("update-ref", "refs/heads/main", repo.Git("commit-tree", "-p", base, "-m", "theirs", tree))
	tip := resolve(t, repo, "main")
	for _, version := range versions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			into := oracle.New(t)
			into.Git("fetch", "-q", here.Dir, "+refs/heads/*:refs/heads/*")
			server := serve(t, oracle.Open(t, repo.Dir), version, "")
			r := server.remote()
			ad := list(t, r, "refs/heads/main")
			before := server.requests.Load()
			haves := walk(t, into, "--all")
			size := fetch(t, r, ad, remote.FetchRequest{Wants: []object.ID{tip}, Haves: haves}, into)
			if rounds := server.requests.Load() - before; rounds < 4 {
				t.Errorf("%d rounds", rounds)
			}
			if !haves.common[parseID(t, base)] || size > 1000 {
				t.Errorf("base is common: %v; a pack of %d bytes", haves.common[parseID(t, base)], size)
			}
			into.Git("update-ref", "refs/heads/main", tip.String())
			into.Git("fsck", "--strict", "--full")
		})
	}
}

// TestFetchNothingInCommon ends the negotiation when there are no more haves.
func TestFetchNothingInCommon(t *testing.T) {
	t.Parallel()
	repo, other := oracle.New(t), oracle.New(t)
	tip := parseID(t, repo.Seed(oracle.History{Seed: 1, Commits: 5}))
	other.Seed(oracle.History{Seed: 2, Commits: 70})
	for _, version := range versions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			repo := oracle.Open(t, repo.Dir)
			r := serve(t, repo, version, "").remote()
			into := oracle.New(t)
			fetch(t, r, list(t, r),
				remote.FetchRequest{Wants: []object.ID{tip}, Haves: walk(t, other, "--all"), IncludeTags: true}, into)
			into.Git("update-ref", "refs/heads/main", tip.String())
			into.Git("fsck", "--strict", "--full")
		})
	}
}

func TestFetchOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Seed(oracle.History{Seed: 1, Commits: 2})
	for _, version := range versions {
		r := serve(t, repo, version, "").remote()
		stream, err := r.Fetch(t.Context(), list(t, r), remote.FetchRequest{Wants: []object.ID{{1}}})
		if !errors.Is(err, remote.ErrRejected) || !strings.Contains(err.Error(), "not our ref") {
			t.Errorf("version %s: %v, %v", version, stream, err)
		}
	}
}

func TestFetchFromShallow(t *testing.T) {
	t.Parallel()
	repo, shallow := oracle.New(t), oracle.New(t)
	tip := parseID(t, repo.Seed(oracle.History{Seed: 1, Commits: 5}))
	shallow.Git("fetch", "-q", "--depth=1", "file://"+repo.Dir, "+refs/heads/*:refs/heads/*")
	for _, version := range versions {
		r := serve(t, shallow, version, "").remote()
		_, err := r.Fetch(t.Context(), list(t, r), remote.FetchRequest{Wants: []object.ID{tip}})
		if !errors.Is(err, remote.ErrProtocol) || !strings.Contains(err.Error(), "shallow") {
			t.Errorf("version %s: %v", version, err)
		}
	}
}
