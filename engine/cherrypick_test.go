package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// oracleAda is who makes commits in [oracle].
var oracleAda = commit.Person{Name: oracle.Name, Email: oracle.Email}

// pickWorld is a history in a repository of git with a work tree, and the same in a host whose
// clock stands still at the time of git's commits, so that both make the same commits.
type pickWorld struct {
	t       *testing.T
	repo    *engine.Repository
	bare    *oracle.Repository
	tree    string // the work tree
	commits []string
	moved   int  // branches made so far
	stopped bool // git's last pick
}

func openPicks(t *testing.T, bare *oracle.Repository) *pickWorld {
	t.Helper()
	now := func() time.Time { return time.Unix(1_700_000_000, 0) }
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Now: now})
	t.Cleanup(shut)
	w := &pickWorld{t: t, repo: enginetest.Create(t, host, "r"), bare: bare, tree: t.TempDir()}
	var commands []engine.Command
	for line := range strings.Lines(bare.Git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		commands = append(commands, engine.Command{Name: name, New: parseID(t, id)})
	}
	packed := bare.Input(nil, "pack-objects", "--quiet", "--revs", "--all", "--stdout", "--delta-base-offset")
	enginetest.Push(t, w.repo, packed, commands...)
	w.commits = strings.Fields(bare.Git("rev-list", "--branches"))
	w.git("init", "--quiet", "--initial-branch=work")
	info := filepath.Join(w.tree, ".git", "objects", "info")
	must(t, os.MkdirAll(info, 0o755))
	must(t, os.WriteFile(filepath.Join(info, "alternates"), []byte(filepath.Join(bare.Dir, "objects")+"\n"), 0o600))
	for setting, value := range map[string]string{
		"core.abbrev": "7", "gc.auto": "0", "advice.detachedHead": "false", "maintenance.auto": "false",
	} {
		w.git("config", setting, value)
	}
	return w
}

// try runs git in the work tree.
func (w *pickWorld) try(args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = w.tree, oracle.EnvOutside(w.tree)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), err
}

func (w *pickWorld) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	must(w.t, err)
	return strings.TrimSpace(out)
}

// checkout is where git's next picks go.
func (w *pickWorld) checkout(tip string) {
	w.t.Helper()
	if w.stopped {
		w.git("cherry-pick", "--quit")
		w.git("reset", "--quiet", "--hard")
		w.git("clean", "-ffdxq")
		w.stopped = false
	}
	w.git("checkout", "--quiet", "--force", "--detach", tip)
}

// theirs asks git for a pick: the new tip, or how it ended and the paths that conflict.
func (w *pickWorld) theirs(args ...string) (tip, ended string, paths []string) {
	w.t.Helper()
	_, err := w.try(args...)
	if err == nil {
		return w.git("rev-parse", "HEAD"), "committed", nil
	}
	w.stopped = true
	for entry := range strings.SplitSeq(w.git("ls-files", "--unmerged", "-z"), "\x00") {
		if _, path, ok := strings.Cut(entry, "\t"); ok {
			paths = append(paths, path)
		}
	}
	switch message := err.Error(); {
	case strings.Contains(message, "Assertion"):
		return "", "died", nil
	case strings.Contains(message, "is a merge but no -m"), strings.Contains(message, "does not have parent"),
		strings.Contains(message, "mainline was specified"):
		return "", "refused", nil
	case len(paths) > 0 || strings.Contains(message, "could not apply"), strings.Contains(message, "could not revert"):
		return "", "conflict", slices.Compact(paths)
	case strings.Contains(message, "allow-empty"), strings.Contains(message, "nothing to commit"):
		return "", "empty", nil
	default:
		return "", message, nil
	}
}

// ours makes a pick in the host, on a branch of its own.
func (w *pickWorld) ours(tip string, request engine.PickRequest) (made, ended string, paths []string) {
	w.t.Helper()
	w.moved++
	branch := fmt.Sprint("picks/", w.moved)
	id := parseID(w.t, tip)
	_, err := w.repo.CreateBranch(w.t.Context(), acme, engine.CreateBranchRequest{
		Branch: branch, Base: engine.CommitName{Text: tip},
	})
	must(w.t, err)
	request.Target, request.Expected = engine.MergeBranch{Name: branch}, &id
	request.Committer = oracleAda
	if request.Revert {
		request.Author = oracleAda
	}
	outcome, err := w.repo.Pick(w.t.Context(), acme, request)
	if errors.Is(err, engine.ErrInvalid) {
		return "", "refused", nil
	}
	must(w.t, err)
	if outcome.Kind != engine.PickCommitted {
		for _, c := range outcome.Conflicts {
			if c.Staged() {
				paths = append(paths, c.Path)
			}
		}
		return "", string(outcome.Kind), slices.Compact(paths)
	}
	return outcome.Commit.String(), string(outcome.Kind), nil
}

// TestPicksLikeGit picks commits of generated histories one by one and several at once, and takes
// them back, with and without a mainline, and makes the very commits that git makes.
func TestPicksLikeGit(t *testing.T) {
	t.Parallel()
	history := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 3, CommitCount: 60})
	w := openPicks(t, history.Repository)
	random := rand.New(rand.NewPCG(3, 7))
	met := map[string]int{}
	for range oracle.CaseCount(t, 40, 20) {
		at := random.IntN(len(w.commits))
		tip := w.commits[at]
		request := engine.PickRequest{Revert: random.IntN(3) == 0, Mainline: max(0, random.IntN(5)-2)}
		args := []string{"cherry-pick"}
		if request.Revert {
			args = []string{"revert", "--no-edit"}
		} else if request.Origin = random.IntN(2) == 0; request.Origin {
			args = append(args, "-x")
		}
		if request.Empty = engine.EmptyStops; random.IntN(3) == 0 && !request.Revert {
			request.Empty = engine.EmptyKeeps
			args = append(args, "--keep-redundant-commits")
		}
		if request.Mainline > 0 {
			args = append(args, "--mainline", strconv.Itoa(request.Mainline))
		}
		for range 1 + random.IntN(2)*random.IntN(3) {
			away := random.IntN(2) * random.IntN(4) // from the commits that are sure to fit
			if !request.Revert {
				away = -1 - away
			}
			source := w.commits[max(0, min(len(w.commits)-1, at+away))]
			request.Commits = append(request.Commits, engine.CommitName{Text: source})
			args = append(args, source)
		}
		w.checkout(tip)
		theirTip, theirEnd, theirPaths := w.theirs(args...)
		ourTip, ourEnd, ourPaths := w.ours(tip, request)
		met[theirEnd]++
		if theirEnd != "died" && (ourTip != theirTip || ourEnd != theirEnd || !slices.Equal(ourPaths, theirPaths)) {
			t.Errorf("git %q on %s\nours: %s %s %q\ngit:  %s %s %q", args, tip, ourEnd, ourTip, ourPaths, theirEnd, theirTip,
				theirPaths)
		}
	}
	t.Logf("%v", met)
	for _, end := range []string{"committed", "conflict", "refused"} {
		if met[end] == 0 {
			t.Errorf("no pick ended as %s: %v", end, met)
		}
	}
}

// TestPickedMessages picks commits with messages of all kinds.
func TestPickedMessages(t *testing.T) {
	t.Parallel()
	messages := []string{
		"one line", "subject\n\nbody\n", "\n\n  \nlate subject\n\n\n\nbody  \t\n\n\n", "s\n\nSigned-off-by: A <a@b>\n",
		"s\n\nbody\nSigned-off-by: A <a@b>\n", "s\n\nb\nb\nb\nb\nSigned-off-by: A <a@b>\n", "Signed-off-by: A <a@b>\n",
		"s\n\nKey: value\n  continued\nOther-Key : value\n", "s\n\nKey: value\nno trailer\n", "s\n\nKey: value\n# comment\n",
		"s\n\nbody\n\n(cherry picked from commit 0123456789012345678901234567890123456789)\n",
		"s\n\nKey: value\n\nConflicts:\n\ta\n\tb\n", "s\n\nKey: value\n\n\n# c\n", "s\n\n:no key\n", "s\n\nhttp://x/y\n",
		"s with \"quotes\" and ümlaut\n\n- list: of\n", "s\nsecond line of the title\n\nRe: x\n", "s\r\n\r\nbody\r\n",
		" indented\n\n indented: too\n", "s\n\n indented\nKey: value\n", "#hash\n\nbody\n", "s\n\nKey: v\n\n---\nnot a divider\n",
	}
	bare := oracle.New(t)
	root := bare.Git("commit-tree", "-m", "root", object.EmptyTreeID.String())
	blob := bare.Write("blob", []byte("1\n"))
	tree := strings.TrimSpace(string(bare.Input(fmt.Appendf(nil, "100644 blob %s\tf\n", blob), "mktree")))
	var sources []string
	for i, message := range messages {
		raw := fmt.Sprintf("tree %s\nparent %s\nauthor Ö Thor <o@x> 1234567890 -0730\ncommitter B <b@x> %d +0000\n\n%s", tree,
			root, i, message)
		id := bare.Write("commit", []byte(raw))
		sources = append(sources, id)
		bare.Git("branch", fmt.Sprint("m", i), id)
	}
	w := openPicks(t, bare)
	for i, source := range sources {
		for _, args := range [][]string{{"cherry-pick"}, {"cherry-pick", "-x"}, {"revert", "--no-edit"}} {
			tip := root
			request := engine.PickRequest{
				Commits: []engine.CommitName{{Text: source}}, Revert: args[0] == "revert", Origin: slices.Contains(args, "-x"),
			}
			if request.Revert {
				tip = source
			}
			w.checkout(tip)
			theirs, ended, _ := w.theirs(append(args, source)...)
			ours, _, _ := w.ours(tip, request)
			if ours == theirs {
				continue
			}
			view, err := w.repo.Objects(t.Context())
			must(t, err)
			_, data, err := view.Read(t.Context(), parseID(t, ours))
			must(t, errors.Join(err, view.Close()))
			told := ended
			if theirs != "" {
				told = w.git("cat-file", "commit", theirs)
			}
			t.Errorf("git %q of message %q\nours: %q\ngit:  %q", args, messages[i], data, told)
		}
	}
}

// TestPickEmpty picks commits that change nothing.
func TestPickEmpty(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	first, err := upload(repo, acme, main, change{path: "f", content: "1\n"})
	must(t, err)
	dev := engine.CommitTarget{Branch: "dev", Base: "main"}
	changed, err := upload(repo, acme, dev, change{path: "f", content: "2\n"})
	must(t, err)
	twin := engine.CommitTarget{Branch: "again", Base: "main"}
	_, err = upload(repo, acme, twin, change{path: "h", content: "1\n"})
	must(t, err)
	again, err := upload(repo, acme, twin, change{path: "f", content: "2\n"})
	must(t, err)
	never, err := upload(repo, acme, dev, change{path: "f", content: "2\n"})
	must(t, err)
	last, err := upload(repo, acme, dev, change{path: "g", content: "3\n"})
	must(t, err)
	tests := map[string]struct {
		empty   engine.EmptyPick
		commits []object.ID
		kind    engine.PickKind
		failed  int
		made    []bool
	}{
		"stops":              {"", []object.ID{changed.New, again.New}, engine.PickEmpty, 1, []bool{true, false}},
		"drops":              {engine.EmptyDrops, []object.ID{changed.New, again.New, last.New}, engine.PickCommitted, 0, []bool{true, false, true}},
		"keeps":              {engine.EmptyKeeps, []object.ID{changed.New, again.New, never.New}, engine.PickCommitted, 0, []bool{true, true, true}},
		"empty ever":         {engine.EmptyDrops, []object.ID{changed.New, never.New}, engine.PickEmpty, 1, []bool{true, false}},
		"twice":              {"", []object.ID{changed.New, changed.New}, engine.PickCommitted, 0, []bool{true, false}},
		"nothing to be done": {engine.EmptyDrops, []object.ID{first.New}, engine.PickNothing, 0, []bool{false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := engine.MergeBranch{Name: strings.ReplaceAll(name, " ", "-")}
			_, err := repo.CreateBranch(context.Background(), acme,
				engine.CreateBranchRequest{Branch: target.Name, Base: engine.CommitName{Text: first.New.String()}})
			must(t, err)
			request := engine.PickRequest{Target: target, Committer: thor, Empty: test.empty}
			for _, id := range test.commits {
				request.Commits = append(request.Commits, engine.CommitName{Text: id.String()})
			}
			outcome, err := repo.Pick(context.Background(), acme, request)
			must(t, err)
			var made []bool
			for _, done := range outcome.Done {
				made = append(made, !done.Commit.IsZero())
			}
			if outcome.Kind != test.kind || outcome.Failed != test.failed || !slices.Equal(made, test.made) {
				t.Errorf("outcome is %+v", outcome)
			}
			tip, err := repo.Branch(context.Background(), refs.Main, target.Name)
			must(t, err)
			if moved := tip.Tip != first.New; moved != (test.kind == engine.PickCommitted) {
				t.Errorf("the branch is at %s", tip.Tip)
			}
		})
	}
}

// TestPickLosesRaces moves the target while picks have their turn.
func TestPickLosesRaces(t *testing.T) {
	t.Parallel()
	repo, other := twoHosts(t)
	_, err := upload(repo, acme, main, change{path: "f", content: "1"})
	must(t, err)
	source, err := upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: "main"}, change{path: "dev", content: "1"})
	must(t, err)
	var last engine.CommitResult
	moves := 0
	actor := acme
	actor.Recheck = func() (err error) {
		if moves++; moves <= 3 {
			last, err = upload(other, acme, main, change{path: "moved", content: fmt.Sprint(moves)})
		}
		return err
	}
	outcome, err := repo.Pick(context.Background(), actor, engine.PickRequest{
		Commits: []engine.CommitName{{Text: "dev"}}, Target: engine.MergeBranch{Name: "main"}, Committer: thor,
	})
	must(t, err)
	if outcome.Kind != engine.PickCommitted || outcome.Old != last.New || outcome.Done[0].Source != source.New {
		t.Errorf("outcome is %+v, want one on %s", outcome, last.New)
	}
}
