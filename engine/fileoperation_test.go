package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// operate commits operations; contents are by the ID that the operations name.
func operate(
	repo *engine.Repository, actor engine.Actor, target engine.CommitTarget, contents map[string]string,
	operations ...engine.FileOperation,
) (engine.CommitResult, error) {
	ctx := context.Background()
	u, err := repo.NewUpload(ctx, actor, engine.UploadRequest{
		Target: target, Details: engine.CommitDetails{Message: "operate", Author: thor}, Operations: operations,
	})
	if err != nil {
		return engine.CommitResult{}, err
	}
	defer u.Close()
	for id, content := range contents {
		if err := u.Chunk(ctx, id, []byte(content), true); err != nil {
			return engine.CommitResult{}, err
		}
	}
	return u.Finish(ctx)
}

func moved(from, to string) engine.FileOperation {
	return engine.FileOperation{Path: to, Source: &commit.Source{From: from, Move: true}}
}

func copied(from, to string) engine.FileOperation {
	return engine.FileOperation{Path: to, Source: &commit.Source{From: from}}
}

func edited(path string, edits ...commit.Edit) engine.FileOperation {
	return engine.FileOperation{Path: path, Source: &commit.Source{Edits: edits}}
}

func with(op engine.FileOperation, edits ...commit.Edit) engine.FileOperation {
	op.Source.Edits = edits
	return op
}

func deleted(path string) engine.FileOperation { return engine.FileOperation{Path: path, Delete: true} }

func blobOf(content string) object.ID { return enginetest.BlobID(content) }

// workTree is a folder of files that git makes a tree of.
type workTree struct {
	t   *testing.T
	git *oracle.Repository
	dir string
}

func newWorkTree(t *testing.T) *workTree {
	t.Helper()
	return &workTree{t, oracle.New(t), t.TempDir()}
}

// clone is a copy that another test may change.
func (w *workTree) clone(t *testing.T) *workTree {
	t.Helper()
	other := t.TempDir()
	if said, err := exec.Command("cp", "-a", w.git.Dir, w.dir, other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	git := oracle.Open(t, filepath.Join(other, filepath.Base(w.git.Dir)))
	return &workTree{t, git, filepath.Join(other, filepath.Base(w.dir))}
}

// run runs a shell script in the work tree.
func (w *workTree) run(script string) {
	w.t.Helper()
	command := exec.Command("sh", "-e", "-c", script)
	command.Dir = w.dir
	command.Env = append(oracle.Env(w.git.Dir), "GIT_WORK_TREE="+w.dir)
	if said, err := command.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", script, err, said)
	}
}

// tree is the tree of all files.
func (w *workTree) tree() string {
	w.t.Helper()
	w.run("git -c core.bare=false -c core.fileMode=true add --all .")
	return w.git.Git("write-tree")
}

// changes are the operations that make the files of an empty repository those of the work tree.
func (w *workTree) changes() (changes []change) {
	w.t.Helper()
	must(w.t, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		c := change{mode: object.ModeBlob}
		c.path, _ = filepath.Rel(w.dir, path)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var content []byte
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			c.mode = object.ModeSymlink
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			content = []byte(target)
		default:
			if info.Mode()&0o100 != 0 {
				c.mode = object.ModeExec
			}
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		c.content = string(content)
		changes = append(changes, c)
		return nil
	}))
	return changes
}

// TestOperationsAreThoseOfTools holds operations to what git mv, cp and sed do in a work tree.
func TestOperationsAreThoseOfTools(t *testing.T) {
	t.Parallel()
	template := newWorkTree(t)
	template.run(`mkdir -p lib/deep empty; printf 'one\ntwo\n' >a; printf 'x' >b; printf '#!/bin/sh\n' >run; chmod +x run
		printf '\377\000\r\none\n' >binary; printf 'int lib;\n' >lib/lib.c; printf 'deep\n' >lib/deep/er; ln -s lib/lib.c link
		git -c core.bare=false -c core.fileMode=true add --all .`)
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	_, err := upload(repo, acme, main, template.changes()...)
	must(t, err)
	tests := map[string]struct {
		script     string
		operations []engine.FileOperation
	}{
		"a file moves":            {"git mv a c", []engine.FileOperation{moved("a", "c")}},
		"into a folder":           {"git mv a lib/deep/a", []engine.FileOperation{moved("a", "/lib/deep/a")}},
		"out of its folder":       {"git mv lib/deep/er er", []engine.FileOperation{moved("lib/deep/er", "er")}},
		"into a new folder":       {"mkdir -p x/y; git mv run x/y/run", []engine.FileOperation{moved("run", "x/y/run")}},
		"a link moves":            {"git mv link lib/link", []engine.FileOperation{moved("link", "lib/link")}},
		"a folder moves":          {"git mv lib src", []engine.FileOperation{moved("lib", "src")}},
		"a folder moves up":       {"git mv lib/deep deep", []engine.FileOperation{moved("lib/deep", "deep")}},
		"a folder moves down":     {"git mv lib l; mkdir lib; git mv l lib/old", []engine.FileOperation{moved("lib", "lib/old")}},
		"onto its folder":         {"git mv lib/deep d; git rm -qrf lib; git mv d lib", []engine.FileOperation{moved("lib/deep", "lib")}},
		"onto a file":             {"git mv -f a b", []engine.FileOperation{moved("a", "b")}},
		"onto a folder":           {"git rm -qrf lib; git mv a lib", []engine.FileOperation{moved("a", "lib")}},
		"a folder onto a file":    {"git rm -qf a; git mv lib a", []engine.FileOperation{moved("lib", "a")}},
		"below itself":            {"git mv a t; mkdir a; git mv t a/b", []engine.FileOperation{moved("a", "a/b")}},
		"two change places":       {"git mv a t; git mv b a; git mv t b", []engine.FileOperation{moved("a", "b"), moved("b", "a")}},
		"one after the other":     {"git mv b c; git mv a b", []engine.FileOperation{moved("a", "b"), moved("b", "c")}},
		"another takes its place": {"git mv run bin; printf new >run; chmod +x run", []engine.FileOperation{moved("run", "bin"), {Path: "run", ContentID: "new"}}},
		"a new file in its folder": {
			"git mv lib src; mkdir lib; printf new >lib/new", []engine.FileOperation{{Path: "lib/new", ContentID: "new"}, moved("lib", "src")},
		},
		"two of a folder that goes": {
			"git mv lib/lib.c c; git mv lib/deep d; git rm -rqf --ignore-unmatch lib",
			[]engine.FileOperation{deleted("lib"), moved("lib/lib.c", "c"), moved("lib/deep", "d")},
		},
		"a file is copied":      {"cp -P run lib/run", []engine.FileOperation{copied("run", "lib/run")}},
		"a link is copied":      {"cp -P link l", []engine.FileOperation{copied("link", "l")}},
		"a folder is copied":    {"cp -r lib lib2; cp -r lib x", []engine.FileOperation{copied("lib", "lib2"), copied("lib", "x")}},
		"onto another":          {"cp -p run a", []engine.FileOperation{copied("run", "a")}},
		"a folder below itself": {"cp -r lib t; mv t lib/lib", []engine.FileOperation{copied("lib", "lib/lib")}},
		"one that moves":        {"cp a c; git mv a d", []engine.FileOperation{copied("a", "c"), moved("a", "d")}},
		"one that goes":         {"cp a c; git rm -qf a", []engine.FileOperation{copied("a", "c"), deleted("a")}},
		"one that is replaced":  {"cp a c; printf new >a", []engine.FileOperation{{Path: "a", ContentID: "new"}, copied("a", "c")}},
		"an edit":               {"sed -i s/two/2/ a", []engine.FileOperation{edited("a", commit.Edit{Old: "two", New: "2"})}},
		"edits in order": {
			"sed -i 's/one/two/; s/two/three/' a", []engine.FileOperation{
				edited("a", commit.Edit{Old: "one", New: "two"}, commit.Edit{Old: "two", New: "three", Count: 2}),
			},
		},
		"a program is edited": {"sed -i s/sh/bash/ run", []engine.FileOperation{edited("run", commit.Edit{Old: "sh", New: "bash"})}},
		"a link is edited":    {"ln -sf lib/other link", []engine.FileOperation{edited("link", commit.Edit{Old: "lib.c", New: "other"})}},
		"bytes stay":          {`sed -i 's/one/1/' binary`, []engine.FileOperation{edited("binary", commit.Edit{Old: "one", New: "1"})}},
		"nothing is left":     {": >b", []engine.FileOperation{edited("b", commit.Edit{Old: "x"})}},
		"edited on the way": {
			"git mv lib/lib.c lib.c; sed -i s/lib/new/ lib.c; cp a c; sed -i s/one/1/ c", []engine.FileOperation{
				with(moved("lib/lib.c", "lib.c"), commit.Edit{Old: "lib", New: "new"}), with(copied("a", "c"), commit.Edit{Old: "one", New: "1"}),
			},
		},
		"edited, and as it was": {
			"cp a c; sed -i s/one/1/ a", []engine.FileOperation{edited("a", commit.Edit{Old: "one", New: "1"}), copied("a", "c")},
		},
		"a program from now on": {"sed -i s/one/1/ a; chmod +x a", []engine.FileOperation{{
			Path: "a", Mode: object.ModeExec, Source: &commit.Source{Edits: []commit.Edit{{Old: "one", New: "1"}}},
		}}},
		"a stored blob": {"cp b lib/c", []engine.FileOperation{{Path: "lib/c", Blob: blobOf("x")}}},
		"a stored blob of a program": {"cp run c; chmod +x c", []engine.FileOperation{
			{Path: "c", Blob: blobOf("#!/bin/sh\n"), Mode: object.ModeExec},
		}},
		"a stored blob for a program": {"printf x >run", []engine.FileOperation{{Path: "run", Blob: blobOf("x")}}},
		"as it is":                    {":", []engine.FileOperation{edited("a", commit.Edit{Old: "one", New: "one"})}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := template.clone(t)
			w.run(strings.ReplaceAll(test.script, "git ", "git -c core.bare=false -c core.fileMode=true "))
			contents := map[string]string{}
			for _, op := range test.operations {
				if op.ContentID != "" {
					contents[op.ContentID] = op.ContentID
				}
			}
			want := w.tree()
			for _, order := range []string{"given", "reversed"} {
				target := engine.CommitTarget{Branch: order + "/" + strings.ReplaceAll(name, " ", "-"), Base: "main"}
				result, err := operate(repo, acme, target, contents, test.operations...)
				must(t, err)
				if result.Tree.String() != want {
					t.Errorf("the tree is %s, git has %s:\n%s", result.Tree, want, w.git.Git("ls-tree", "-r", want))
				}
				slices.Reverse(test.operations)
			}
		})
	}
}

// TestOperationsInAWorkTree makes random operations, and the same in a folder of which git makes a
// tree: first what they take from the tree is set aside, then what goes is removed, then all is
// put in place.
func TestOperationsInAWorkTree(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 31))
			w := newWorkTree(t)
			w.run("mkdir -p a/b; printf 'start\nstart\n' >a/b/c; printf x >d")
			repo := enginetest.Create(t, host, fmt.Sprint("random", seed))
			_, err := upload(repo, acme, main, w.changes()...)
			must(t, err)
			made, count := 0, oracle.CaseCount(t, 40, 10)
			for range count {
				operations, contents := randomOperations(random, w)
				result, err := operate(repo, acme, main, contents, operations...)
				if errors.Is(err, commit.ErrInvalid) { // they contradict each other
					continue
				}
				must(t, err)
				made++
				before := w.tree()
				w.operate(operations, contents)
				if want := w.tree(); result.Tree.String() != want {
					t.Fatalf("%s\nmake of\n%s\nthe tree %s, and git has %s:\n%s", describeOperations(operations),
						w.git.Git("ls-tree", "-r", before), result.Tree, want, w.git.Git("ls-tree", "-r", want))
				}
			}
			if made < count/4 {
				t.Errorf("of %d commits %d were made", count, made)
			}
		})
	}
}

func describeOperations(operations []engine.FileOperation) string {
	var all strings.Builder
	for _, op := range operations {
		fmt.Fprintf(&all, "%+v", op)
		if op.Source != nil {
			fmt.Fprintf(&all, " %+v", *op.Source)
		}
		all.WriteByte('\n')
	}
	return all.String()
}

func randomOperations(random *rand.Rand, w *workTree) (operations []engine.FileOperation, contents map[string]string) {
	files := w.changes()
	if len(files) == 0 {
		return []engine.FileOperation{{Path: "a/b", ContentID: "new"}}, map[string]string{"new": "start"}
	}
	some := func() change { return files[random.IntN(len(files))] }
	place := func() string { // of a file, or of a folder on the way to it
		parts := strings.Split(some().path, "/")
		return strings.Join(parts[:1+random.IntN(len(parts))], "/")
	}
	name := func() string {
		if random.IntN(4) == 0 {
			return place()
		}
		path := ""
		for range 1 + random.IntN(3) {
			path += "/" + []string{"a", "a.b", "b", "c", "lib", "lib.c"}[random.IntN(6)]
		}
		return path[1:]
	}
	contents = map[string]string{}
	for i := range 1 + random.IntN(4) {
		var op engine.FileOperation
		switch random.IntN(7) {
		case 0:
			op = deleted(place())
		case 1, 2:
			op = moved(place(), name())
		case 3:
			op = copied(place(), name())
		case 4:
			c := some()
			op = edited(c.path, commit.Edit{Old: "start", New: fmt.Sprint("start", i), Count: strings.Count(c.content, "start")})
			if op.Source.Edits[0].Count == 0 {
				op.Source.Edits = []commit.Edit{{Old: c.content, New: "start"}}
			}
			if random.IntN(3) == 0 {
				op.Path, op.Source.From, op.Source.Move = name(), c.path, random.IntN(2) == 0
			}
		case 5:
			op = engine.FileOperation{Path: name(), Blob: blobOf(some().content)}
		default:
			op = engine.FileOperation{Path: name(), ContentID: fmt.Sprint(i)}
			contents[op.ContentID] = fmt.Sprintf("start %d\n", random.IntN(100))
			if random.IntN(4) == 0 {
				op.Mode = object.ModeExec
			}
		}
		operations = append(operations, op)
	}
	return operations, contents
}

// operate does operations in the folder.
func (w *workTree) operate(operations []engine.FileOperation, contents map[string]string) {
	w.t.Helper()
	aside := w.t.TempDir()
	blobs := map[object.ID]string{}
	for _, c := range w.changes() {
		blobs[blobOf(c.content)] = c.content
	}
	for i, op := range operations {
		set := filepath.Join(aside, fmt.Sprint(i))
		if op.Source != nil {
			w.run(fmt.Sprintf("cp -a '%s' '%s'", cmp.Or(op.Source.From, op.Path), set))
			for _, e := range op.Source.Edits {
				data, err := os.ReadFile(set)
				must(w.t, err)
				must(w.t, os.WriteFile(set, bytes.ReplaceAll(data, []byte(e.Old), []byte(e.New)), 0o600))
			}
			continue
		}
		content := contents[op.ContentID]
		if !op.Blob.IsZero() {
			content = blobs[op.Blob]
		}
		must(w.t, os.WriteFile(set, []byte(content), 0o600))
		info, err := os.Lstat(filepath.Join(w.dir, op.Path))
		if op.Mode.IsExec() || err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0 {
			must(w.t, os.Chmod(set, 0o700)) //nolint:gosec // it is to be a program
		}
	}
	for _, op := range operations {
		if op.Delete {
			must(w.t, os.RemoveAll(filepath.Join(w.dir, op.Path)))
		} else if op.Source != nil && op.Source.Move {
			must(w.t, os.RemoveAll(filepath.Join(w.dir, op.Source.From)))
		}
	}
	for i, op := range operations {
		if op.Delete {
			continue
		}
		path := w.dir
		for name := range strings.SplitSeq(filepath.Dir(op.Path), "/") {
			path = filepath.Join(path, name)
			if info, err := os.Lstat(path); err == nil && !info.IsDir() {
				must(w.t, os.Remove(path))
			}
		}
		must(w.t, os.MkdirAll(path, 0o700))
		path = filepath.Join(w.dir, op.Path)
		must(w.t, os.RemoveAll(path))
		must(w.t, os.Rename(filepath.Join(aside, fmt.Sprint(i)), path))
	}
}

// TestOperationsRefused refuses what cannot be done, and says at which path.
func TestOperationsRefused(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	first, err := upload(repo, acme, main, change{path: "a", content: "one one"}, change{path: "lib/x", content: "x"},
		change{path: "link", content: "a", mode: object.ModeSymlink},
		change{path: "sub", content: strings.Repeat("1", 40), mode: object.ModeGitlink},
		change{path: "big", content: strings.Repeat("0123456789abcdef", commit.EditedBytesMax/16) + "more"})
	must(t, err)
	large := commit.Edit{Old: "one one", New: strings.Repeat("x", commit.EditedBytesMax+1)}
	tests := map[string]struct {
		operations []engine.FileOperation
		err        error
		says       string
	}{
		"moves nothing":           {[]engine.FileOperation{moved("none", "b")}, commit.ErrInvalid, `"none" is to be moved`},
		"moves from below a file": {[]engine.FileOperation{moved("a/b", "b")}, commit.ErrInvalid, `"a/b" is to be moved`},
		"copies nothing":          {[]engine.FileOperation{copied("none", "b")}, commit.ErrInvalid, `"none" is to be copied`},
		"edits nothing":           {[]engine.FileOperation{edited("none", large)}, commit.ErrInvalid, `"none" is to be edited`},
		"edits what it moves here": {
			[]engine.FileOperation{moved("a", "b"), edited("b", large)}, commit.ErrInvalid, "twice",
		},
		"edits what moves below": {
			[]engine.FileOperation{moved("lib", "b"), edited("b/x", large)}, commit.ErrInvalid, "lies below",
		},
		"edits a folder":            {[]engine.FileOperation{edited("lib", large)}, commit.ErrInvalid, "is not a file"},
		"edits a submodule":         {[]engine.FileOperation{edited("sub", large)}, commit.ErrInvalid, "is not a file"},
		"edits a folder on the way": {[]engine.FileOperation{with(moved("lib", "b"), large)}, commit.ErrInvalid, "is not a file"},
		"to itself":                 {[]engine.FileOperation{moved("a", "/a")}, commit.ErrInvalid, "to itself"},
		"moves twice":               {[]engine.FileOperation{moved("a", "b"), moved("a", "c")}, commit.ErrInvalid, "twice"},
		"moves and deletes":         {[]engine.FileOperation{moved("a", "b"), deleted("a")}, commit.ErrInvalid, "twice"},
		"deletes and moves":         {[]engine.FileOperation{deleted("a"), moved("a", "b")}, commit.ErrInvalid, "twice"},
		"two to one path":           {[]engine.FileOperation{moved("a", "b"), copied("lib", "b")}, commit.ErrInvalid, "twice"},
		"into what moves here": {
			[]engine.FileOperation{moved("lib", "b"), copied("a", "b/x")}, commit.ErrInvalid, "lies below",
		},
		"from .git":          {[]engine.FileOperation{moved(".git/config", "b")}, commit.ErrInvalid, ".git"},
		"from a parent":      {[]engine.FileOperation{copied("lib/../a", "b")}, commit.ErrInvalid, ".."},
		"to .git":            {[]engine.FileOperation{moved("a", ".git/config")}, commit.ErrInvalid, ".git"},
		"a link .gitmodules": {[]engine.FileOperation{moved("link", ".gitmodules")}, commit.ErrInvalid, ".gitmodules"},
		"not as often": {
			[]engine.FileOperation{edited("a", commit.Edit{Old: "one", New: "two"})}, commit.ErrEdit, "edits[0]: old was found 2 times, expected once",
		},
		"the second edit": {
			[]engine.FileOperation{with(copied("a", "b"), commit.Edit{Old: "one", Count: 2}, commit.Edit{Old: "one"})},
			commit.ErrEdit, `path "b": edits[1]: old was not found`,
		},
		"a large result":  {[]engine.FileOperation{edited("a", large)}, commit.ErrTooLarge, `path "a"`},
		"a large file":    {[]engine.FileOperation{edited("big", large)}, commit.ErrTooLarge, `path "big"`},
		"a missing blob":  {[]engine.FileOperation{{Path: "b", Blob: blobOf("none")}}, commit.ErrInvalid, "does not have"},
		"a tree":          {[]engine.FileOperation{{Path: "b", Blob: first.Tree}}, commit.ErrInvalid, "does not have"},
		"a commit":        {[]engine.FileOperation{{Path: "b", Blob: first.New}}, commit.ErrInvalid, "does not have"},
		"a blob, no mode": {[]engine.FileOperation{{Path: "sub", Blob: blobOf("x")}}, commit.ErrInvalid, "submodule"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				_, err := operate(repo, acme, main, nil, test.operations...)
				if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got error %v, want %v about %s", err, test.err, test.says)
				}
				slices.Reverse(test.operations)
			}
		})
	}
	t.Cleanup(func() {
		if at, err := repo.Branch(context.Background(), refs.Main, "main"); err != nil || at.Tip != first.New {
			t.Errorf("after refusals main is at %s, %v", at.Tip, err)
		}
	})
}

// TestEditsOfMany lets many edit one file at the same time: an edit is made again on a moved tip.
func TestEditsOfMany(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	_, err := upload(repo, acme, main, change{path: "list", content: "end\n"}, change{path: "0", content: "0"})
	must(t, err)
	const writers, rounds = 4, 5
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for round := range rounds {
				line := fmt.Sprintf("%d.%d\n", writer, round)
				_, err := operate(repo, acme, main, nil, edited("list", commit.Edit{Old: "end\n", New: line + "end\n"}),
					copied("list", line[:3]))
				if err != nil {
					t.Errorf("edit %s: %v", line, err)
				}
			}
		})
	}
	group.Wait()
	list := strings.Fields(fileText(t, repo, "list"))
	seen := map[string]int{}
	for i, line := range list[:len(list)-1] {
		seen[line]++
		// A copy is of the file as the commit found it.
		if want, got := strings.Join(append(slices.Clone(list[:i]), "end"), "\n")+"\n", fileText(t, repo, line); got != want {
			t.Errorf("%s was copied when the file was %q, want %q", line, got, want)
		}
	}
	if len(seen) != writers*rounds || len(list) != writers*rounds+1 {
		t.Errorf("the file has the lines %q", list)
	}
}

func fileText(t *testing.T, repo *engine.Repository, path string) string {
	t.Helper()
	file, err := repo.File(t.Context(), engine.FileRequest{Path: path})
	must(t, err)
	defer file.Close()
	content, err := file.Content(t.Context())
	must(t, err)
	defer content.Close()
	var text strings.Builder
	_, err = content.WriteTo(&text)
	must(t, err)
	return text.String()
}

// TestStoredBlobsOfForks takes a blob by its ID only where it may be read: not one of another
// repository, nor one that a fork shares and was not given.
func TestStoredBlobsOfForks(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	base, other := enginetest.Create(t, host, "base"), enginetest.Create(t, host, "other")
	for _, repo := range []*engine.Repository{base, other} {
		_, err := upload(repo, acme, main, change{path: "seed", content: "seed of " + repo.Item().Name})
		must(t, err)
	}
	_, err := upload(base, acme, engine.CommitTarget{Branch: "hidden", Base: "main"}, change{path: "f", content: "hidden"})
	must(t, err)
	_, err = base.DeleteBranch(t.Context(), acme, refs.Main, "hidden")
	must(t, err)
	_, err = host.CreateRepository(t.Context(), acme, engine.CreateRequest{Name: "fork", Base: &engine.Base{Name: "base"}})
	must(t, err)
	fork, err := host.Repository(t.Context(), enginetest.Org, "fork")
	must(t, err)
	_, err = upload(base, acme, main, change{path: "later", content: "later"})
	must(t, err)
	_, err = upload(fork, acme, main, change{path: "own", content: "own"})
	must(t, err)
	for name, test := range map[string]struct {
		repo    *engine.Repository
		content string
		ok      bool
	}{
		"its own":            {fork, "own", true},
		"that it was given":  {fork, "seed of base", true},
		"that it shares":     {fork, "hidden", false},
		"of its base, later": {fork, "later", false},
		"of another":         {fork, "seed of other", false},
		"of a fork":          {base, "own", false},
		"without a ref":      {base, "hidden", true}, // which it stored itself
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := operate(test.repo, acme, engine.CommitTarget{Branch: strings.ReplaceAll(name, " ", "-"), Base: "main"},
				nil, engine.FileOperation{Path: "taken", Blob: blobOf(test.content)})
			if test.ok != (err == nil) || err != nil && !errors.Is(err, commit.ErrInvalid) {
				t.Fatalf("%s: %v", result.New, err)
			}
		})
	}
}
