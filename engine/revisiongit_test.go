package engine_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// revisionWorld is a repository of git, the same in a host, and what expressions are made from.
type revisionWorld struct {
	git    *oracle.Repository
	repo   *engine.Repository
	random *rand.Rand

	names   []string // of refs, short for branches and tags, and in full
	both    map[string]bool
	objects []string // IDs
	depth   int      // of the default branch
}

// openRevisions copies all refs of a repository of git into a host.
func openRevisions(t *testing.T, git *oracle.Repository, seed uint64) *revisionWorld {
	t.Helper()
	host := enginetest.Open(t)
	head := git.Git("symbolic-ref", "--short", "HEAD")
	_, err := host.CreateRepository(t.Context(), engine.Actor{Org: enginetest.Org},
		engine.CreateRequest{Name: "r", DefaultBranch: head})
	if err != nil {
		t.Fatal(err)
	}
	w := &revisionWorld{git: git, random: rand.New(rand.NewPCG(seed, 6)), both: map[string]bool{}}
	if w.repo, err = host.Repository(t.Context(), enginetest.Org, "r"); err != nil {
		t.Fatal(err)
	}
	var commands []engine.Command
	short := map[string]bool{}
	for line := range strings.Lines(git.Git("for-each-ref", "--format=%(objectname) %(refname)")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		commands = append(commands, engine.Command{Name: name, New: parseID(t, id)})
		w.names = append(w.names, name)
		for _, prefix := range []string{"refs/heads/", "refs/tags/"} {
			if called, ok := strings.CutPrefix(name, prefix); ok {
				w.both[called] = short[called]
				short[called] = true
				w.names = append(w.names, called)
			}
		}
	}
	packed := git.Input(nil, "pack-objects", "--quiet", "--revs", "--all", "--stdout", "--delta-base-offset")
	enginetest.Push(t, w.repo, packed, commands...)
	listed := git.Input(nil, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
	kinds := map[string][]string{}
	for line := range bytes.Lines(listed) {
		kind, id, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		kinds[kind] = append(kinds[kind], id)
	}
	// Of each kind as many, so that commits and tags are met among ten times as many trees and blobs.
	for _, kind := range []string{"commit", "commit", "commit", "tag", "tree", "blob"} {
		for range min(3000, 10*len(kinds[kind])) {
			w.objects = append(w.objects, kinds[kind][w.random.IntN(len(kinds[kind]))])
		}
	}
	w.depth = strings.Count(git.Git("rev-list", "--first-parent", "HEAD"), "\n")
	return w
}

func (w *revisionWorld) pick(from []string) string { return from[w.random.IntN(len(from))] }

// expression is a random one, and the same as git has to read it.
func (w *revisionWorld) expression() (ours, gits string) {
	base := w.base()
	gits = base
	if w.both[base] || base == "-dash" { // the deliberate difference: a branch before a tag; git rev-parse has options
		gits = "refs/heads/" + base
	}
	isPrefix := len(base) < object.HexSize && strings.Trim(strings.ToLower(base), "0123456789abcdef") == ""
	steps := ""
	for i := range w.random.IntN(5) {
		step := w.step()
		if i == 0 && isPrefix && step == "^{}" {
			step = "^{commit}" // git takes no hint from ^{} for a prefix that a tree or a blob shares
		}
		steps += step
	}
	return base + steps, gits + steps
}

func (w *revisionWorld) base() string {
	id := w.pick(w.objects)
	switch w.random.IntN(12) {
	case 0, 1:
		return "HEAD"
	case 2:
		return "@"
	case 3:
		return id
	case 4:
		return strings.ToUpper(id)
	case 5, 6:
		return id[:7+w.random.IntN(6)]
	case 7:
		return strings.ToUpper(id[:7+w.random.IntN(30)])
	case 8:
		return w.pick([]string{
			"absent", "refs/heads/absent", "refs/", "heads", "@x@", "HEAD@", "0123456789abcdef", "main.", "ma in", "main\\", "/", "*",
			strings.Repeat("0", 40), "0123456789abcdef0123456789abcdef01234567", "fffffff", w.pick(w.names) + "x", "x" + id[1:],
		})
	default:
		return w.pick(w.names)
	}
}

func (w *revisionWorld) step() string {
	switch w.random.IntN(12) {
	case 0, 1:
		return "~"
	case 2:
		return "^"
	case 3:
		return fmt.Sprintf("~%d", w.random.IntN(4))
	case 4:
		return fmt.Sprintf("~%d", w.random.IntN(w.depth+w.depth/20+2))
	case 5:
		return fmt.Sprintf("^%d", w.random.IntN(4))
	case 6:
		return w.pick([]string{
			"~00", "~007", "^00", "^01", "^2", "^2", "~4294967297", "^4294967297", "~2147483648", "~99999999999999999999",
		})
	case 7:
		return "^{}"
	case 8:
		return "^{commit}"
	case 9:
		return "^0"
	default:
		return "~" + fmt.Sprint(1+w.random.IntN(20))
	}
}

// compare holds random expressions against git rev-parse: where one fails the other does.
func (w *revisionWorld) compare(t *testing.T, count int) {
	t.Helper()
	found, missing := 0, 0
	for range count {
		expr, gits := w.expression()
		out, gitErr := w.git.Try(nil, "rev-parse", "--verify", "--quiet", gits+"^{commit}")
		want := strings.TrimSpace(string(out))
		got, err := w.repo.Commit(t.Context(), engine.CommitName{Text: expr})
		switch {
		case gitErr == nil && (err != nil || got.ID.String() != want):
			t.Errorf("%q is %s, %v, want %s", expr, got.ID, err, want)
		case gitErr != nil && !errors.Is(err, engine.ErrNotFound) && !ambiguous(err):
			t.Errorf("%q is %s, %v, git finds nothing", expr, got.ID, err)
		case gitErr != nil && !strings.Contains(err.Error(), strings.Trim(fmt.Sprintf("%q", expr), `"`)):
			t.Errorf("%q: %v does not name it", expr, err)
		case gitErr != nil:
			missing++
		default:
			found++
		}
	}
	t.Logf("%d expressions: %d commits, %d that git does not find", count, found, missing)
	if count >= 100 && (found < count/4 || missing < count/20) {
		t.Errorf("%d commits and %d refusals of %d: expressions have become too alike", found, missing, count)
	}
}

func ambiguous(err error) bool {
	return errors.Is(err, engine.ErrInvalid) && strings.Contains(err.Error(), "is ambiguous")
}

// oddRefs gives a repository names that look like something else, and tags of every kind of object.
func oddRefs(git *oracle.Repository) {
	tip, tree := git.Git("rev-parse", "main"), git.Git("rev-parse", "main^{tree}")
	blob := git.Write("blob", []byte("a blob"))
	older, oldest := git.Git("rev-parse", "main~7"), git.Git("rev-parse", "main~20")
	tag := func(target, kind, name string) string {
		return git.Write("tag", fmt.Appendf(nil, "object %s\ntype %s\ntag %s\ntagger A <a@x> 1 +0000\n\nm\n", target, kind, name))
	}
	inner := tag(older, "commit", "inner")
	for name, id := range map[string]string{
		"refs/heads/a@b": older, "refs/heads/x@": oldest, "refs/heads/@y": tip, "refs/tags/@": oldest, "refs/heads/feature/a": older,
		"refs/heads/deadbeef": oldest, "refs/heads/abcdef1": older, "refs/tags/1234567": tip, "refs/tags/0": older,
		"refs/heads/" + tip[:9]: oldest, "refs/tags/" + older[:12]: inner, "refs/heads/both": older, "refs/tags/both": oldest,
		"refs/heads/refs/heads/main": oldest, "refs/heads/refs/tags/0": oldest, "refs/tags/refs/heads/both": tip,
		"refs/tags/tree": tree, "refs/tags/blob": blob, "refs/tags/inner": inner, "refs/tags/outer": tag(inner, "tag", "outer"),
		"refs/tags/of-tree": tag(tree, "tree", "of-tree"), "refs/tags/of-blob": tag(blob, "blob", "of-blob"),
		"refs/notes/n": older, "refs/other/o": oldest, "refs/heads/-dash": older, "refs/heads/a-1-gabcdef": older,
		"refs/heads/{}": older, "refs/heads/a{1}": oldest,
	} {
		git.Git("update-ref", name, id)
	}
}

// TestRevisionsAgainstGit resolves random expressions over generated histories as git does, but for
// what docs/api.md tells: a branch before a tag, no prefix below 7 digits, no search below refs/ or
// refs/remotes/, no output of git describe, and the constructs that are refused by name.
func TestRevisionsAgainstGit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Seed(oracle.History{Seed: seed, Commits: 120, Files: 12, Merges: true, Tags: true})
			oddRefs(git)
			openRevisions(t, git, seed).compare(t, oracle.CaseCount(t, 400, 150))
		})
	}
}

// TestRevisionsOfRepository is TestRevisionsAgainstGit on the repository that PACKHORSE_REAL_REPO
// names.
func TestRevisionsOfRepository(t *testing.T) {
	openRevisions(t, oracle.Real(t), 1).compare(t, oracle.CaseCount(t, 500, 500))
}

// TestPrefixesAgainstGit has objects of all kinds share the first 7 digits of their IDs.
func TestPrefixesAgainstGit(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	commit := git.Seed(oracle.History{Seed: 1, Commits: 3, Files: 3})
	tree := git.Git("rev-parse", "main^{tree}")
	type made struct {
		kind object.Type
		data []byte
	}
	const prefixDigits = 7
	groups := map[string][]made{}
	for i := range 30_000 {
		for kind, text := range map[object.Type]string{
			object.TypeBlob:   fmt.Sprint("blob ", i),
			object.TypeCommit: fmt.Sprintf("tree %s\nauthor A <a@x> %d +0000\ncommitter A <a@x> 1 +0000\n\nm\n", tree, i),
			object.TypeTag: fmt.Sprintf("object %s\ntype %s\ntag t\ntagger A <a@x> %d +0000\n\nm\n",
				[]string{commit, tree}[i%2], []string{"commit", "tree"}[i%2], i),
		} {
			id, err := object.Hash(kind, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			prefix := id.String()[:prefixDigits]
			groups[prefix] = append(groups[prefix], made{kind, []byte(text)})
		}
	}
	var prefixes []string
	for prefix, group := range groups {
		if len(group) < 2 {
			continue
		}
		prefixes = append(prefixes, prefix)
		for _, m := range group {
			id := git.Write(m.kind.String(), m.data)
			git.Git("update-ref", cmp.Or(map[bool]string{true: "refs/heads/h"}[m.kind == object.TypeCommit], "refs/tags/t")+id[:12], id)
		}
	}
	slices.Sort(prefixes)
	if len(prefixes) < 10 {
		t.Fatalf("only %d prefixes are shared", len(prefixes))
	}
	w := openRevisions(t, git, 1)
	one, several := 0, 0
	for _, prefix := range prefixes {
		for _, steps := range []string{"", "~0", "^{commit}"} {
			out, gitErr := git.Try(nil, "rev-parse", "--verify", "--quiet", prefix+steps+"^{commit}")
			got, err := w.repo.Commit(t.Context(), engine.CommitName{Text: prefix + steps})
			switch {
			case gitErr == nil && err == nil && got.ID.String() == strings.TrimSpace(string(out)):
				one++
			case gitErr != nil && (ambiguous(err) || errors.Is(err, engine.ErrNotFound)):
				several++
			default:
				t.Errorf("%s%s is %s, %v; git says %s, %v", prefix, steps, got.ID, err, out, gitErr)
			}
		}
	}
	t.Logf("%d prefixes: %d expressions are a commit, %d are not", len(prefixes), one, several)
	if one == 0 || several == 0 {
		t.Error("expressions have become too alike")
	}
}
