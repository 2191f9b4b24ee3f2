package blame_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"packhorse/engine/blame"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// blamed is where a line of a file comes from.
type blamed struct {
	commit, path string
	line         int // in that commit's file, from 1
	final        int // in the file itself, from 1
	previous     string
}

// theirBlame asks git. The second value is false if it refuses.
func theirBlame(tb testing.TB, git *oracle.Repository, commit, path string, o blame.Options) ([]blamed, bool) {
	tb.Helper()
	args := []string{"-c", "core.quotePath=false", "blame", "--line-porcelain"}
	if o.Moves {
		args = append(args, "-M")
	}
	for _, r := range o.Ranges {
		args = append(args, "-L", r)
	}
	out, err := git.Try(nil, append(args, commit, "--", path)...)
	if err != nil {
		return nil, false
	}
	var all []blamed
	begins := true
	for line := range bytes.Lines(out) {
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case begins:
			fields := strings.Fields(text)
			b := blamed{commit: fields[0]}
			b.line, _ = strconv.Atoi(fields[1])
			b.final, _ = strconv.Atoi(fields[2])
			all = append(all, b)
			begins = false
		case strings.HasPrefix(text, "\t"):
			begins = true
		default:
			last := &all[len(all)-1]
			key, value, _ := strings.Cut(text, " ")
			switch key {
			case "filename":
				last.path = value
			case "previous":
				last.previous, _, _ = strings.Cut(value, " ")
			}
		}
	}
	return all, true
}

// ourBlame asks package blame.
func ourBlame(tb testing.TB, view *odb.View, commit, path string, o blame.Options) ([]blamed, bool) {
	tb.Helper()
	id, err := object.ParseID(commit)
	if err != nil {
		tb.Fatal(err)
	}
	runs, err := parts(tb, view, id, path, o)
	if errors.Is(err, blame.ErrRange) {
		return nil, false
	}
	if err != nil {
		tb.Fatalf("blame %s:%s: %v", commit, path, err)
	}
	var all []blamed
	for _, r := range runs {
		for i := range r.Count {
			b := blamed{commit: r.Commit.String(), path: r.Path, line: r.Source + i + 1, final: r.Index + i + 1}
			if r.Previous != object.ZeroID {
				b.previous = r.Previous.String()
			}
			all = append(all, b)
		}
	}
	return all, true
}

// parts puts the parts of a blame together.
func parts(
	tb testing.TB, view *odb.View, commit object.ID, path string, o blame.Options,
) (runs []blame.Run, err error) {
	tb.Helper()
	for {
		part, left, err := blame.File(tb.Context(), view, commit, path, o)
		if err != nil {
			return nil, err
		}
		runs = append(runs, part...)
		if left == nil {
			slices.SortFunc(runs, func(x, y blame.Run) int { return cmp.Compare(x.Index, y.Index) })
			return runs, nil
		}
		if o.Limit == 0 || len(left) > blame.PendingMax {
			tb.Errorf("%s:%s with %+v: %d runs are left", commit, path, o, len(left))
		}
		o.Left = left
	}
}

// remembered is what all blames of the tests found, of whatever file. It is so small that it
// forgets much of it again.
var remembered = blame.NewChanges(64 << 10)

// compareBlame holds our blame of a file against git's, without and with what earlier ones found,
// and returns how many lines it has.
func compareBlame(tb testing.TB, git *oracle.Repository, view *odb.View, commit, path string, o blame.Options) int {
	tb.Helper()
	want, wantOK := theirBlame(tb, git, commit, path, o)
	for i, known := range []*blame.Changes{nil, remembered, remembered, nil} {
		o.Known, o.Limit = known, []int{0, 0, 4, 1}[i]
		got, ok := ourBlame(tb, view, commit, path, o)
		if ok != wantOK {
			tb.Errorf("%s:%s with %+v: accepted %v, by git %v", commit, path, o, ok, wantOK)
			return 0
		}
		if len(got) != len(want) {
			tb.Errorf("%s:%s with %+v: %d lines, want %d", commit, path, o, len(got), len(want))
			return len(want)
		}
		for i := range want {
			if got[i] != want[i] {
				tb.Errorf("%s:%s with %+v: %+v, want %+v", commit, path, o, got[i], want[i])
				break
			}
		}
	}
	return len(want)
}

// TestBlameOfHistories blames the files of generated histories.
func TestBlameOfHistories(t *testing.T) {
	t.Parallel()
	histories := oracle.CaseCount(t, 6, 2)
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 31))
			git := oracle.New(t)
			h := blameHistory{random: random}
			for range 60 {
				h.commit()
			}
			h.out.WriteString("done\n")
			git.Input(h.out.Bytes(), "fast-import", "--quiet", "--done")
			view, stored := odbtest.Clone(t, git), withHistories(t, git, 3)
			tip := git.Git("rev-parse", "main")
			lines := 0
			for path := range strings.Lines(git.Git("ls-tree", "-r", "--name-only", "main")) {
				path = strings.TrimSuffix(path, "\n")
				for _, moves := range []bool{false, true} {
					lines += compareBlame(t, git, view, tip, path, blame.Options{Moves: moves})
					lines += compareBlame(t, git, view, tip, path, blame.Options{Moves: moves, Ranges: []string{"3,+4", "/word/,9"}})
					compareBlame(t, git, stored, tip, path, blame.Options{Moves: moves})
				}
			}
			if lines == 0 {
				t.Error("nothing was blamed")
			}
		})
	}
}

// withHistories returns a view with path histories of the files that so many commits changed.
func withHistories(tb testing.TB, git *oracle.Repository, commits int) *odb.View {
	tb.Helper()
	h := odbtest.NewPool(tb, odb.Options{
		Limits: odb.Limits{HotCount: 1}, HistoryCommits: commits, Lines: blame.NewLineDiff,
	})
	h.PushSegment(odbtest.PackAll(git, "--delta-base-offset"))
	h.BuildHistories()
	h.Fsck()
	return h.View()
}

// TestBlameComparesNothingAgain blames a file with a path history: no version is compared again, so
// that a blame whose parts end after one version has one part.
func TestBlameComparesNothingAgain(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	random := rand.New(rand.NewPCG(4, 31))
	h := blameHistory{random: random}
	all := h.lines(40)
	for i := range 30 {
		at := random.IntN(len(all))
		all = slices.Replace(all, at, at+1, h.lines(2)...)
		content := strings.Join(all, "\n")
		fmt.Fprintf(&h.out, "commit refs/heads/main\ncommitter C <c@d> %d +0000\ndata 1\nm\n", 1_700_000_000+i)
		fmt.Fprintf(&h.out, "M 100644 inline file\ndata %d\n%s\n", len(content), content)
	}
	git.Input(h.out.Bytes(), "fast-import", "--quiet")
	tip, err := object.ParseID(git.Git("rev-parse", "main"))
	if err != nil {
		t.Fatal(err)
	}
	count := func(view *odb.View) (parts int) {
		o := blame.Options{Limit: 1}
		for {
			_, left, err := blame.File(t.Context(), view, tip, "file", o)
			if err != nil {
				t.Fatal(err)
			}
			if parts++; left == nil {
				return parts
			}
			o.Left = left
		}
	}
	if without, with := count(odbtest.Clone(t, git)), count(withHistories(t, git, 5)); without < 20 || with != 1 {
		t.Errorf("%d parts without path histories, %d with them; want one a version, and one", without, with)
	}
}

// blameHistory writes a history for git fast-import in which lines are edited, moved and copied,
// files renamed, and branches merged with some of each side.
type blameHistory struct {
	random  *rand.Rand
	out     bytes.Buffer
	commits []map[string][]string
	words   int
}

func (h *blameHistory) commit() {
	n := len(h.commits)
	parents := []int{n - 1}
	files := map[string][]string{}
	if n > 0 {
		if h.random.IntN(4) == 0 {
			parents[0] = max(n-1-h.random.IntN(5), 0)
		}
		maps.Copy(files, h.commits[parents[0]])
	}
	if other := n - 2 - h.random.IntN(6); h.random.IntN(4) == 0 && other >= 0 && other != parents[0] {
		parents = append(parents, other)
		h.mix(files, h.commits[other])
	}
	for range h.random.IntN(4) {
		h.change(files)
	}
	if len(files) == 0 {
		files["first"] = h.lines(30)
	}
	h.commits = append(h.commits, files)
	fmt.Fprintf(&h.out, "commit refs/heads/main\nmark :%d\ncommitter C <c@d> %d +0000\ndata 1\nm\n", n+1,
		1_700_000_000+n*100-h.random.IntN(300))
	for i, parent := range parents {
		if n > 0 {
			fmt.Fprintf(&h.out, "%s :%d\n", []string{"from", "merge"}[i], parent+1)
		}
	}
	h.out.WriteString("deleteall\n")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		content := strings.Join(files[path], "\n")
		fmt.Fprintf(&h.out, "M 100644 inline %s\ndata %d\n%s\n", path, len(content), content)
	}
}

// mix takes from another commit some files, and the second half of others.
func (h *blameHistory) mix(files, other map[string][]string) {
	for _, path := range slices.Sorted(maps.Keys(other)) {
		mine, theirs := files[path], other[path]
		switch h.random.IntN(3) {
		case 0:
			files[path] = theirs
		case 1:
			files[path] = slices.Concat(mine[:len(mine)/2], theirs[len(theirs)/2:])
		}
	}
}

func (h *blameHistory) change(files map[string][]string) {
	paths := slices.Sorted(maps.Keys(files))
	if len(paths) == 0 || len(paths) < 5 && h.random.IntN(6) == 0 {
		files[h.path()] = h.lines(10 + h.random.IntN(40))
		return
	}
	path := paths[h.random.IntN(len(paths))]
	all := slices.Clone(files[path])
	at := h.random.IntN(len(all) + 1)
	end := min(at+h.random.IntN(8), len(all))
	switch h.random.IntN(9) {
	case 0: // to another name
		delete(files, path)
		path = h.path()
	case 1: // to another place of the file
		part := slices.Clone(all[at:end])
		all = slices.Delete(all, at, end)
		all = slices.Insert(all, h.random.IntN(len(all)+1), part...)
	case 2: // from another file
		from := files[paths[h.random.IntN(len(paths))]]
		all = slices.Insert(all, at, from[len(from)/3:len(from)/2]...)
	case 3:
		all = slices.Delete(all, at, end)
	case 4: // in another file
		delete(files, path)
		from := files[paths[h.random.IntN(len(paths))]]
		all = slices.Concat(from, all)
	default:
		all = slices.Replace(all, at, end, h.lines(h.random.IntN(6))...)
	}
	files[path] = all
}

func (h *blameHistory) path() string {
	return fmt.Sprintf("%s%c", []string{"", "dir/", "dir/sub/"}[h.random.IntN(3)], 'a'+rune(h.random.IntN(8)))
}

// lines makes new lines: some distinctive, some short, and some frequent.
func (h *blameHistory) lines(count int) []string {
	all := make([]string, count)
	for i := range all {
		h.words++
		switch h.random.IntN(5) {
		case 0:
			all[i] = []string{"", "}", "\treturn", "{"}[h.random.IntN(4)]
		case 1:
			all[i] = fmt.Sprintf("func f%d() {", h.random.IntN(9))
		case 2:
			all[i] = fmt.Sprintf("\tx%d", h.words)
		default:
			all[i] = fmt.Sprintf("\tsome word number %d of the history", h.words)
		}
	}
	return all
}

// TestBlameOfRepository blames files of a real repository, PACKHORSE_REAL_COUNT of those of the
// newest commit.
func TestBlameOfRepository(t *testing.T) {
	t.Parallel()
	git, count := oracle.Real(t), oracle.RealCount(t, 50)
	view, stored := odbtest.Clone(t, git), withHistories(t, git, 32)
	tip := git.Git("rev-list", "--max-count=1", "--branches")
	paths := strings.Split(git.Git("ls-tree", "-r", "--name-only", "-z", tip), "\x00")
	random := rand.New(rand.NewPCG(uint64(count), 3))
	random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for _, moves := range []bool{false, true} {
		lines := 0
		var ours, theirs time.Duration
		for _, path := range paths[:min(count, len(paths))] {
			if path == "" {
				continue
			}
			begin := time.Now()
			want, ok := theirBlame(t, git, tip, path, blame.Options{Moves: moves})
			theirs += time.Since(begin)
			if !ok {
				continue // a submodule
			}
			begin = time.Now()
			got, _ := ourBlame(t, view, tip, path, blame.Options{Moves: moves})
			ours += time.Since(begin)
			lines += len(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s with moves %v: not what git says", path, moves)
			}
			if got, _ := ourBlame(t, stored, tip, path, blame.Options{Moves: moves}); !slices.Equal(got, want) {
				t.Errorf("%s with moves %v and path histories: not what git says", path, moves)
			}
		}
		t.Logf("%d lines with moves %v: %v, git %v", lines, moves, ours, theirs)
	}
}
