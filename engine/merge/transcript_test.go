package merge_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// TestTranscripts merges the trees in testdata/transcripts. Where git is installed, git merge-tree
// --write-tree merges them too, and has to come to the same tree, verdict and stages.
//
//	tree NAME [parents=(P, ...)]   makes a commit with files; its parent is base unless told, and
//	                               base itself begins a history
//	merge                          merges commit theirs into ours: the conflicts, and the tree
//
// A file is a line:
//
//	path: one two        a text of two lines
//	path = "one\r\n"     any content, quoted as in Go
//	path*: one           an executable file; *= is one with any content
//	path -> target       a symbolic link
//	path @ c1            a submodule at a commit
//
// A file with spaces in its lines is shown as its path and the lines, indented.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := newScene(t)
		datadriven.RunTest(t, path, s.run)
	})
}

// scene is a pool, git's repository with the same objects if git is installed, and the commits that
// were made.
type scene struct {
	keys    kv.Store
	store   *odb.Store
	pool    odb.PoolID
	git     *oracle.Repository // or nil
	commits map[string]object.ID
	words   map[object.ID]string // of submodules
	fresh   []fresh              // for git
}

type fresh struct {
	kind object.Type
	data []byte
}

func newScene(t *testing.T) *scene {
	t.Helper()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	store, err := odbtest.OpenOn(t.Context(), keys, files, odb.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close(context.Background())) })
	s := &scene{keys: keys, store: store, commits: map[string]object.ID{}, words: map[object.ID]string{}}
	batch := kv.NewBatch()
	s.pool = store.CreatePool(batch)
	_, err = keys.Apply(t.Context(), batch)
	must(t, err)
	if _, err := exec.LookPath("git"); err == nil {
		s.git = oracle.New(t)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *scene) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "tree":
		s.tree(t, d)
		return ""
	case "merge":
		return s.merge(t)
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// tree stores files and a commit of them.
func (s *scene) tree(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := d.CmdArgs[0].Key
	parents := []string{"base"}
	if name == "base" {
		clear(s.commits)
		parents = nil
	}
	if arg, ok := d.Arg("parents"); ok {
		parents = arg.Vals
	}
	var commit bytes.Buffer
	q := s.view(t).NewQuarantine(t.Context())
	defer q.Close()
	entries := map[string]object.TreeEntry{}
	for line := range strings.Lines(d.Input) {
		filePath, mode, data := parseFile(t, strings.TrimSuffix(line, "\n"))
		entry := object.TreeEntry{Mode: mode, Name: path.Base(filePath)}
		if mode.IsGitlink() {
			sum := sha256.Sum256(data)
			entry.ID = object.ID(sum[:object.IDSize])
			s.words[entry.ID] = string(data)
		} else {
			entry.ID = s.write(t, q, object.TypeBlob, data)
		}
		entries[filePath] = entry
	}
	fmt.Fprintf(&commit, "tree %s\n", s.folder(t, q, entries, ""))
	for _, parent := range parents {
		if parent != "none" {
			fmt.Fprintf(&commit, "parent %s\n", s.commits[parent])
		}
	}
	who := "A U Thor <author@example.com> 1700000000 +0000"
	fmt.Fprintf(&commit, "author %s\ncommitter %s\n\n%s\n", who, who, name)
	s.commits[name] = s.write(t, q, object.TypeCommit, commit.Bytes())
	batch := kv.NewBatch()
	must(t, q.Stage(t.Context(), batch))
	_, err := s.keys.Apply(t.Context(), batch)
	must(t, err)
}

// folder stores the tree of a folder, whose path ends with a slash unless it is the root.
func (s *scene) folder(t *testing.T, q *odb.Quarantine, files map[string]object.TreeEntry, folder string) object.ID {
	t.Helper()
	var entries []object.TreeEntry
	done := map[string]bool{}
	for _, filePath := range slices.Sorted(maps.Keys(files)) {
		rest, inside := strings.CutPrefix(filePath, folder)
		name, _, deeper := strings.Cut(rest, "/")
		switch {
		case !inside || done[name]:
		case deeper:
			done[name] = true
			id := s.folder(t, q, files, folder+name+"/")
			entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: name, ID: id})
		default:
			entries = append(entries, files[filePath])
		}
	}
	object.SortTree(entries)
	return s.write(t, q, object.TypeTree, object.AppendTree(nil, entries))
}

func (s *scene) write(t *testing.T, q *odb.Quarantine, kind object.Type, data []byte) object.ID {
	t.Helper()
	id, err := q.Write(t.Context(), kind, data, object.ZeroID)
	must(t, err)
	s.fresh = append(s.fresh, fresh{kind, data})
	return id
}

func (s *scene) view(t *testing.T) *odb.View {
	t.Helper()
	view, err := s.store.View(t.Context(), s.pool)
	must(t, err)
	t.Cleanup(func() { view.Close() })
	return view
}

func (s *scene) merge(t *testing.T) string {
	t.Helper()
	view := s.view(t)
	ours, theirs := s.commits["ours"], s.commits["theirs"]
	relations := revwalk.NewRelations(view)
	bases, err := relations.MergeBases(t.Context(), ours, theirs)
	must(t, err)
	merger := merge.NewMerger(view, relations)
	result, err := merger.Commits(t.Context(), ours, theirs, bases, merge.Options{Unrelated: true})
	must(t, err)
	if s.git != nil {
		s.compare(t, result)
	}
	var out strings.Builder
	if result.Clean() {
		out.WriteString("clean\n")
	}
	for i := range result.Conflicts {
		c := &result.Conflicts[i]
		fmt.Fprintf(&out, "conflict: %s: %s", c.Kind, c.Path)
		var stages []string
		for stage, side := range []string{"base", "ours", "theirs"} {
			if c.Stages[stage].Mode != 0 {
				stages = append(stages, side)
			}
		}
		if stages != nil {
			fmt.Fprintf(&out, " (in %s)", strings.Join(stages, ", "))
		}
		out.WriteByte('\n')
	}
	s.list(t, &out, result, result.Tree, "")
	return out.String()
}

// list shows the files of a merged tree.
func (s *scene) list(t *testing.T, out *strings.Builder, result *merge.Result, tree object.ID, folder string) {
	t.Helper()
	if tree == object.EmptyTreeID {
		return
	}
	data, _, err := result.Open(t.Context(), tree, 1<<20)
	must(t, err)
	for it := object.IterTree(data); it.Next(); {
		name := folder + string(it.Name)
		switch {
		case it.Mode.IsTree():
			s.list(t, out, result, it.ID, name+"/")
		case it.Mode.IsGitlink():
			fmt.Fprintf(out, "%s @ %s\n", name, s.words[it.ID])
		default:
			content, _, err := result.Open(t.Context(), it.ID, 1<<20)
			must(t, err)
			out.WriteString(showFile(name, it.Mode, string(content)))
		}
	}
}

// compare asks git for the same merge.
func (s *scene) compare(t *testing.T, result *merge.Result) {
	t.Helper()
	var packed bytes.Buffer
	w := packtest.NewWriter(&packed, uint32(len(s.fresh)), 0)
	for _, o := range s.fresh {
		_, err := w.WriteWhole(o.kind, o.data)
		must(t, err)
	}
	_, err := w.Close()
	must(t, err)
	s.fresh = nil
	s.git.Input(packed.Bytes(), "unpack-objects", "-q")
	branches := fmt.Appendf(nil, "update refs/heads/ours %s\nupdate refs/heads/theirs %s\n",
		s.commits["ours"], s.commits["theirs"])
	s.git.Input(branches, "update-ref", "--stdin")

	out, err := s.git.Try(nil, "merge-tree", "--write-tree", "-z", "--no-messages", "--allow-unrelated-histories",
		"ours", "theirs")
	var exit *oracle.ExitError
	if errors.As(err, &exit) && exit.Code != 1 {
		t.Fatal(err)
	}
	tree, stages, _ := strings.Cut(string(out), "\x00")
	var ourStages strings.Builder
	for i := range result.Conflicts {
		c := &result.Conflicts[i]
		for stage, version := range c.Stages {
			if version.Mode != 0 {
				fmt.Fprintf(&ourStages, "%s %s %d\t%s\x00", version.Mode, version.ID, stage+1, c.Path)
			}
		}
	}
	if tree != result.Tree.String() || (err == nil) != result.Clean() || stages != ourStages.String() {
		t.Errorf("git merges to tree %s, clean: %v, stages %q\nours is %s, clean: %v, stages %q\n%s",
			tree, err == nil, stages, result.Tree, result.Clean(), ourStages.String(), s.git.Git("ls-tree", "-r", tree))
	}
}

// parseFile takes a line of a tree apart.
func parseFile(t *testing.T, line string) (filePath string, mode object.Mode, data []byte) {
	t.Helper()
	filePath, rest, _ := strings.Cut(line, " ")
	mode = object.ModeBlob
	if filePath, executable := strings.CutSuffix(filePath, "*:"); executable {
		return filePath, object.ModeExec, asLines(rest)
	}
	if filePath, text := strings.CutSuffix(filePath, ":"); text {
		return filePath, mode, asLines(rest)
	}
	sign, rest, _ := strings.Cut(rest, " ")
	switch sign {
	case "->":
		return filePath, object.ModeSymlink, []byte(rest)
	case "@":
		return filePath, object.ModeGitlink, []byte(rest)
	case "*=":
		mode = object.ModeExec
	case "=":
	default:
		t.Fatalf("%q is no file", line)
	}
	content, err := strconv.Unquote(rest)
	must(t, err)
	return filePath, mode, []byte(content)
}

func asLines(words string) []byte {
	var b bytes.Buffer
	for word := range strings.FieldsSeq(words) {
		b.WriteString(word + "\n")
	}
	return b.Bytes()
}

// showFile is the other way of parseFile.
func showFile(filePath string, mode object.Mode, content string) string {
	star := ""
	if mode.IsExec() {
		star = "*"
	}
	words := strings.Join(strings.Fields(content), " ")
	readable := !strings.ContainsFunc(content, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) })
	switch {
	case mode.IsSymlink():
		return fmt.Sprintf("%s -> %s\n", filePath, content)
	case string(asLines(words)) == content:
		return strings.TrimSuffix(fmt.Sprintf("%s%s: %s", filePath, star, words), " ") + "\n"
	case readable && strings.HasSuffix(content, "\n") && strings.Contains(content, "<<<<<<<"):
		indented := strings.ReplaceAll(strings.TrimSuffix(content, "\n"), "\n", "\n  ")
		return fmt.Sprintf("%s%s:\n  %s\n", filePath, star, indented)
	default:
		return fmt.Sprintf("%s %s %q\n", filePath, star+"=", content)
	}
}
