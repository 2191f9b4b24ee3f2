package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// nameWorld is a history of six commits on main, the branch dev that left main at its fourth one
// for one commit more, and annotated tags.
type nameWorld struct {
	t    *testing.T
	host *engine.Host
	repo *engine.Repository
	main []object.ID // the tip first
	dev  object.ID
	tag  object.ID // the object of the tag v1, which leads to main[2]
}

func newNameWorld(t *testing.T) *nameWorld {
	t.Helper()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 9, Commits: 6, Files: 4})
	w := &nameWorld{t: t, host: enginetest.Open(t)}
	for id := range strings.FieldsSeq(git.Git("rev-list", "main")) {
		w.main = append(w.main, parseID(t, id))
	}
	git.Git("tag", "-a", "-m", "m", "v1", w.main[2].String())
	git.Git("tag", "-a", "-m", "m", "of-tree", "main^{tree}")
	git.Git("update-ref", "refs/heads/dev", git.Git("commit-tree", "-p", "main~2", "-m", "dev", "main~2^{tree}"))
	git.Git("update-ref", "refs/tags/dev", "main~5")
	w.dev, w.tag = parseID(t, git.Git("rev-parse", "refs/heads/dev")), parseID(t, git.Git("rev-parse", "v1"))
	w.repo = enginetest.Create(t, w.host, "r")
	enginetest.Push(t, w.repo, git.Input(nil, "pack-objects", "--revs", "--all", "--stdout", "-q"),
		engine.Command{Name: "refs/heads/main", New: w.main[0]}, engine.Command{Name: "refs/heads/dev", New: w.dev},
		engine.Command{Name: "refs/tags/v1", New: w.tag}, engine.Command{Name: "refs/tags/dev", New: w.main[5]},
		engine.Command{Name: "refs/tags/of-tree", New: parseID(t, git.Git("rev-parse", "of-tree"))},
		engine.Command{Name: "refs/heads/refs/heads/dev", New: w.main[1]})
	_, err := w.repo.CreateBranch(t.Context(), acme, engine.CreateBranchRequest{
		Branch: "spike", Namespace: refs.Ephemeral, Base: engine.CommitName{Text: "main~"},
	})
	must(t, err)
	return w
}

func rev(text string) engine.CommitName { return engine.CommitName{Text: text} }

func TestCommitNames(t *testing.T) {
	t.Parallel()
	w := newNameWorld(t)
	id, ephemeral := w.main[1].String(), refs.Ephemeral
	tests := []struct {
		name engine.CommitName
		want object.ID
		err  error
		says string
	}{
		{name: rev(""), want: w.main[0]},
		{name: rev("HEAD^^"), want: w.main[2]},
		{name: rev("@~2"), want: w.main[2]},
		{name: rev("v1~1"), want: w.main[3]},
		{name: rev(w.tag.String()[:12] + "~"), want: w.main[3]},
		{name: rev("dev"), want: w.dev}, // the branch, not the tag
		{name: rev("refs/tags/dev"), want: w.main[5]},
		{name: rev("refs/heads/dev"), want: w.dev}, // and not the branch of that name
		{name: rev(strings.ToUpper(id[:8])), want: w.main[1]},
		{name: engine.CommitName{Text: "spike~1", Namespace: ephemeral}, want: w.main[2]},
		{name: engine.CommitName{Text: "HEAD", Namespace: ephemeral}, err: engine.ErrNotFound, says: `ref "HEAD" not found`},
		{
			name: rev("spike"), err: engine.ErrNotFound,
			says: `ref "spike" not found; there is one among the ephemeral branches`,
		},
		{
			name: rev("spike~1"), err: engine.ErrNotFound,
			says: `ref "spike~1": ref "spike" not found; there is one among the ephemeral branches`,
		},
		{name: rev("refs/namespaces/ephemeral/refs/heads/spike"), err: engine.ErrNotFound, says: "not found"},
		{name: rev("nope~3"), err: engine.ErrNotFound, says: `ref "nope~3": ref "nope" not found`},
		{name: rev("of-tree"), err: engine.ErrNotFound, says: `ref "of-tree" not found`},
		{
			name: rev("main~1~99"), err: engine.ErrNotFound,
			says: `ref "main~1~99" not found: "main~1" has 4 first-parent ancestors`,
		},
		{name: rev("main~5^"), err: engine.ErrNotFound, says: `ref "main~5^" not found: "main~5" has no parent`},
		{name: rev("main^2"), err: engine.ErrNotFound, says: `ref "main^2" not found: "main" has 1 parent`},
		{name: rev("a..b"), err: engine.ErrInvalid, says: `ref "a..b": a range (a..b) is not taken`},
		{
			name: engine.CommitName{Text: "main@{1}", Field: "base_ref"}, err: engine.ErrInvalid,
			says: `base_ref "main@{1}": @{1} is not taken: a moment is a time of RFC 3339, ` +
				`such as 2026-11-22T09:27:21Z, or seq:N, a position in the journal`,
		},
		{name: branchNamed("dev"), want: w.dev},
		{name: branchNamed("main~1"), err: engine.ErrNotFound, says: `branch "main~1" not found`},
		{name: branchNamed("v1"), err: engine.ErrNotFound, says: `branch "v1" not found`},
		{name: named(w.tag), want: w.main[2]},
		{name: engine.CommitName{Text: strings.ToUpper(id), Kind: engine.FullID}, want: w.main[1]},
		{
			name: engine.CommitName{Text: id[:8], Kind: engine.FullID, Field: "sha"}, err: engine.ErrInvalid,
			says: `sha: expected the 40 hexadecimal digits of a commit, got "` + id[:8],
		},
		{name: named(object.ID{1}), err: engine.ErrNotFound, says: "commit 01000000"},
		{name: engine.CommitName{Text: id[:7], Kind: engine.IDPrefix}, want: w.main[1]},
		{name: engine.CommitName{Text: "fffffff", Kind: engine.IDPrefix}, err: engine.ErrNotFound, says: "commit fffffff not found"},
		{
			name: engine.CommitName{Text: id[:7] + "~", Kind: engine.IDPrefix, Field: "sha"}, err: engine.ErrInvalid,
			says: "sha: expected 7 to 40 hexadecimal digits",
		},
	}
	for _, test := range tests {
		got, err := w.repo.Commit(t.Context(), test.name)
		if !errors.Is(err, test.err) || got.ID != test.want || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v is %s, %v, want %s, %v: %s", test.name, got.ID, err, test.want, test.err, test.says)
		}
	}
}

// TestNamesOfReads lists and compares commits that revisions name.
func TestNamesOfReads(t *testing.T) {
	t.Parallel()
	w := newNameWorld(t)
	var listed []object.ID
	request := engine.CommitsRequest{From: rev("main~2"), Limit: 2}
	for {
		page, err := w.repo.Commits(t.Context(), request)
		must(t, err)
		for i := range page.Items {
			listed = append(listed, page.Items[i].ID)
		}
		if request.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if !slices.Equal(listed, w.main[2:]) {
		t.Errorf("commits of main~2 are %v, want %v", listed, w.main[2:])
	}
	d, err := w.repo.CommitDiff(t.Context(), engine.CommitDiffRequest{
		Commit: rev("dev"), Base: engine.CommitName{Text: "spike", Namespace: refs.Ephemeral},
	}, unlimited{})
	must(t, err)
	must(t, d.Close())
	if d.Commit != w.dev || d.BaseCommit != w.main[1] || d.MergeBase != w.main[2] {
		t.Errorf("the diff is of %s and %s from %s", d.Commit, d.BaseCommit, d.MergeBase)
	}
}

// TestMergeSources merges commits that are no branches.
func TestMergeSources(t *testing.T) {
	t.Parallel()
	w := newNameWorld(t)
	must2 := func(_ engine.CreatedBranch, err error) { t.Helper(); must(t, err) }
	for name, base := range map[string]string{"old": "main~4", "other": "main~4"} {
		must2(w.repo.CreateBranch(t.Context(), acme, engine.CreateBranchRequest{Branch: name, Base: rev(base)}))
	}
	tests := []struct {
		source       engine.CommitName
		target       string
		kind         engine.MergeKind
		tip          object.ID // of the source
		promoted     int
		base, forced object.ID
	}{
		{rev("main~3"), "old", engine.MergeForwarded, w.main[3], 1, w.main[4], w.main[3]},
		{rev("v1"), "old", engine.MergeForwarded, w.main[2], 1, w.main[3], w.main[2]},
		{rev("v1~2"), "old", engine.MergeNothing, w.main[4], 0, w.main[4], w.main[2]},
		{
			engine.CommitName{Text: "spike^0", Namespace: refs.Ephemeral},
			"old", engine.MergeForwarded, w.main[1], 1, w.main[2],
			w.main[1],
		},
		{rev("dev^{}"), "old", engine.MergeCommitted, w.dev, 1, w.main[2], object.ZeroID},
		{rev(w.main[0].String()[:10]), "other", engine.MergeForwarded, w.main[0], 4, w.main[4], w.main[0]},
	}
	for _, test := range tests {
		into := engine.MergeBranch{Name: test.target}
		preview, err := w.repo.PreviewMerge(t.Context(), test.source, into, false)
		if err != nil || preview.Kind != test.kind || preview.Source != test.tip || preview.Base != test.base {
			t.Errorf("%s into %s: the preview is %+v, %v", test.source.Text, test.target, preview.MergeOutcome, err)
		}
		got, err := w.repo.Merge(t.Context(), acme, engine.MergeRequest{
			Source: test.source, Target: into, Strategy: engine.PreferForward,
			Details: engine.CommitDetails{Message: "m", Author: thor},
		})
		if err != nil || got.Kind != test.kind || got.Source != test.tip || got.Base != test.base ||
			got.Promoted != test.promoted || !test.forced.IsZero() && got.Commit != test.forced {
			t.Errorf("%s into %s: %+v, %v", test.source.Text, test.target, got, err)
		}
	}
	for source, want := range map[string]error{"old": engine.ErrInvalid, "a..b": engine.ErrInvalid, "main~99": engine.ErrNotFound} {
		_, err := w.repo.Merge(t.Context(), acme, engine.MergeRequest{
			Source: rev(source), Target: engine.MergeBranch{Name: "old"}, Strategy: engine.PreferForward,
		})
		if !errors.Is(err, want) {
			t.Errorf("merging %s gives %v", source, err)
		}
	}
}

// TestNamesOfWrites makes tags, commits, notes and forks of commits that revisions name.
func TestNamesOfWrites(t *testing.T) {
	t.Parallel()
	w := newNameWorld(t)
	ctx := t.Context()
	for text, want := range map[string]object.ID{"v1": w.main[2], w.tag.String(): w.main[2], "dev~2": w.main[3]} {
		name := fmt.Sprintf("of-%x", text)
		made, err := w.repo.CreateTag(ctx, acme, refs.Main, name, rev(text))
		tag, lookErr := w.repo.Tag(ctx, refs.Main, name)
		if err != nil || lookErr != nil || made.Commit != want || tag.Target != want || !tag.Object.IsZero() {
			t.Errorf("a tag of %s is %v, %v, looked up %v, %v", text, made, err, tag, lookErr)
		}
	}
	restored, err := w.repo.RestoreCommit(ctx, acme, engine.RestoreRequest{
		Target: main, Commit: rev("v1~1"), Details: engine.CommitDetails{Author: thor},
	})
	must(t, err)
	made, err := w.repo.Commit(ctx, rev("main"))
	if err != nil || made.ID != restored.New || made.Message != "Restore "+w.main[3].String() {
		t.Errorf("the restored commit is %+v, %v", made, err)
	}
	if _, err := w.repo.RestoreCommit(ctx, acme, engine.RestoreRequest{
		Target: main, Commit: rev("main~99"), Details: engine.CommitDetails{Author: thor},
	}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("restoring a commit that is not there gives %v", err)
	}

	target := engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: rev("v1~1")}
	added, err := w.repo.AddNote(ctx, acme, target, "note", false)
	if err != nil || added.Commit != w.main[3] {
		t.Errorf("the note is about %s, %v", added.Commit, err)
	}
	note, err := w.repo.Note(ctx, target)
	if err != nil || note.Commit != w.main[3] || note.Text != "note" {
		t.Errorf("the note is %+v, %v", note, err)
	}
	if removed, err := w.repo.DeleteNote(ctx, acme, target); err != nil || removed.Commit != w.main[3] {
		t.Errorf("the removed note is %+v, %v", removed, err)
	}
	target.Object = rev("nope^")
	if _, err := w.repo.AddNote(ctx, acme, target, "note", false); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a note about nothing gives %v", err)
	}

	for ref, want := range map[string][]string{
		"v1": {"refs/heads/main", "refs/tags/v1"}, "v1^{}": {"refs/heads/main", "refs/tags/v1"}, "v1~1": {"refs/heads/main"},
		"dev~1": {"refs/heads/dev"},
	} {
		name := fmt.Sprintf("fork-%x", ref)
		_, err := w.host.CreateRepository(ctx, acme, engine.CreateRequest{Name: name, Base: &engine.Base{Name: "r", Ref: ref}})
		must(t, err)
		fork, err := w.host.Repository(ctx, enginetest.Org, name)
		must(t, err)
		var got []string
		branches, err := fork.Branches(ctx, refs.Main, "", 10)
		must(t, err)
		for _, b := range branches.Items {
			got = append(got, "refs/heads/"+b.Name)
		}
		tags, err := fork.Tags(ctx, refs.Main, "", 10)
		must(t, err)
		for _, tag := range tags.Items {
			got = append(got, "refs/tags/"+tag.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a fork of %s has %v, want %v", ref, got, want)
		}
	}
}

// TestForcedBranch moves a branch that exists, and looks refs up.
func TestForcedBranch(t *testing.T) {
	t.Parallel()
	w := newNameWorld(t)
	ctx := t.Context()
	policy, err := refs.ParsePolicy(nil, []string{string(refs.NoForcePush)})
	must(t, err)
	careful := acme
	careful.Policy = policy
	steps := []struct {
		actor engine.Actor
		base  string
		force bool
		moved bool
		err   error
	}{
		{acme, "main~2", true, false, nil},
		{acme, "main~1", false, false, engine.ErrExists},
		{acme, "main~3", true, true, nil},
		{acme, "main~3", true, true, nil}, // again: nothing changes
		{careful, "main~1", true, true, nil},
		{careful, "main~2", true, true, refs.ErrDenied},
		{careful, "b", true, true, nil},
		{acme, "b~1", true, true, nil},
		{acme, "b~99", true, true, engine.ErrNotFound},
	}
	old := engine.Branch{}
	for i, step := range steps {
		was, err := w.repo.Sequence(ctx)
		must(t, err)
		request := engine.CreateBranchRequest{Branch: "b", Base: rev(step.base), Force: step.force}
		made, err := w.repo.CreateBranch(ctx, step.actor, request)
		now, nowErr := w.repo.Branch(ctx, refs.Main, "b")
		must(t, nowErr)
		if !errors.Is(err, step.err) {
			t.Fatalf("step %d, to %s, gives %v, want %v", i, step.base, err, step.err)
		}
		if err != nil {
			if now != old {
				t.Errorf("step %d was refused, and the branch is %+v", i, now)
			}
			continue
		}
		want := was + 1
		if made.Tip == made.Old {
			want = was
		}
		if reached, err := w.repo.Sequence(ctx); err != nil || made.Sequence != reached {
			t.Errorf("step %d tells sequence %d, and the journal is at %d, %v", i, made.Sequence, reached, err)
		}
		if made.Moved != step.moved || made.Tip != now.Tip || made.Old != old.Tip || made.Sequence != want || now.Name != "b" ||
			step.moved && !now.Created.Equal(old.Created) {
			t.Errorf("step %d: %+v at %d, the branch is %+v, was %+v", i, made, was, now, old)
		}
		old = now
	}

	// With an idempotency key a move to where the branch is already is remembered: its repetition does
	// not undo a later one.
	keyed := acme
	keyed.Receipt = &refs.Receipt{Key: refs.ReceiptKey{Org: "acme", Repo: "r", Endpoint: "branch", Key: "k"}}
	again := engine.CreateBranchRequest{Branch: "b", Base: rev(old.Tip.String()), Force: true}
	first, err := w.repo.CreateBranch(ctx, keyed, again)
	must(t, err)
	if reached, err := w.repo.Sequence(ctx); err != nil || first.Sequence != reached {
		t.Errorf("the answer tells sequence %d, and the journal is at %d, %v", first.Sequence, reached, err)
	}
	moved, err := w.repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: "b", Base: rev("main"), Force: true})
	must(t, err)
	second, err := w.repo.CreateBranch(ctx, keyed, again)
	now, nowErr := w.repo.Branch(ctx, refs.Main, "b")
	if err != nil || nowErr != nil || second != first || now.Tip != moved.Tip || moved.Tip == first.Tip {
		t.Errorf("repeated: %+v, %v, and before %+v; the branch is %+v, %v", second, err, first, now, nowErr)
	}

	tag, err := w.repo.Tag(ctx, refs.Main, "v1")
	if err != nil || tag.Name != "v1" || tag.Target != w.main[2] || tag.Object != w.tag {
		t.Errorf("the tag is %+v, %v", tag, err)
	}
	if _, err := w.repo.Branch(ctx, refs.Ephemeral, "spike"); err != nil {
		t.Error(err)
	}
	_, noBranch := w.repo.Branch(ctx, refs.Main, "spike")
	_, noTag := w.repo.Tag(ctx, refs.Ephemeral, "v1")
	_, noName := w.repo.Branch(ctx, refs.Main, "main~1")
	for _, err := range []error{noBranch, noTag, noName} {
		if !errors.Is(err, engine.ErrNotFound) || err.Error() != "ref not found" {
			t.Errorf("a ref that is not there gives %v", err)
		}
	}
}
