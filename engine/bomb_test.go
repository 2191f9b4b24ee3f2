package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// treeBomb makes a commit whose tree has ten entries, each of them the same tree of ten, and so on:
// 10^depth files of some hundred bytes.
func treeBomb(git *oracle.Repository, depth int, content, parents string) string {
	entry, id := "100644", git.Write("blob", []byte(content))
	for range depth {
		var tree []byte
		for i := range 10 {
			tree = fmt.Appendf(tree, "%s f%d\x00", entry, i)
			parsed, _ := object.ParseID(id) // as git prints it
			tree = append(tree, parsed[:]...)
		}
		entry, id = "40000", git.Write("tree", tree)
	}
	return git.Write("commit",
		[]byte("tree "+id+"\n"+parents+"author A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\n"+content+"\n"))
}

// TestTreeBombs reads a tree of a billion files in several ways: each request ends at the limit of
// memory, whatever the page.
func TestTreeBombs(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	root := git.Write("commit",
		[]byte("tree "+git.Write("tree", nil)+"\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n"))
	ours, theirs := treeBomb(git, 9, "ours", "parent "+root+"\n"), treeBomb(git, 9, "theirs", "parent "+root+"\n")
	pack := git.Input([]byte(ours+"\n"+theirs+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	host, shut := enginetest.OpenOn(t, vfs.NewMem(),
		engine.Config{Limits: engine.Limits{TraceBytesMax: 8 << 20, MergePathBytesMax: 4 << 20}})
	defer shut()
	repo := enginetest.Create(t, host, "r")
	id := func(hex string) object.ID {
		parsed, err := object.ParseID(hex)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	enginetest.Push(t, repo, pack, engine.Command{Name: "refs/heads/main", New: id(ours)},
		engine.Command{Name: "refs/heads/theirs", New: id(theirs)})
	reserved, most := int64(0), int64(0)
	reserve := func(_ context.Context, sizeBytes int64) (func(), error) {
		reserved += sizeBytes
		most = max(most, reserved)
		return func() { reserved -= sizeBytes }, nil
	}
	for _, limit := range []int{0, 10} {
		_, err := repo.Metadata(t.Context(), engine.MetadataRequest{Limit: limit, Reserve: reserve})
		if !errors.Is(err, engine.ErrTooLarge) {
			t.Errorf("a listing of at most %d: %v", limit, err)
		}
	}
	if reserved != 0 || most == 0 {
		t.Errorf("%d bytes were not given back, of up to %d", reserved, most)
	}
	folder, err := repo.Metadata(t.Context(), engine.MetadataRequest{Path: "f0/f1/f2/f3/f4/f5/f6"})
	if err != nil {
		t.Fatalf("a folder of a hundred files: %v", err)
	}
	if err := folder.Close(); err != nil {
		t.Error(err)
	}
	_, err = repo.PreviewMerge(t.Context(), branchNamed("theirs"), engine.MergeBranch{Name: "main"}, false)
	if !errors.Is(err, merge.ErrManyPaths) {
		t.Errorf("a merge of two: %v", err)
	}
}
