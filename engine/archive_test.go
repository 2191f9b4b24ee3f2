package engine_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
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

// archived returns the archive that a request makes, and its tar stream.
func archived(t *testing.T, repo *engine.Repository, request engine.ArchiveRequest) (packed, stream []byte) {
	t.Helper()
	a, err := repo.Archive(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // it was only read
	var out bytes.Buffer
	if err := a.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	packed = out.Bytes()
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if stream, err = io.ReadAll(reader); err != nil {
		t.Fatal(err)
	}
	if !reader.ModTime.IsZero() || reader.Name != "" {
		t.Errorf("the header tells %v, %q", reader.ModTime, reader.Name)
	}
	return packed, stream
}

// differs tells the first member in which two tar streams differ.
func differs(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	ours, theirs := tar.NewReader(bytes.NewReader(got)), tar.NewReader(bytes.NewReader(want))
	for {
		a, errA := ours.Next()
		b, errB := theirs.Next()
		if errA != nil || errB != nil {
			return fmt.Sprintf("%d and %d bytes; the members end with %v and %v", len(got), len(want), errA, errB)
		}
		dataA, _ := io.ReadAll(ours)
		dataB, _ := io.ReadAll(theirs)
		if fmt.Sprintf("%+v", *a) != fmt.Sprintf("%+v", *b) || !bytes.Equal(dataA, dataB) {
			return fmt.Sprintf("got %+v with %d bytes, want %+v with %d", *a, len(dataA), *b, len(dataB))
		}
	}
}

// strange is a tree of everything that a tar stream has to say in a special way.
func strange(git *oracle.Repository) string {
	var index strings.Builder
	add := func(mode, content, path string) {
		id := content
		if mode != "160000" {
			id = git.Write("blob", []byte(content))
		}
		fmt.Fprintf(&index, "%s %s\t%s\n", mode, id, path)
	}
	long := strings.Repeat("long-name-", 9)
	add("100644", "plain\n", "plain")
	add("100755", "#!/bin/sh\n", "bin/run")
	add("100644", "", "empty")
	add("120000", "plain", "link")
	add("120000", strings.Repeat("target/", 15), "long-link")
	add("120000", strings.Repeat("t", 100), "link-of-100")
	add("160000", strings.Repeat("1", 40), "sub/module")
	add("100644", "x", strings.Repeat("a", 100))
	add("100644", "x", strings.Repeat("b", 101))
	add("100644", "x", long+"/"+long+"/"+"name")
	add("100644", "x", long+"/"+long+"/"+long+"/name")
	add("100644", "x", "p/"+strings.Repeat("c", 99)+"/"+strings.Repeat("d", 54)+"/e")
	add("100644", "x", strings.Repeat("f/", 80)+"g")
	add("100644", "x", "ümlaut/\xff\xfe")
	add("100644", strings.Repeat("x", 511), "511")
	add("100644", strings.Repeat("x", 512), "512")
	add("100644", strings.Repeat("x", 513), "513")
	add("100644", strings.Repeat("0123456789abcdef", 100_000), "big")
	git.Git("read-tree", "--empty")
	git.Input([]byte(index.String()), "update-index", "--index-info")
	tree := git.Git("write-tree")
	return git.Git("commit-tree", "-m", "strange", tree)
}

// TestArchiveIsGits holds tar streams against those of git archive, byte for byte.
func TestArchiveIsGits(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 7, Binary: true, Tags: true})
	git.Git("update-ref", "refs/heads/strange", strange(git))
	git.Git("update-ref", "refs/heads/bare", git.Git("commit-tree", "-m", "no files", git.Git("hash-object", "-t", "tree", "-w", os.DevNull)))
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	long := strings.Repeat("prefix/", 37)
	for name, test := range map[string]struct{ ref, prefix string }{
		"default branch":     {"", ""},
		"earlier commit":     {git.Git("rev-parse", "main~7"), "p/"},
		"tag object":         {"v9", "v9-"},
		"strange":            {"strange", ""},
		"strange, prefixed":  {"strange", "a/b/"},
		"strange, long":      {"strange", long[:254] + "/"},
		"no files":           {"bare", ""},
		"no files, a prefix": {"bare", "p/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := engine.ArchiveRequest{Ref: test.ref, Prefix: test.prefix}
			packed, got := archived(t, repo, request)
			ref := test.ref
			if ref == "" {
				ref = "main"
			}
			if told := differs(got, git.Input(nil, "archive", "--format=tar", "--prefix="+test.prefix, ref)); told != "" {
				t.Error(told)
			}
			if again, _ := archived(t, repo, request); !bytes.Equal(packed, again) {
				t.Error("it is another one the second time")
			}
		})
	}
}

// TestArchiveOfRealTrees does the same for every tenth release of the repository in PACKHORSE_REAL_REPO.
func TestArchiveOfRealTrees(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	tags := strings.Fields(git.Git("for-each-ref", "--format=%(refname)", "refs/tags"))
	count := 0
	for i := 0; i < len(tags); i += 10 {
		want, err := git.Try(nil, "archive", "--format=tar", tags[i])
		if err != nil {
			continue // a tag of something else than a commit
		}
		count++
		if _, got := archived(t, repo, engine.ArchiveRequest{Ref: tags[i]}); !bytes.Equal(got, want) {
			t.Errorf("%s: %s", tags[i], differs(got, want))
		}
	}
	t.Logf("%d archives", count)
}

// members lists the paths of a tar stream.
func members(t *testing.T, stream []byte) string {
	t.Helper()
	var paths []string
	reader := tar.NewReader(bytes.NewReader(stream))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(paths, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeXGlobalHeader {
			paths = append(paths, header.Name)
		}
	}
}

func TestArchiveFilters(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	var changes []change
	for _, path := range []string{"README.md", "a.go", "lib/a.go", "lib/big.go", "lib/deep/er/b.ts", "vendor/x.go"} {
		content := "small"
		if strings.Contains(path, "big") {
			content = strings.Repeat("large", 100)
		}
		changes = append(changes, change{path: path, content: content})
	}
	changes = append(changes, change{path: "link", content: "README.md", mode: object.ModeSymlink})
	if _, err := upload(repo, acme, main, changes...); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		request engine.ArchiveRequest
		want    string
	}{
		"all":           {engine.ArchiveRequest{}, "README.md a.go lib/ lib/a.go lib/big.go lib/deep/ lib/deep/er/ lib/deep/er/b.ts link vendor/ vendor/x.go"},
		"include":       {engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"*.ts"}}}, "lib/ lib/deep/ lib/deep/er/ lib/deep/er/b.ts"},
		"exclude":       {engine.ArchiveRequest{Files: pathspec.Spec{Exclude: []string{"vendor/**", "lib/deep"}}}, "README.md a.go lib/ lib/a.go lib/big.go link"},
		"size":          {engine.ArchiveRequest{BlobBytesMax: 8}, "README.md a.go lib/ lib/a.go lib/deep/ lib/deep/er/ lib/deep/er/b.ts vendor/ vendor/x.go"},
		"nothing left":  {engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"nope"}}}, ""},
		"only a prefix": {engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"nope"}}, Prefix: "p/"}, "p/"},
		"prefix":        {engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"/a.go"}}, Prefix: "p/q-"}, "p/q-a.go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, stream := archived(t, repo, test.request); members(t, stream) != test.want {
				t.Errorf("got  %s\nwant %s", members(t, stream), test.want)
			}
		})
	}
	for _, prefix := range []string{"/", "/a", "../", "a/../b", "./", "a//b", "a/./", "a\\b", "a\x00", strings.Repeat("a", 256)} {
		if _, err := repo.Archive(t.Context(), engine.ArchiveRequest{Prefix: prefix}); !errors.Is(err, archive.ErrPrefix) {
			t.Errorf("prefix %.20q: %v", prefix, err)
		}
	}
	if _, err := repo.Archive(t.Context(), engine.ArchiveRequest{Files: pathspec.Spec{Include: []string{"["}}}); !errors.Is(err, pathspec.ErrInvalid) {
		t.Errorf("a bad glob: %v", err)
	}
	if _, err := repo.Archive(t.Context(), engine.ArchiveRequest{Ref: "nope"}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no such ref: %v", err)
	}
}

// TestArchiveStops ends archives by their client, by their context and by a refused turn.
func TestArchiveStops(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	random := rand.NewChaCha8([32]byte{1})
	var changes []change
	for i := range 12 {
		content := make([]byte, 400<<10)
		_, _ = random.Read(content) // never fails
		changes = append(changes, change{path: fmt.Sprintf("f%02d", i), content: string(content)})
	}
	if _, err := upload(repo, acme, main, changes...); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	for name, end := range map[string]string{"client": "write", "context": "cancel", "turn": "turn"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var turns, held atomic.Int64
			a, err := repo.Archive(ctx, engine.ArchiveRequest{Turn: func(context.Context) (func(), error) {
				if turns.Add(1) > 3 && end == "turn" {
					return nil, refused
				}
				held.Add(1)
				return func() { held.Add(-1) }, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close() //nolint:errcheck // it was only read
			err = a.Write(ctx, writerFunc(func(p []byte) (int, error) {
				switch end {
				case "write":
					return 0, refused
				case "cancel":
					cancel()
				}
				return len(p), nil
			}))
			if want := map[string]error{"write": refused, "cancel": context.Canceled, "turn": refused}[end]; !errors.Is(err, want) {
				t.Errorf("it ended with %v", err)
			}
			if held.Load() != 0 {
				t.Error("a turn was not given back")
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestArchiveExtracts extracts an archive with tar.
func TestArchiveExtracts(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("tar is not installed")
	}
	git := oracle.New(t)
	git.Git("update-ref", "refs/heads/main", strange(git))
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	pushAll(t, repo, git)
	packed, _ := archived(t, repo, engine.ArchiveRequest{})
	dir := t.TempDir()
	extract := exec.Command(program, "-xzf", "-", "-C", dir)
	extract.Stdin = bytes.NewReader(packed)
	if out, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here := []string{"-c", "core.bare=false", "--work-tree", dir}
	git.Git(append(here, "read-tree", "main")...)
	_, _ = git.Try(nil, append(here, "update-index", "-q", "--refresh")...) // fails if anything has changed, which the next one tells
	if changed := git.Git(append(here, "diff-files", "--name-only")...); changed != "" {
		t.Errorf("changed: %q", strings.Fields(changed))
	}
}
