package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack/object"
)

// disguiseCase is one file, and the objects that git has to judge.
type disguiseCase struct {
	change
	objects []string
}

func disguiseCases(git *oracle.Repository) []disguiseCase {
	var cases []disguiseCase
	add := func(path string, mode object.Mode, content string) {
		n := len(cases)
		c := disguiseCase{change: change{path: path, mode: mode, content: fmt.Sprintf("%s# case %d\n", content, n)}}
		id := ""
		if mode.IsGitlink() {
			c.content = fmt.Sprintf("%040x", n+1)
			id = c.content
		} else {
			id = git.Write("blob", []byte(c.content))
		}
		c.objects = append(c.objects, id)
		parts := strings.Split(path, "/")
		for _, name := range slices.Backward(parts) {
			parsed, _ := object.ParseID(id)
			tree := object.AppendTree(nil, []object.TreeEntry{{Mode: mode, Name: name, ID: parsed}})
			id, mode = git.Write("tree", tree), object.ModeTree
			c.objects = append(c.objects, id)
		}
		cases = append(cases, c)
	}
	for _, name := range enginetest.Disguises {
		for i, content := range enginetest.DisguisedContents {
			add([]string{"", "sub/", "a/b/"}[i%3]+name, object.ModeBlob, content)
		}
		add(name, object.ModeExec, enginetest.DisguisedContents[1])
		add("sub/"+name, object.ModeSymlink, enginetest.DisguisedContents[1])
		add(name, object.ModeGitlink, "")
		add(name+"/file", object.ModeBlob, enginetest.DisguisedContents[0])
	}
	return cases
}

// file is the change as a file.
func (c *change) file() *enginetest.File {
	return &enginetest.File{Path: c.path, Content: c.content, Mode: c.mode}
}

// applyPatch commits a patch to a branch.
func applyPatch(
	ctx context.Context, repo *engine.Repository, target engine.CommitTarget, patch string,
) (engine.CommitResult, error) {
	u, err := repo.NewPatchUpload(ctx, acme,
		engine.PatchRequest{Target: target, Details: engine.CommitDetails{Message: "m", Author: thor}})
	if err != nil {
		return engine.CommitResult{}, err
	}
	defer u.Close()
	if err := u.Chunk(ctx, []byte(patch), true); err != nil {
		return engine.CommitResult{}, err
	}
	return u.Finish(ctx)
}

// takeUnder commits a file under a plain name first, and then an operation that gives it its name.
func takeUnder(repo *engine.Repository, target engine.CommitTarget, c *change, op engine.FileOperation) error {
	plain := change{path: "plain", content: c.content, mode: c.mode}
	switch {
	case c.mode.IsGitlink() && op.Source == nil, c.mode.IsGitlink() && len(op.Source.Edits) > 0: // not of blobs
		_, err := upload(repo, acme, target, *c)
		return err
	case op.Source != nil && len(op.Source.Edits) > 0:
		plain.content = "plain"
	}
	if _, err := upload(repo, acme, target, plain); err != nil {
		return err
	}
	target.Base = ""
	_, err := operate(repo, acme, target, nil, op)
	return err
}

// TestDisguisesAreJudgedAsByGit checks that commits of files and patches, and operations that give
// a stored file another name, are refused whenever git
// fsck --strict objects to their result, for a reason that names the path, and that git accepts all
// others.
func TestDisguisesAreJudgedAsByGit(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	cases := disguiseCases(git)
	if testing.Short() {
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		cases = cases[:len(cases)/4]
	}
	faults := git.Fsck()
	host := enginetest.Open(t)
	writes := map[string]func(repo *engine.Repository, target engine.CommitTarget, c *change) error{
		"commit": func(repo *engine.Repository, target engine.CommitTarget, c *change) error {
			_, err := upload(repo, acme, target, *c)
			return err
		},
		"patch": func(repo *engine.Repository, target engine.CommitTarget, c *change) error {
			_, err := applyPatch(t.Context(), repo, target, c.file().Patch())
			return err
		},
	}
	taking := map[string]func(c *change) engine.FileOperation{
		"move": func(c *change) engine.FileOperation { return moved("plain", c.path) },
		"copy": func(c *change) engine.FileOperation { return copied("plain", c.path) },
		"stored": func(c *change) engine.FileOperation {
			return engine.FileOperation{Path: c.path, Mode: c.mode, Blob: blobOf(c.content)}
		},
		"edit": func(c *change) engine.FileOperation {
			return with(moved("plain", c.path), commit.Edit{Old: "plain", New: c.content})
		},
	}
	for name, take := range taking {
		writes[name] = func(repo *engine.Repository, target engine.CommitTarget, c *change) error {
			return takeUnder(repo, target, c, take(c))
		}
	}
	for name, write := range writes {
		repo := enginetest.Create(t, host, name)
		if _, err := upload(repo, acme, main, change{path: "seed"}); err != nil {
			t.Fatal(err)
		}
		step := 1
		if taking[name] != nil { // these build on what a commit does
			step = 4
		}
		refused := 0
		for i := 0; i < len(cases); i += step {
			c := &cases[i]
			var want []string
			for _, id := range c.objects {
				want = append(want, faults[id]...)
			}
			err := write(repo, engine.CommitTarget{Branch: fmt.Sprint("case", i), Base: "main"}, &c.change)
			if (err != nil) != (len(want) > 0) {
				t.Errorf("%s of %q, mode %s, %.40q: %v, git has %q", name, c.path, c.mode, c.content, err, want)
			}
			if err == nil {
				continue
			}
			refused++
			var file *odb.RefusedFileError
			var path *commit.InvalidError
			switch {
			case errors.As(err, &file):
				if refusedPath := file.Path; !strings.HasPrefix(c.path, refusedPath) || !slices.Contains(want, file.Err.Name) {
					t.Errorf("%s of %q: %v, git has %q", name, c.path, err, want)
				}
			case !errors.As(err, &path) || path.Path != c.path:
				t.Errorf("%s of %q: %v, git has %q", name, c.path, err, want)
			}
		}
		if refused < len(cases)/4/step {
			t.Errorf("%s: only %d of %d cases were refused", name, refused, len(cases)/step)
		}
		t.Logf("%s: %d of %d cases refused", name, refused, len(cases)/step)
		fsckWithGit(t, repo)
	}
	keep(t, host, engine.MaintainOptions{All: true})
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		if err != nil || checked.Damaged() || checked.Objects.WarningCount > 0 {
			t.Errorf("fsck: %v, %q, %q", err, checked.Problems(), checked.Warnings())
		}
	}
}
