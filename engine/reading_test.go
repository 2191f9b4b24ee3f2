package engine_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// readWorld is a repository of git, and the same in a host.
type readWorld struct {
	git  *oracle.Repository
	repo *engine.Repository
	r    *rand.Rand
}

func newReadWorld(t *testing.T, git *oracle.Repository, seed uint64) *readWorld {
	t.Helper()
	tip := git.Git("rev-parse", "HEAD^{commit}")
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	packed := git.Input([]byte(tip+"\n"), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	enginetest.Push(t, repo, packed, engine.Command{Name: "refs/heads/main", New: parseID(t, tip)})
	return &readWorld{git: git, repo: repo, r: rand.New(rand.NewPCG(seed, 4))}
}

// compareFiles compares the entries of a commit, at once and in pages, with git ls-tree. It returns
// the paths of all entries but folders.
func (w *readWorld) compareFiles(t *testing.T, commit string) (files []string) {
	t.Helper()
	var want []string
	for line := range strings.SplitSeq(string(w.git.Input(nil, "ls-tree", "-r", "-t", "-z", commit)), "\x00") {
		fields, path, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		mode := strings.Fields(fields)
		want = append(want, mode[0]+" "+mode[2]+" "+path)
		if mode[1] != "tree" {
			files = append(files, path)
		}
	}
	for _, limit := range []int{0, 1 + len(want)/3} {
		var got []string
		request := engine.FilesRequest{Ref: commit}
		for more := true; more; {
			list, err := w.repo.Files(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			more = false
			count, last := 0, ""
			for f, err := range list.All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if limit > 0 && count == limit {
					request.Cursor, more = list.CursorAfter(last), true
					break
				}
				count, last = count+1, f.Path
				got = append(got, fmt.Sprintf("%s %s %s", f.Mode, f.ID, f.Path))
			}
			if err := list.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("files of %s in pages of %d:\n got %d: %.2000q\nwant %d: %.2000q", commit, limit, len(got), got, len(want),
				want)
		}
	}
	return files
}

// compareLast holds the last commits of up to most files against git log -1, and the list of files
// against all of them.
func (w *readWorld) compareLast(t *testing.T, commit string, files []string, most int) {
	t.Helper()
	list, err := w.repo.Metadata(t.Context(), engine.MetadataRequest{Ref: commit})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := list.Close(); err != nil {
			t.Error(err)
		}
	}()
	var paths []string
	last := map[string]object.ID{}
	for f := range list.Files() {
		paths = append(paths, f.Path)
		last[f.Path] = f.Last
	}
	if !slices.Equal(paths, files) {
		t.Errorf("metadata of %s:\n got %d: %.2000q\nwant %d: %.2000q", commit, len(paths), paths, len(files), files)
	}
	if len(files) > 0 {
		w.compareFlat(t, commit, path.Dir("/" + files[w.r.IntN(len(files))])[1:])
	}
	files = slices.Clone(files)
	w.r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	for _, file := range files[:min(most, len(files))] {
		want := w.git.Git("--literal-pathspecs", "log", "-1", "--format=%H", commit, "--", file)
		if got := last[file]; got.String() != want {
			t.Errorf("commit %s, %q: changed last by %s, want %s", commit, file, got, want)
		}
	}
}

// compareFlat holds the last commits of the entries of a folder against git log -1.
func (w *readWorld) compareFlat(t *testing.T, commit, folder string) {
	t.Helper()
	var want []string
	for _, name := range strings.FieldsFunc(string(w.git.Input(nil, "ls-tree", "-z", "--name-only", commit+":"+folder)),
		func(r rune) bool { return r == 0 }) {
		name = path.Join(folder, name)
		if last := w.git.Git("--literal-pathspecs", "log", "-1", "--format=%H", commit, "--", name); last != "" {
			want = append(want, name+" "+last)
		}
	}
	var got []string
	request := engine.MetadataRequest{Ref: commit, Path: folder, Flat: true, Limit: 1 + w.r.IntN(5)}
	for first := true; first || request.Cursor != ""; first = false {
		list, err := w.repo.Metadata(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for f := range list.Files() {
			got = append(got, f.Path+" "+f.Last.String())
		}
		request.Cursor = list.Next
		if err := list.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("commit %s, folder %q:\n got %q\nwant %q", commit, folder, got, want)
	}
}

// commitFormat has the fields that the API returns for a commit, as git shows them.
const commitFormat = "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%cn%x00%ce%x00%ct%x00%B%x01"

// compareCommits holds the commits that changed a path, or all of them, in pages, against git log.
func (w *readWorld) compareCommits(t *testing.T, path string, limit int) int {
	t.Helper()
	args := []string{"--literal-pathspecs", "log", "--encoding=UTF-8", commitFormat, "HEAD"}
	if path != "" {
		args = append(args, "--", path)
	}
	var want []string
	for record := range strings.SplitSeq(string(w.git.Input(nil, args...)), "\x01") {
		if record = strings.TrimLeft(record, "\n"); record != "" {
			want = append(want, strings.TrimRight(record, "\n"))
		}
	}
	got := make([]string, 0, len(want))
	request := engine.CommitsRequest{Path: path, Limit: limit}
	for {
		page, err := w.repo.Commits(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Items {
			got = append(got, gitLine(&page.Items[i]))
		}
		if w.r.IntN(20) == 0 { // repeated requests are answered again
			again, err := w.repo.Commits(t.Context(), request)
			if err != nil || len(again.Items) != len(page.Items) || again.Next != page.Next ||
				again.Items[0].ID != page.Items[0].ID {
				t.Errorf("asked again, cursor %q gives another page: %v", request.Cursor, err)
			}
		}
		if request.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("commits of %q differ at %d of %d and %d:\n got %.500q\nwant %.500q",
				path, i, len(got), len(want), got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
			break
		}
	}
	return len(got)
}

// gitLine writes a commit in commitFormat.
func gitLine(c *engine.Commit) string {
	var parents []string
	for _, p := range c.Parents {
		parents = append(parents, p.String())
	}
	return strings.TrimRight(strings.Join([]string{
		c.ID.String(), strings.Join(parents, " "), c.Author.Name, c.Author.Email, c.Committer.Name, c.Committer.Email,
		strconv.FormatInt(c.Committer.Seconds, 10), strings.TrimLeft(c.Message, "\n"),
	}, "\x00"), "\n")
}

// compare asks about some commits, and some files in each.
func (w *readWorld) compare(t *testing.T, commits, files, paths int) {
	t.Helper()
	all := strings.Fields(w.git.Git("rev-list", "HEAD"))
	asked := []string{all[0]}
	for len(asked) < commits {
		asked = append(asked, all[w.r.IntN(len(all))])
	}
	var listed []string
	for _, commit := range asked {
		there := w.compareFiles(t, commit)
		w.compareLast(t, commit, there, files)
		listed = append(listed, there...)
	}
	counts := []string{fmt.Sprint("all ", w.compareCommits(t, "", 50))}
	for range paths {
		path := listed[w.r.IntN(len(listed))]
		if cut := strings.LastIndexByte(path, '/'); cut > 0 && w.r.IntN(2) == 0 {
			path = path[:cut]
		}
		counts = append(counts, fmt.Sprint(path, " ", w.compareCommits(t, path, 1+w.r.IntN(20))))
	}
	t.Logf("%d commits: lists of %d of them, %d entries, %d last commits each; commits of %q", len(all), len(asked),
		len(listed), files, counts)
}

// TestReadingOfHistories compares lists of files, last commits and listings of commits with git's,
// on generated histories.
func TestReadingOfHistories(t *testing.T) {
	t.Parallel()
	const seeds = 2
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("merges ", seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(oracle.History{Seed: seed, Commits: 60, Files: 25, Merges: true})
			newReadWorld(t, git, seed).compare(t, 2, 10, 4)
		})
		t.Run(fmt.Sprint("names ", seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Evolve(rand.New(rand.NewPCG(seed, 5)), nil, 40)
			newReadWorld(t, git, seed).compare(t, 2, 10, 4)
		})
	}
}

// TestReadingOfRepository is TestReadingOfHistories on a real repository, whose default branch it
// reads. It asks about PACKHORSE_REAL_COUNT commits, 5 by default, and 100 times as many files; all
// of one commit when the count is 0.
//
//	PACKHORSE_REAL_REPO=../redis.git go test ./engine -run TestReadingOfRepository -v
func TestReadingOfRepository(t *testing.T) {
	git := oracle.Real(t)
	commits, files := oracle.RealCount(t, 5), 100
	if commits == 0 {
		commits, files = 1, 1<<30
	}
	newReadWorld(t, git, 1).compare(t, commits, files, 4*commits)
}
