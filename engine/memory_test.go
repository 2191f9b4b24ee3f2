package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/fair"
)

// TestMemoryOfLargeRequests makes requests about a file of some megabytes, and about a small file
// in a folder with very many. Each holds more memory than it was admitted for, in proportion to the
// file or to the folder, and is refused where there cannot be so much.
func TestMemoryOfLargeRequests(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	large := bytes.Repeat([]byte("a line\nand another one\n"), 130_000)
	blob := git.Write("blob", []byte("x"))
	commitOf := func(text []byte, first string, more ...string) string {
		var folder strings.Builder
		fmt.Fprintf(&folder, "100644 blob %s\tf\n", git.Write("blob", []byte(first)))
		for i := range 40_000 {
			fmt.Fprintf(&folder, "100644 blob %s\tf%06d\n", blob, i)
		}
		tree := fmt.Sprintf("100644 blob %s\tlarge\n040000 tree %s\tmany\n", git.Write("blob", text),
			strings.TrimSpace(string(git.Input([]byte(folder.String()), "mktree"))))
		return git.Git(append([]string{"commit-tree", "-m", "m", strings.TrimSpace(string(git.Input([]byte(tree), "mktree")))},
			more...)...)
	}
	root := commitOf(large, "1")
	tip := commitOf(append([]byte("a first line\n"), large...), "2", "-p", root)
	side := commitOf(large, "1\n3", "-p", root)
	pack := git.Input([]byte(tip+"\n"+side+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	const fileSize, folderSize = 2_900_000, 1_400_000

	requests := map[string]struct {
		least int64
		do    func(ctx context.Context, repo *engine.Repository, r *reserving) error
	}{
		"file in a folder": {4 * folderSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			f, err := repo.File(ctx, engine.FileRequest{Path: "many/f000007"})
			if err != nil {
				return err
			}
			return f.Close()
		}},
		"listing of a folder": {4 * folderSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			files, err := repo.Files(ctx, engine.FilesRequest{Path: "many"})
			if err != nil {
				return err
			}
			for _, failed := range files.All(ctx) {
				if err = failed; err != nil {
					break
				}
			}
			return errors.Join(err, files.Close())
		}},
		"diff of the file": {4 * fileSize, func(ctx context.Context, repo *engine.Repository, r *reserving) error {
			d, err := repo.CommitDiff(ctx, engine.CommitDiffRequest{
				Commit: named(parseID(t, tip)), DiffOptions: engine.DiffOptions{Paths: []string{"large"}},
			}, r)
			if err != nil {
				return err
			}
			for _, failed := range d.Files(nil) {
				if err = failed; err != nil {
					break
				}
			}
			return errors.Join(err, d.Close())
		}},
		"blame": {8 * fileSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			b, err := repo.Blame(ctx, engine.BlameRequest{Path: "large"})
			if err != nil {
				return err
			}
			return b.Close()
		}},
		"merge": {4 * folderSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			_, err := repo.PreviewMerge(ctx, branchNamed("side"), engine.MergeBranch{Name: "main"}, false)
			return err
		}},
		"commit into a folder": {4 * folderSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			_, err := uploadWhile(ctx, repo, acme, main, change{path: "many/new", content: "x"})
			return err
		}},
		"edit": {3 * fileSize, func(ctx context.Context, repo *engine.Repository, _ *reserving) error {
			u, err := repo.NewUpload(ctx, acme, engine.UploadRequest{
				Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
				Operations: []engine.FileOperation{edited("large", commit.Edit{Old: "a first line\n", New: ""})},
			})
			if err != nil {
				return err
			}
			defer u.Close()
			_, err = u.Finish(ctx)
			return err
		}},
	}
	for name, test := range requests {
		for _, capacity := range []int64{64 << 20, 1 << 20} {
			t.Run(fmt.Sprint(name, " with ", capacity), func(t *testing.T) {
				t.Parallel()
				host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{})
				defer shut()
				repo := enginetest.Create(t, host, "r")
				enginetest.Push(t, repo, pack, engine.Command{Name: "refs/heads/main", New: parseID(t, tip)},
					engine.Command{Name: "refs/heads/side", New: parseID(t, side)})
				var holding fair.Holding
				holding.Begin(fair.NewQueue(fair.Options{Capacity: capacity, Wait: time.Hour}), fair.Tenant{Org: "acme"}, 0)
				defer holding.Close()
				r := &reserving{}
				err := test.do(fair.Hold(t.Context(), &holding), repo, r)
				held := max(r.held, holding.Total())
				switch {
				case capacity < test.least && r.held == 0 && !errors.Is(err, fair.ErrMemory):
					t.Errorf("without the memory: %v", err)
				case capacity > test.least && (err != nil || held < test.least):
					t.Errorf("it holds %d bytes, want %d: %v", held, test.least, err)
				}
			})
		}
	}
}

// reserving is the resources of one request, which reserves memory once at a time.
type reserving struct {
	unlimited
	held int64
}

func (r *reserving) Reserve(_ context.Context, sizeBytes int64) (func(), error) {
	r.held = max(r.held, sizeBytes)
	return func() {}, nil
}
