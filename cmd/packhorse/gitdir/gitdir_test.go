package gitdir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/gitdir"
	"packhorse/engine/upstream/remote"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// varied is a repository with objects in every place: two packs, one with reference deltas, loose
// objects, those of an alternate; and with garbage.
func varied(t *testing.T) *oracle.Repository {
	t.Helper()
	below := oracle.New(t)
	below.Seed(oracle.History{Seed: 1, Commits: 12, Merges: true})
	below.Git("repack", "-adq")
	repo := oracle.New(t)
	if err := os.WriteFile(
		filepath.Join(repo.Dir, "objects", "info", "alternates"), []byte(filepath.Join(below.Dir, "objects")+"\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	repo.Git("update-ref", "refs/heads/below", below.Git("rev-parse", "main"))
	repo.Seed(oracle.History{Seed: 2, Commits: 30, Merges: true, Tags: true, Binary: true})
	garbage := repo.Git("commit-tree", "-m", "gone", "main^{tree}")
	repo.Git("update-ref", "refs/heads/garbage", garbage)
	repo.Git("repack", "-adfq", "--depth=50")
	repo.Git("update-ref", "-d", "refs/heads/garbage")
	old := repo.Git("rev-parse", "main~3")
	// The first commits of another history are in a pack whose later ones nothing refers to.
	repo.Git("tag", "-a", "-m", "nested", "nested", repo.Git("rev-parse", "main"))
	repo.Git("tag", "-a", "-m", "of a tag", "twice", "nested")
	repo.Git("update-ref", "refs/custom/x", repo.Write("blob", []byte("a blob of its own")))
	repo.Git("notes", "add", "-m", "a note", old)
	repo.Git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
	repo.Git("symbolic-ref", "refs/remotes/origin/nowhere", "refs/heads/nowhere")
	repo.Git("update-ref", "refs/replace/"+old, repo.Git("rev-parse", "main"))
	return repo
}

func open(t *testing.T, dir string) *gitdir.Repository {
	t.Helper()
	r, err := gitdir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// reached returns what git says that tips reach, as sorted lines of IDs.
func reached(repo *oracle.Repository, tips ...string) []string {
	var ids []string
	for line := range strings.Lines(repo.Git(append([]string{"--no-replace-objects", "rev-list", "--objects", "--no-object-names"}, tips...)...)) {
		ids = append(ids, strings.TrimSpace(line))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func parse(t *testing.T, digits string) object.ID {
	t.Helper()
	id, err := object.ParseID(digits)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// planned writes the pack of a plan, has git index it, and returns its objects.
func planned(t *testing.T, r *gitdir.Repository, wants, haves []object.ID) []string {
	t.Helper()
	plan, err := r.Plan(t.Context(), wants, haves)
	if err != nil {
		t.Fatal(err)
	}
	var pack bytes.Buffer
	if err := plan.WriteTo(t.Context(), &pack); err != nil {
		t.Fatal(err)
	}
	into := oracle.New(t)
	into.Input(pack.Bytes(), "index-pack", "--stdin")
	var ids []string
	for _, line := range into.Objects() {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if plan.Count != len(ids) {
		t.Errorf("a plan of %d objects made a pack of %d", plan.Count, len(ids))
	}
	return ids
}

func TestPlan(t *testing.T) {
	t.Parallel()
	repo := varied(t)
	r := open(t, repo.Dir)
	tip := func(name string) object.ID { return parse(t, repo.Git("--no-replace-objects", "rev-parse", name)) }
	list, _, _, err := r.Refs()
	if err != nil {
		t.Fatal(err)
	}
	var all []object.ID
	var names []string
	for _, ref := range list {
		all = append(all, ref.ID)
		names = append(names, ref.Name)
	}
	if got, want := planned(t, r, all, nil), reached(repo, names...); !slices.Equal(got, want) {
		t.Errorf("everything: %d objects, want %d", len(got), len(want))
	}
	absent := object.ID{1}
	held := reached(repo, "main~5", "refs/heads/below")
	want := slices.DeleteFunc(reached(repo, names...), func(id string) bool {
		_, ok := slices.BinarySearch(held, id)
		return ok
	})
	if got := planned(t, r, all, []object.ID{tip("main~5"), absent, tip("refs/heads/below")}); !slices.Equal(got, want) {
		t.Errorf("with haves: %d objects, want %d", len(got), len(want))
	}
	if got := planned(t, r, all, all); len(got) != 0 {
		t.Errorf("with everything there: %d objects", len(got))
	}
}

// A delta whose base is not sent is sent whole; a copied one keeps its bytes.
func TestPlanLeavesBasesOut(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	text := strings.Repeat("a line that is the same everywhere\n", 200)
	var commits []string
	for i := range 6 {
		blob := repo.Write("blob", fmt.Appendf(nil, "%s%d\n", text, i))
		tree := strings.TrimSpace(string(repo.Input(fmt.Appendf(nil, "100644 blob %s\tf\n", blob), "mktree")))
		commits = append(commits, repo.Git("commit-tree", "-m", "m", tree))
		repo.Git("update-ref", fmt.Sprintf("refs/heads/b%d", i), commits[i])
	}
	repo.Git("repack", "-adfq")
	if kept := repo.Git("verify-pack", "-v", packOf(t, repo.Dir)); !strings.Contains(kept, "chain length = ") {
		t.Fatalf("git made no deltas:\n%s", kept)
	}
	for i, commit := range commits {
		r := open(t, repo.Dir)
		if got, want := planned(t, r, []object.ID{parse(t, commit)}, nil), reached(repo, fmt.Sprintf("b%d", i)); !slices.Equal(got, want) {
			t.Errorf("b%d: %q, want %q", i, got, want)
		}
	}
}

// packOf is the one index of a repository.
func packOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.idx"))
	if err != nil || len(found) != 1 {
		t.Fatalf("indexes %q, %v", found, err)
	}
	return found[0]
}

func TestRefs(t *testing.T) {
	t.Parallel()
	repo := varied(t)
	repo.Git("pack-refs", "--all")
	repo.Git("update-ref", "refs/heads/below", "main") // a file that counts before packed-refs
	list, head, skipped, err := open(t, repo.Dir).Refs()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, ref := range list {
		fmt.Fprintf(&got, "%s %s\n", ref.ID, ref.Name)
	}
	var want strings.Builder
	for line := range strings.Lines(repo.Git("for-each-ref", "--format=%(objectname) %(refname)") + "\n") {
		if !strings.Contains(line, "refs/replace/") {
			want.WriteString(line)
		}
	}
	if got.String() != want.String() || head != "refs/heads/main" || skipped != 1 {
		t.Errorf("HEAD %s, %d skipped,\n%s\nwant\n%s", head, skipped, got.String(), want.String())
	}
	repo.Git("update-ref", "--no-deref", "HEAD", "main")
	if _, head, _, err := open(t, repo.Dir).Refs(); err != nil || head != "" {
		t.Errorf("a detached HEAD: %q, %v", head, err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.git", "b/c.git", "b/c.git/inner.git", "plain"} {
		oracle.NewAt(t, filepath.Join(dir, name))
	}
	oracle.NewAt(t, filepath.Join(dir, "work", ".git"))
	var got []string
	visit := func(_, name string) error { got = append(got, name); return nil }
	if err := gitdir.Find(t.Context(), dir, visit); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b/c", "plain", "work"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	got = nil
	for _, path := range []string{"a.git", "work", "work/.git"} {
		if err := gitdir.Find(t.Context(), filepath.Join(dir, path), visit); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a", "work", "work"}; !slices.Equal(got, want) {
		t.Errorf("a repository itself: %q, want %q", got, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(repo *oracle.Repository)
		want  error
	}{
		"shallow": {func(r *oracle.Repository) { put(t, r, "shallow", r.Git("rev-parse", "main")) }, gitdir.ErrUnsupported},
		"SHA-256": {
			func(r *oracle.Repository) { put(t, r, "config", "[extensions]\n\tobjectFormat = sha256\n") }, gitdir.ErrUnsupported,
		},
		"missing object": {func(r *oracle.Repository) {
			digits := r.Git("rev-parse", "main^{tree}")
			if err := os.Remove(filepath.Join(r.Dir, "objects", digits[:2], digits[2:])); err != nil {
				t.Fatal(err)
			}
		}, gitdir.ErrMissing},
	}
	for name, test := range tests {
		repo := oracle.New(t)
		repo.Git("update-ref", "refs/heads/main", repo.Git("commit-tree", "-m", "m",
			strings.TrimSpace(string(repo.Input(nil, "mktree")))))
		tip := parse(t, repo.Git("rev-parse", "main"))
		test.spoil(repo)
		r, err := gitdir.Open(repo.Dir)
		if err == nil {
			_, err = r.Plan(t.Context(), []object.ID{tip}, nil)
			err = errors.Join(err, r.Close())
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func put(t *testing.T, repo *oracle.Repository, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(repo.Dir, name), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// content returns what a repository is, with the pack that git makes of it.
func content(repo *oracle.Repository, list []remote.Ref, head string, options ...string) gitdir.Content {
	return gitdir.Content{Refs: list, Head: head, Packs: func(_ context.Context, take func(io.Reader) error) error {
		return take(bytes.NewReader(
			repo.Input(nil, append([]string{"pack-objects", "--stdout", "--revs", "--all", "-q"}, options...)...)))
	}}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Seed(oracle.History{Seed: 4, Commits: 40, Merges: true, Binary: true})
	repo.Git("repack", "-adfq", "--depth=200", "--window=50")
	list, head, _, err := open(t, repo.Dir).Refs()
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]string{"ofs": {"--delta-base-offset"}, "ref": nil} {
		dir := filepath.Join(t.TempDir(), name+".git")
		left := filepath.Join(filepath.Dir(dir), "."+name+".git.part")
		if err := os.MkdirAll(filepath.Join(left, "objects", "pack", "incoming.pack"), 0o700); err != nil { // of a killed export
			t.Fatal(err)
		}
		if _, _, err := gitdir.Write(t.Context(), dir, content(repo, list, head, options...)); err != nil {
			t.Fatal(err)
		}
		got := oracle.Open(t, dir)
		got.Git("fsck", "--strict", "--full")
		if a, b := got.Git("for-each-ref"), repo.Git("for-each-ref"); a != b || got.Git("symbolic-ref", "HEAD") != head {
			t.Errorf("%s: refs\n%s\nwant\n%s", name, a, b)
		}
		if !slices.Equal(reached(got, "--all"), reached(repo, "--all")) {
			t.Errorf("%s: other objects", name)
		}
		index := packOf(t, dir)
		ours, err := os.ReadFile(index)
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "git.idx")
		got.Git("index-pack", "-o", again, strings.TrimSuffix(index, ".idx")+".pack")
		if theirs, err := os.ReadFile(again); err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s: git makes another index, %v", name, err)
		}
		if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
		if _, _, err := gitdir.Write(t.Context(), dir, gitdir.Content{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over a folder that exists: %v", err)
		}
	}
}

// Of a pack that breaks off nothing is left.
func TestWriteBrokenPack(t *testing.T) {
	t.Parallel()
	repo := oracle.New(t)
	repo.Seed(oracle.History{Seed: 5, Commits: 3})
	whole := repo.Input([]byte("main\n"), "pack-objects", "--stdout", "--revs", "-q")
	for _, size := range []int{0, 11, len(whole) / 2, len(whole) - 1} {
		dir := filepath.Join(t.TempDir(), "broken.git")
		_, _, err := gitdir.Write(t.Context(), dir, gitdir.Content{
			Packs: func(_ context.Context, take func(io.Reader) error) error { return take(bytes.NewReader(whole[:size])) },
		})
		left, readErr := os.ReadDir(filepath.Dir(dir))
		if err == nil || readErr != nil || len(left) != 0 {
			t.Errorf("%d bytes: %v; left %v, %v", size, err, left, readErr)
		}
	}
}
