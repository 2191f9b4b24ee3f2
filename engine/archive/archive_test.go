package archive_test

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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/engine/archive"
	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// source is a repository of git's, and a pool with the objects that its branches reach.
type source struct {
	git  *oracle.Repository
	view *odb.View
}

func newSource(t *testing.T, git *oracle.Repository) *source {
	t.Helper()
	return &source{git, odbtest.Clone(t, git)}
}

// id asks git for an object.
func (s *source) id(t *testing.T, revision string) object.ID {
	t.Helper()
	id, err := object.ParseID(s.git.Git("rev-parse", revision))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// write archives a revision.
func (s *source) write(
	ctx context.Context, t *testing.T, revision string, files pathspec.Spec, o archive.Options, w io.Writer,
) error {
	t.Helper()
	o.Commit = s.id(t, revision+"^{commit}")
	var err error
	if o.Seconds, err = strconv.ParseInt(s.git.Git("log", "-1", "--format=%ct", revision), 10, 64); err != nil {
		t.Fatal(err)
	}
	if o.Filter, err = files.Compile(); err != nil {
		t.Fatal(err)
	}
	return archive.Write(ctx, s.view, s.id(t, revision+"^{tree}"), o, w)
}

// archived returns the archive of a revision, and its tar stream.
func (s *source) archived(
	t *testing.T, revision string, files pathspec.Spec, o archive.Options,
) (packed, stream []byte) {
	t.Helper()
	var out bytes.Buffer
	if err := s.write(t.Context(), t, revision, files, o, &out); err != nil {
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

// differs describes the first member in which two tar streams differ.
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
	git.Git("update-ref", "refs/heads/bare",
		git.Git("commit-tree", "-m", "no files", git.Git("hash-object", "-t", "tree", "-w", os.DevNull)))
	s := newSource(t, git)
	long := strings.Repeat("prefix/", 37)
	for name, test := range map[string]struct{ revision, prefix string }{
		"tip":                {"main", ""},
		"earlier commit":     {"main~7", "p/"},
		"tag object":         {"v9", "v9-"},
		"strange":            {"strange", ""},
		"strange, prefixed":  {"strange", "a/b/"},
		"strange, long":      {"strange", long[:254] + "/"},
		"no files":           {"bare", ""},
		"no files, a prefix": {"bare", "p/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := archive.Options{Prefix: test.prefix}
			packed, got := s.archived(t, test.revision, pathspec.Spec{}, o)
			if told := differs(
				got, git.Input(nil, "archive", "--format=tar", "--prefix="+test.prefix, test.revision),
			); told != "" {
				t.Error(told)
			}
			if again, _ := s.archived(t, test.revision, pathspec.Spec{}, o); !bytes.Equal(packed, again) {
				t.Error("it is another one the second time")
			}
		})
	}
}

// TestArchiveOfRealTrees does the same for every tenth release of the repository in
// PACKHORSE_REAL_REPO that a branch leads to.
func TestArchiveOfRealTrees(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	s := newSource(t, git)
	tags := strings.Fields(git.Git("for-each-ref", "--format=%(refname)", "refs/tags"))
	count := 0
	for i := 0; i < len(tags); i += 10 {
		want, err := git.Try(nil, "archive", "--format=tar", tags[i])
		if err != nil || git.Git("branch", "--contains", tags[i]) == "" {
			continue // a tag of something else than a commit, or beside the branches
		}
		count++
		if _, got := s.archived(t, tags[i], pathspec.Spec{}, archive.Options{}); !bytes.Equal(got, want) {
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

// files makes a repository of git's with one commit on main.
func files(t *testing.T, contents map[string]string) *oracle.Repository {
	t.Helper()
	var stream bytes.Buffer
	stream.WriteString("commit refs/heads/main\ncommitter C <c@d> 1700000000 +0000\ndata 0\n")
	for path, content := range contents {
		mode := "100644"
		if path == "link" {
			mode = "120000"
		}
		fmt.Fprintf(&stream, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
	}
	stream.WriteString("done\n")
	git := oracle.New(t)
	git.Input(stream.Bytes(), "fast-import", "--quiet", "--done")
	return git
}

func TestArchiveFilters(t *testing.T) {
	t.Parallel()
	contents := map[string]string{"link": "README.md", "lib/big.go": strings.Repeat("large", 100)}
	for _, path := range []string{"README.md", "a.go", "lib/a.go", "lib/deep/er/b.ts", "vendor/x.go"} {
		contents[path] = "small"
	}
	s := newSource(t, files(t, contents))
	for name, test := range map[string]struct {
		files   pathspec.Spec
		options archive.Options
		want    string
	}{
		"all": {
			want: "README.md a.go lib/ lib/a.go lib/big.go lib/deep/ lib/deep/er/ lib/deep/er/b.ts link vendor/ vendor/x.go",
		},
		"include": {
			files: pathspec.Spec{Include: []string{"*.ts"}}, want: "lib/ lib/deep/ lib/deep/er/ lib/deep/er/b.ts",
		},
		"exclude": {
			files: pathspec.Spec{Exclude: []string{"vendor/**", "lib/deep"}},
			want:  "README.md a.go lib/ lib/a.go lib/big.go link",
		},
		"size": {
			options: archive.Options{BlobBytesMax: 8},
			want:    "README.md a.go lib/ lib/a.go lib/deep/ lib/deep/er/ lib/deep/er/b.ts vendor/ vendor/x.go",
		},
		"nothing left": {files: pathspec.Spec{Include: []string{"nope"}}},
		"only a prefix": {
			files: pathspec.Spec{Include: []string{"nope"}}, options: archive.Options{Prefix: "p/"}, want: "p/",
		},
		"prefix": {
			files: pathspec.Spec{Include: []string{"/a.go"}}, options: archive.Options{Prefix: "p/q-"}, want: "p/q-a.go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, stream := s.archived(t, "main", test.files, test.options); members(t, stream) != test.want {
				t.Errorf("got  %s\nwant %s", members(t, stream), test.want)
			}
		})
	}
	for _, prefix := range []string{"/", "/a", "../", "a/../b", "./", "a//b", "a/./", "a\\b", "a\x00", strings.Repeat("a",
		256)} {
		err := s.write(t.Context(), t, "main", pathspec.Spec{}, archive.Options{Prefix: prefix}, io.Discard)
		if !errors.Is(err, archive.ErrPrefix) || !errors.Is(archive.CheckPrefix(prefix), archive.ErrPrefix) {
			t.Errorf("prefix %.20q: %v", prefix, err)
		}
	}
}

// TestArchiveStops ends archives by their client, by their context and by a refused turn.
func TestArchiveStops(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	contents := map[string]string{}
	for i := range 12 {
		content := make([]byte, 400<<10)
		_, _ = random.Read(content) // never fails
		contents[fmt.Sprintf("f%02d", i)] = string(content)
	}
	s := newSource(t, files(t, contents))
	refused := errors.New("refused")
	for name, end := range map[string]string{"client": "write", "context": "cancel", "turn": "turn"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var turns, held atomic.Int64
			options := archive.Options{Turn: func(context.Context) (func(), error) {
				if turns.Add(1) > 3 && end == "turn" {
					return nil, refused
				}
				held.Add(1)
				return func() { held.Add(-1) }, nil
			}}
			err := s.write(ctx, t, "main", pathspec.Spec{}, options, writerFunc(func(p []byte) (int, error) {
				switch end {
				case "write":
					return 0, refused
				case "cancel":
					cancel()
				}
				return len(p), nil
			}))
			if want := map[string]error{"write": refused, "cancel": context.Canceled, "turn": refused}[end]; !errors.Is(err,
				want) {
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
	packed, _ := newSource(t, git).archived(t, "main", pathspec.Spec{}, archive.Options{})
	dir := t.TempDir()
	extract := exec.Command(program, "-xzf", "-", "-C", dir)
	extract.Stdin = bytes.NewReader(packed)
	if out, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here := []string{"-c", "core.bare=false", "--work-tree", dir}
	git.Git(append(here, "read-tree", "main")...)
	// This fails if anything has changed, which the next command shows.
	_, _ = git.Try(nil, append(here, "update-index", "-q", "--refresh")...)
	if changed := git.Git(append(here, "diff-files", "--name-only")...); changed != "" {
		t.Errorf("changed: %q", strings.Fields(changed))
	}
}
