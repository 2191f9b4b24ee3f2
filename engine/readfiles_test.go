package engine_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/archive"
	"packhorse/engine/enginetest"
	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// readAll returns a line for each file, with its content or what stands in its place, and the
// missing paths.
func readAll(t *testing.T, repo *engine.Repository, request engine.ReadFilesRequest) (lines, missing []string) {
	t.Helper()
	c, err := repo.ReadFiles(t.Context(), request)
	if err != nil {
		t.Fatalf("%+v: %v", request, err)
	}
	for f, err := range c.All(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %s %q", f.Mode, f.ID, f.Path)
		switch f.Content {
		case archive.Held, archive.Stored:
			var content bytes.Buffer
			if n, err := f.WriteTo(t.Context(), &content); err != nil || n != f.Size || int64(content.Len()) != n {
				t.Fatalf("%q has %d bytes, wrote %d: %v", f.Path, f.Size, n, err)
			}
			line += fmt.Sprintf(" %q", content.String())
		case archive.Known, archive.TooLarge:
			line += fmt.Sprintf(" %d in place of %d", f.Size, f.Content)
		case archive.NoContent:
		}
		lines = append(lines, line)
	}
	for path, err := range c.Missing(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		missing = append(missing, path)
	}
	must(t, c.Close())
	return lines, missing
}

// leaf is a file of git's ls-tree.
type leaf struct{ mode, id, path string }

func listTree(git *oracle.Repository, commit string) []leaf {
	var leaves []leaf
	for entry := range strings.SplitSeq(strings.TrimSuffix(git.Git("ls-tree", "-r", "-z", commit), "\x00"), "\x00") {
		meta, path, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(meta); len(fields) == 3 {
			leaves = append(leaves, leaf{fields[0], fields[2], path})
		}
	}
	return leaves
}

// randomSpec selects by paths and globs that sometimes match.
func randomSpec(random *rand.Rand, leaves []leaf) pathspec.Spec {
	some := func(count int, candidates []string) []string {
		var list []string
		for range random.IntN(count) {
			list = append(list, candidates[random.IntN(len(candidates))])
		}
		return list
	}
	paths := []string{"nope", "a/nope", "dir/", "a", "/dir", "lib.c/"}
	for _, l := range leaves {
		folder, _, _ := strings.Cut(l.path, "/")
		paths = append(paths, l.path, l.path+"/", l.path+"/x", folder, folder+"/")
	}
	globs := []string{"*.c", "a", "dir/**", "**/b", "z b", "*ü*", "[ab]", "nope", "dir/*"}
	return pathspec.Spec{Paths: some(4, paths), Include: some(3, globs), Exclude: some(3, globs)}
}

// TestReadFilesIsGits reads random files of random trees, and compares with git ls-tree, git
// cat-file, and an archive.
func TestReadFilesIsGits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 5))
	git := oracle.New(t)
	git.Evolve(random, nil, 40)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	commits := strings.Fields(git.Git("rev-list", "main"))
	contents := make(map[string][]byte)
	content := func(id string) []byte {
		if contents[id] == nil {
			contents[id] = append(git.Input(nil, "cat-file", "blob", id), 0)
		}
		return contents[id][:len(contents[id])-1]
	}
	for range oracle.CaseCount(t, 300, 60) {
		commit := commits[random.IntN(len(commits))]
		leaves := listTree(git, commit)
		request := engine.ReadFilesRequest{Ref: commit, Files: randomSpec(random, leaves), Known: map[object.ID]bool{}}
		if random.IntN(2) == 0 {
			request.BlobBytesMax = 1 + random.Int64N(300)
		}
		for _, l := range leaves {
			if random.IntN(3) == 0 {
				request.Known[parseID(t, l.id)] = true
			}
		}
		lines, missing := readAll(t, repo, request)
		wantLines, wantMissing := expectedFiles(t, leaves, &request, content)
		if !slices.Equal(lines, wantLines) || !slices.Equal(missing, wantMissing) {
			t.Fatalf("%s %+v:\ngot  %q, missing %q\nwant %q, missing %q", commit, request, lines, missing, wantLines,
				wantMissing)
		}
		request.Known = nil
		lines, _ = readAll(t, repo, request)
		if told := archivedLines(t, repo, &request); !slices.Equal(regularContents(lines), told) {
			t.Fatalf("%s %+v:\ngot      %q\narchived %q", commit, request, regularContents(lines), told)
		}
	}
}

// expectedFiles is what readAll should return, from a listing of git's.
func expectedFiles(
	t *testing.T, leaves []leaf, request *engine.ReadFilesRequest, content func(id string) []byte,
) (lines, missing []string) {
	t.Helper()
	globs := pathspec.Spec{Include: request.Files.Include, Exclude: request.Files.Exclude}
	filter, err := globs.Compile()
	must(t, err)
	isFolder := func(path string) bool {
		return slices.ContainsFunc(leaves, func(l leaf) bool { return strings.HasPrefix(l.path, path+"/") })
	}
	selects := func(asked string, l leaf) bool {
		path := strings.Trim(asked, "/")
		return strings.HasPrefix(l.path, path+"/") || l.path == path && !strings.HasSuffix(asked, "/")
	}
	for _, l := range leaves {
		inPath := len(request.Files.Paths) == 0 ||
			slices.ContainsFunc(request.Files.Paths, func(asked string) bool { return selects(asked, l) })
		if !inPath || !filter.Match(l.path) {
			continue
		}
		line := fmt.Sprintf("%s %s %q", l.mode, l.id, l.path)
		if l.mode != "160000" {
			size := int64(len(content(l.id)))
			switch {
			case request.Known[parseID(t, l.id)]:
				line += fmt.Sprintf(" %d in place of %d", size, archive.Known)
			case request.BlobBytesMax > 0 && size > request.BlobBytesMax:
				line += fmt.Sprintf(" %d in place of %d", size, archive.TooLarge)
			default:
				line += fmt.Sprintf(" %q", content(l.id))
			}
		}
		lines = append(lines, line)
	}
	for _, asked := range request.Files.Paths {
		path := strings.Trim(asked, "/")
		if !isFolder(path) && !slices.ContainsFunc(leaves, func(l leaf) bool { return selects(asked, l) }) {
			missing = append(missing, asked)
		}
	}
	return lines, missing
}

// regularContents returns the path and content of regular files that were not left out.
func regularContents(lines []string) []string {
	var told []string
	for _, line := range lines {
		if strings.HasPrefix(line, "100") && !strings.HasSuffix(line, fmt.Sprint(" in place of ", archive.TooLarge)) {
			told = append(told, strings.SplitN(line, " ", 3)[2])
		}
	}
	return told
}

// archivedLines is the same of an archive.
func archivedLines(t *testing.T, repo *engine.Repository, request *engine.ReadFilesRequest) []string {
	t.Helper()
	a, err := repo.Archive(t.Context(), engine.ArchiveRequest{
		Ref: request.Ref, Files: request.Files, BlobBytesMax: request.BlobBytesMax,
	})
	must(t, err)
	var packed bytes.Buffer
	must(t, errors.Join(a.WriteTar(t.Context(), &packed), a.Close()))
	var told []string
	for members := tar.NewReader(&packed); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return told
		}
		must(t, err)
		content, err := io.ReadAll(members)
		must(t, err)
		if header.Typeflag == tar.TypeReg {
			told = append(told, fmt.Sprintf("%q %q", header.Name, content))
		}
	}
}

// TestReadFilesOfAnEmptyTree reads a commit without files, whose tree need not be stored.
func TestReadFilesOfAnEmptyTree(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	empty := git.Git("mktree")
	git.Git("update-ref", "refs/heads/main", git.Git("commit-tree", "-m", "no files", empty))
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	lines, missing := readAll(t, repo, engine.ReadFilesRequest{Files: pathspec.Spec{Paths: []string{"a", "b/c"}}})
	if lines != nil || !slices.Equal(missing, []string{"a", "b/c"}) {
		t.Errorf("%q, missing %q", lines, missing)
	}
}

// TestReadFilesStops ends answers by their context, by a refused turn, and by a reader that has
// enough, and checks that no turn stays taken; and that refusals come before the first file.
func TestReadFilesStops(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 3, Commits: 10, Files: 60})
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	refused := errors.New("refused")
	for name, want := range map[string]error{"context": context.Canceled, "turn": refused, "idle": refused, "enough": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var turns, held atomic.Int64
			idled := make(chan struct{})
			c, err := repo.ReadFiles(ctx, engine.ReadFilesRequest{Turn: func(ctx context.Context) (func(), error) {
				if turns.Add(1) > 3 && name == "turn" {
					return nil, refused
				}
				if name == "idle" { // no file is read before All has waited for one
					select {
					case <-idled:
					case <-ctx.Done():
					}
				}
				held.Add(1)
				return func() { held.Add(-1) }, nil
			}})
			must(t, err)
			defer c.Close() //nolint:errcheck // it was only read
			idle := func() error {
				if name == "idle" {
					close(idled)
					return refused
				}
				return nil
			}
			var ended error
			for _, err := range c.All(ctx, idle) {
				ended = err
				if name == "context" {
					cancel()
				}
				if name == "enough" || err != nil {
					break
				}
			}
			if !errors.Is(ended, want) || held.Load() != 0 {
				t.Errorf("it ended with %v, want %v; %d turns are taken", ended, want, held.Load())
			}
		})
	}
	for name, test := range map[string]struct {
		request engine.ReadFilesRequest
		err     error
	}{
		"a bad glob":  {engine.ReadFilesRequest{Files: pathspec.Spec{Include: []string{"["}}}, pathspec.ErrInvalid},
		"a bad path":  {engine.ReadFilesRequest{Files: pathspec.Spec{Paths: []string{"a//b"}}}, pathspec.ErrInvalid},
		"beside root": {engine.ReadFilesRequest{Files: pathspec.Spec{Paths: []string{"", "a/../b"}}}, pathspec.ErrInvalid},
		"no such ref": {engine.ReadFilesRequest{Ref: "nope"}, engine.ErrNotFound},
	} {
		if _, err := repo.ReadFiles(t.Context(), test.request); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
