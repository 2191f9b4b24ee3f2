package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Requests to a fork by ref are answered without a visibility walk, also after commits to it.
// Requests by an ID that is no tip compute the visibility set once.
func TestForkAnswersByRefAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	host := enginetest.Open(t)
	base := enginetest.Create(t, host, "base")
	commits := seedHistory(t, base, 12)
	tip := commits[len(commits)-1]
	side := engine.CommitTarget{Branch: "side", Base: "main"}
	sideTip, err := upload(base, acme, side, change{path: "dir/side", content: "side\n"})
	must(t, err)
	hidden, err := upload(base, acme, engine.CommitTarget{Branch: "hidden", Base: "main"},
		change{path: "secret", content: "secret\n"})
	must(t, err)
	_, err = base.AddNote(ctx, acme, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(tip)}, "a note", false)
	must(t, err)
	_, err = base.DeleteBranch(ctx, acme, refs.Main, "hidden")
	must(t, err)
	_, err = host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "base"}})
	must(t, err)
	fork, err := host.Repository(ctx, enginetest.Org, "fork")
	must(t, err)

	reads := func() {
		t.Helper()
		files, err := fork.Files(ctx, engine.FilesRequest{})
		must(t, err)
		for _, err := range files.All(ctx) {
			must(t, err)
		}
		must(t, files.Close())
		file, err := fork.File(ctx, engine.FileRequest{Path: "dir/f3"})
		must(t, err)
		content, err := file.Content(ctx)
		must(t, err)
		must(t, content.Close())
		must(t, file.Close())
		metadata, err := fork.Metadata(ctx, engine.MetadataRequest{Ref: "side"})
		must(t, err)
		for _, err := range metadata.Commits(ctx) {
			must(t, err)
		}
		must(t, metadata.Close())
		page, err := fork.Commits(ctx, engine.CommitsRequest{Limit: 3, Path: "dir"})
		must(t, err)
		if len(page.Items) != 3 {
			t.Errorf("%d commits are listed", len(page.Items))
		}
		found, err := fork.Grep(ctx, engine.GrepRequest{Pattern: "[0-9]", MatchesMax: 10, FilesMax: 10, LinesMax: 100})
		must(t, err)
		if len(found.Files) == 0 {
			t.Error("nothing is found")
		}
		lines, err := fork.Blame(ctx, engine.BlameRequest{Path: "dir/f3"})
		must(t, err)
		for _, err := range lines.Lines(ctx) {
			must(t, err)
		}
		must(t, lines.Close())
		packed, err := fork.Archive(ctx, engine.ArchiveRequest{BlobBytesMax: 1 << 20})
		must(t, err)
		must(t, packed.WriteTar(ctx, io.Discard))
		must(t, packed.Close())
		contents, err := fork.ReadFiles(ctx, engine.ReadFilesRequest{Known: map[object.ID]bool{tip: true}})
		must(t, err)
		for _, err := range contents.All(ctx, nil) {
			must(t, err)
		}
		must(t, contents.Close())
		diff, err := fork.BranchDiff(ctx, engine.BranchDiffRequest{Branch: "side"}, unlimited{})
		must(t, err)
		for _, err := range diff.Files(nil) {
			must(t, err)
		}
		must(t, diff.Close())
		_, err = fork.PreviewMerge(ctx, branchNamed("side"), engine.MergeBranch{Name: "main"}, true)
		must(t, err)
		note, err := fork.Note(ctx, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(tip)})
		if err != nil || note.Text != "a note" {
			t.Errorf("the note is %q, %v", note.Text, err)
		}
		_, err = clone(fork, engine.FetchRequest{Wants: []object.ID{tip, sideTip.New}}, engine.SendOptions{})
		must(t, err)
		if n := host.VisibilityWalkCount(); n != 0 {
			t.Fatalf("%d walks were begun", n)
		}
	}
	reads()
	for i := range 3 {
		_, err = upload(fork, acme, main, change{path: fmt.Sprint("dir/f", i), content: "in the fork\n"})
		must(t, err)
		_, err = fork.AddNote(ctx, acme, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(tip)}, "more", true)
		must(t, err)
		_, err = fork.DeleteNote(ctx, acme, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(tip)})
		must(t, err)
		_, err = fork.AddNote(ctx, acme, engine.NoteTarget{Ref: "refs/notes/commits", Object: named(tip)}, "a note", false)
		must(t, err)
		reads()
	}
	merged, err := fork.Merge(ctx, acme, engine.MergeRequest{
		Source: branchNamed("side"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
		Details: engine.CommitDetails{Message: "merge", Author: thor},
	})
	if err != nil || merged.Kind != engine.MergeCommitted {
		t.Fatalf("merge: %s, %v", merged.Kind, err)
	}
	_, err = fork.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: "new", Base: branchNamed("side")})
	must(t, err)
	reads()

	for _, id := range []object.ID{hidden.New, {1}} {
		if _, err := fork.Commit(ctx, named(id)); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("commit %s: %v", id, err)
		}
	}
	if _, err := fork.Commit(ctx, named(commits[3])); err != nil {
		t.Errorf("a commit that main reaches: %v", err)
	}
	if n := host.VisibilityWalkCount(); n != 1 {
		t.Errorf("%d walks were begun", n)
	}
	checkSound(context.WithoutCancel(ctx), t, host)
}

// checkSound wants fsck to find nothing.
func checkSound(ctx context.Context, t *testing.T, host *engine.Host) {
	t.Helper()
	for checked, err := range host.Fsck(ctx, engine.FsckOptions{}) {
		must(t, err)
		for _, problem := range checked.Problems() {
			t.Errorf("%s: %s", checked.Name, problem)
		}
	}
}

// unlimited gives slots and memory to everyone.
type unlimited struct{}

func (unlimited) Slot(context.Context) (func(), error)           { return func() {}, nil }
func (unlimited) Reserve(context.Context, int64) (func(), error) { return func() {}, nil }
