package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
	"packhorse/refs"
)

var thor = commit.Person{Name: "A U Thor", Email: "thor@example.com"}

// change is one file operation with its content.
type change struct {
	path    string
	content string
	mode    object.Mode
	remove  bool
}

// upload commits the changes to a branch, each content in one chunk.
func upload(
	repo *engine.Repository, actor engine.Actor, target engine.CommitTarget, changes ...change,
) (engine.CommitResult, error) {
	return uploadWhile(context.Background(), repo, actor, target, changes...)
}

// uploadWhile is upload until ctx ends.
func uploadWhile(
	ctx context.Context, repo *engine.Repository, actor engine.Actor, target engine.CommitTarget, changes ...change,
) (engine.CommitResult, error) {
	request := engine.UploadRequest{
		Target:  target,
		Details: engine.CommitDetails{Message: "change", Author: thor},
	}
	for i, c := range changes {
		op := engine.FileOperation{Path: c.path, Delete: c.remove, Mode: c.mode}
		if !c.remove {
			op.ContentID = fmt.Sprint(i)
		}
		request.Operations = append(request.Operations, op)
	}
	u, err := repo.NewUpload(ctx, actor, request)
	if err != nil {
		return engine.CommitResult{}, err
	}
	defer u.Close()
	for i, c := range changes {
		if c.remove {
			continue
		}
		if err := u.Chunk(ctx, fmt.Sprint(i), []byte(c.content), true); err != nil {
			return engine.CommitResult{}, err
		}
	}
	return u.Finish(ctx)
}

var (
	acme = engine.Actor{Org: enginetest.Org, Subject: "tester"}
	main = engine.CommitTarget{Branch: "main"}
)

// model is a work tree: that of git after the same operations.
type model map[string]change

func (m model) apply(changes []change) {
	for _, c := range changes {
		if c.remove {
			maps.DeleteFunc(m, func(path string, _ change) bool { return path == c.path || strings.HasPrefix(path, c.path+"/") })
		}
	}
	for _, c := range changes {
		if c.remove {
			continue
		}
		mode := c.mode
		if mode == 0 {
			mode = object.ModeBlob
			if old, ok := m[c.path]; ok {
				mode = old.mode
			}
		}
		maps.DeleteFunc(m, func(path string, _ change) bool {
			return strings.HasPrefix(path, c.path+"/") || strings.HasPrefix(c.path, path+"/")
		})
		m[c.path] = change{path: c.path, content: c.content, mode: mode}
	}
}

// tree is the id that git gives the model.
func (m model) tree(git *oracle.Repository) string {
	var index strings.Builder
	for _, path := range slices.Sorted(maps.Keys(m)) {
		f := m[path]
		id := f.content
		if !f.mode.IsGitlink() {
			id = git.Write("blob", []byte(f.content))
		}
		fmt.Fprintf(&index, "%s %s\t%s\n", f.mode, id, path)
	}
	git.Git("read-tree", "--empty")
	git.Input([]byte(index.String()), "update-index", "--index-info")
	return strings.TrimSpace(git.Git("write-tree"))
}

// TestUploadTreesAreGits commits random operations and holds every tree against the one that git
// writes.
func TestUploadTreesAreGits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			git := oracle.New(t)
			repo := enginetest.Create(t, enginetest.Open(t), "r")
			files := model{}
			for range 40 {
				changes := randomChanges(rng, files)
				result, err := upload(repo, acme, main, changes...)
				if err != nil {
					t.Fatalf("commit %v: %v", changes, err)
				}
				files.apply(changes)
				if want := files.tree(git); result.Tree.String() != want {
					t.Fatalf("tree after %v is %s, git has %s", changes, result.Tree, want)
				}
			}
		})
	}
}

// randomChanges makes operations that do not contradict each other.
func randomChanges(rng *rand.Rand, files model) []change {
	var changes []change
	var taken []string
	free := func(path string) bool {
		for _, other := range taken {
			if path == other || strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/") {
				return false
			}
		}
		taken = append(taken, path)
		return true
	}
	for range 1 + rng.IntN(6) {
		paths := slices.Sorted(maps.Keys(files))
		if len(paths) > 0 && rng.IntN(3) == 0 {
			path := paths[rng.IntN(len(paths))]
			if folder, _, ok := strings.Cut(path, "/"); ok && rng.IntN(3) == 0 {
				path = folder
			}
			if free(path) {
				changes = append(changes, change{path: path, remove: true})
			}
			continue
		}
		names := []string{"a", "a.b", "a-b", "a0", "b", "lib", "lib.c", "z"}
		path := names[rng.IntN(len(names))]
		for range rng.IntN(3) {
			path += "/" + names[rng.IntN(len(names))]
		}
		if !free(path) {
			continue
		}
		modes := []object.Mode{0, 0, 0, object.ModeBlob, object.ModeExec, object.ModeSymlink, object.ModeGitlink}
		c := change{path: path, mode: modes[rng.IntN(len(modes))], content: strings.Repeat(fmt.Sprintln(rng.IntN(1000)),
			rng.IntN(50))}
		if c.mode == 0 && files[path].mode.IsGitlink() {
			c.mode = object.ModeBlob
		}
		if c.mode.IsGitlink() {
			c.content = fmt.Sprintf("%040x", 1+rng.Uint64N(1<<60))
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		changes = append(changes, change{path: fmt.Sprint("only", rng.IntN(100)), content: "x"})
	}
	return changes
}

func TestUploadRefuses(t *testing.T) {
	t.Parallel()
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	first, err := upload(repo, acme, main, change{path: "dir/file", content: "1"},
		change{path: "sub", mode: object.ModeGitlink, content: strings.Repeat("1", 40)})
	if err != nil {
		t.Fatal(err)
	}
	other := object.ID{1}
	tests := map[string]struct {
		target  engine.CommitTarget
		changes []change
		err     error
	}{
		"no such branch": {engine.CommitTarget{Branch: "dev"}, []change{{path: "a"}}, engine.ErrNotFound},
		"no such base": {
			engine.CommitTarget{Branch: "dev", Base: "nope"}, []change{{path: "a"}}, engine.ErrNotFound,
		},
		"no such ephemeral base": {
			engine.CommitTarget{Branch: "dev", Base: "main", BaseNamespace: refs.Ephemeral},
			[]change{{path: "a"}},
			engine.ErrNotFound,
		},
		"another tip": {
			engine.CommitTarget{Branch: "main", Expected: &other}, []change{{path: "a"}}, engine.ErrStale,
		},
		"another base tip": {
			engine.CommitTarget{Branch: "dev", Base: "main", Expected: &other}, []change{{path: "a"}}, engine.ErrStale,
		},
		"bad branch name":      {engine.CommitTarget{Branch: "a..b"}, []change{{path: "a"}}, engine.ErrInvalid},
		"bad base name":        {engine.CommitTarget{Branch: "dev", Base: "a b"}, []change{{path: "a"}}, engine.ErrInvalid},
		"no files":             {main, nil, engine.ErrInvalid},
		"deletes nothing":      {main, []change{{path: "nope", remove: true}}, commit.ErrInvalid},
		"deletes below a file": {main, []change{{path: "dir/file/x", remove: true}}, commit.ErrInvalid},
		"file for a submodule": {main, []change{{path: "sub", content: "text"}}, commit.ErrInvalid},
		"submodule without id": {
			main, []change{{path: "sub2", mode: object.ModeGitlink, content: "text"}}, engine.ErrInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := upload(repo, acme, test.target, test.changes...); !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
		})
	}
	page, err := repo.Branches(context.Background(), refs.Main, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != 1 || page.Items[0].Tip != first.New {
		t.Errorf("after refusals the branches are %v, want only main at %s", page.Items, first.New)
	}
}

// TestUploadContentTooLarge uploads contents around the limit of an object, in one chunk and in
// several: the refusal names the path, the limit and its flag, and nothing is committed.
func TestUploadContentTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	host, shut := enginetest.OpenOn(t, vfs.NewMem(),
		engine.Config{Objects: odb.Options{Limits: odb.Limits{ObjectBytes: limit}}})
	defer shut()
	repo := enginetest.Create(t, host, "r")
	for _, size := range []int{limit, limit + 1} {
		for _, piece := range []int{size, 100_000} {
			u, err := repo.NewUpload(t.Context(), acme, engine.UploadRequest{
				Target: main, Details: engine.CommitDetails{Message: "m", Author: thor},
				Operations: []engine.FileOperation{{Path: "dir/large", ContentID: "7"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for rest := size; rest > 0 && err == nil; rest -= piece {
				err = u.Chunk(t.Context(), "7", make([]byte, min(piece, rest)), rest <= piece)
			}
			if err == nil {
				_, err = u.Finish(t.Context())
			}
			u.Close()
			const want = `path "dir/large": its content (content_id "7") is larger than 1 MiB, the limit (--object-max)`
			if size == limit && err != nil ||
				size > limit && (!errors.Is(err, engine.ErrTooLarge) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%d bytes in pieces of %d: %v", size, piece, err)
			}
		}
	}
	if sequence, err := repo.Sequence(t.Context()); err != nil || sequence != 3 {
		t.Errorf("the repository is at %d, %v, and not at the second of two commits", sequence, err)
	}
}

// An entry of a file type that git does not know is a submodule, also for a file that is written in
// its place.
func TestUploadOverOddFileType(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	for i, mode := range []object.Mode{0o010000, 0} {
		tree := object.AppendTree(nil, []object.TreeEntry{{Mode: mode, Name: "odd", ID: object.ID{1}}})
		data := fmt.Appendf(nil, "tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n",
			packtest.Hash(t, object.TypeTree, tree))
		target := engine.CommitTarget{Branch: fmt.Sprint("b", i)}
		enginetest.Push(t, repo,
			packtest.Encode(packtest.Whole(object.TypeTree, tree), packtest.Whole(object.TypeCommit, data)),
			engine.Command{Name: "refs/heads/" + target.Branch, New: packtest.Hash(t, object.TypeCommit, data)})
		if _, err := upload(repo, acme, target, change{path: "odd"}); !errors.Is(err, commit.ErrInvalid) {
			t.Errorf("mode %s: a file without a mode gave %v", mode, err)
		}
		if _, err := upload(repo, acme, target, change{path: "odd", mode: object.ModeBlob}); err != nil {
			t.Errorf("mode %s: %v", mode, err)
		}
	}
}

func TestUploadTargets(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	if _, err := upload(
		repo, acme, engine.CommitTarget{Branch: "main", Expected: &object.ID{1}}, change{path: "a"},
	); !errors.Is(err, engine.ErrStale) {
		t.Errorf("an expectation on an empty repository gave %v, want ErrStale", err)
	}
	if _, err := upload(repo, acme, engine.CommitTarget{Branch: "dev"}, change{path: "a"}); !errors.Is(err,
		engine.ErrNotFound) {
		t.Errorf("seeding another branch than the default one gave %v, want ErrNotFound", err)
	}
	seed, err := upload(repo, acme, main, change{path: "a", content: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if !seed.Old.IsZero() {
		t.Errorf("the seed's old id is %s, want zeros", seed.Old)
	}
	dev, err := upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: "main", Expected: &seed.New},
		change{path: "b", content: "2"})
	if err != nil {
		t.Fatal(err)
	}
	if !dev.Old.IsZero() {
		t.Errorf("a new branch's old id is %s, want zeros", dev.Old)
	}
	again, err := upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: "main", Expected: &dev.New},
		change{path: "c", content: "3"})
	if err != nil {
		t.Fatalf("the guard of an existing branch must be its own: %v", err)
	}
	ephemeral := engine.CommitTarget{Branch: "dev", Namespace: refs.Ephemeral, Base: "dev"}
	if _, err := upload(repo, acme, ephemeral, change{path: "d", content: "4"}); err != nil {
		t.Fatal(err)
	}
	ephemeral = engine.CommitTarget{Branch: "next", Namespace: refs.Ephemeral, Base: "dev", BaseNamespace: refs.Ephemeral}
	if _, err := upload(repo, acme, ephemeral, change{path: "d", remove: true}); err != nil {
		t.Fatal(err)
	}
	page, err := repo.Commits(context.Background(), engine.CommitsRequest{From: branchNamed("dev"), Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var ids []object.ID
	for _, c := range page.Items {
		ids = append(ids, c.ID)
	}
	if want := []object.ID{again.New, dev.New, seed.New}; !slices.Equal(ids, want) {
		t.Errorf("history of dev is %v, want %v", ids, want)
	}
}

// TestUploadSpools sends two contents in interleaved chunks, one of them too large for memory.
func TestUploadSpools(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	u, err := repo.NewUpload(ctx, acme, engine.UploadRequest{
		Target:  main,
		Details: engine.CommitDetails{Message: "two", Author: thor},
		Operations: []engine.FileOperation{
			{Path: "large", ContentID: "l"}, {Path: "small", ContentID: "s"}, {Path: "copy", ContentID: "s"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	rng := rand.NewChaCha8([32]byte{7})
	contents := map[string][]byte{}
	for i := range 8 {
		for id, size := range map[string]int{"l": 300_000, "s": 1000} {
			chunk := make([]byte, size)
			if i%2 == 0 {
				rng.Read(chunk)
			}
			contents[id] = append(contents[id], chunk...)
			if err := u.Chunk(ctx, id, chunk, i == 7); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := u.Chunk(ctx, "s", nil, true); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a chunk behind the last gave %v, want ErrInvalid", err)
	}
	if err := u.Chunk(ctx, "unknown", nil, true); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a chunk of an unknown content gave %v, want ErrInvalid", err)
	}
	if _, err := u.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	for path, id := range map[string]string{"large": "l", "small": "s", "copy": "s"} {
		f, err := repo.File(ctx, engine.FileRequest{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		content, err := f.Content(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := content.WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(contents[id]) {
			t.Errorf("%s came back different", path)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUploadSubmoduleInPieces brings the id of a submodule in several chunks.
func TestUploadSubmoduleInPieces(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	id := strings.Repeat("1", 40)
	tests := map[string]struct {
		chunks []string
		err    error
	}{
		"an id":            {[]string{id[:10], "", id[10:]}, nil},
		"and a line feed":  {[]string{id, "\n"}, nil},
		"and two of them":  {[]string{id, "\n", "\n"}, engine.ErrInvalid},
		"too short":        {[]string{id[:10], id[11:]}, engine.ErrInvalid},
		"much longer":      {[]string{id, strings.Repeat(id, 30_000), id}, engine.ErrInvalid},
		"nothing, thrice":  {[]string{"", "", ""}, engine.ErrInvalid},
		"no id of a thing": {[]string{strings.Repeat("0", 20), strings.Repeat("0", 20)}, engine.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u, err := repo.NewUpload(ctx, acme, engine.UploadRequest{
				Target:     main,
				Details:    engine.CommitDetails{Message: "m", Author: thor},
				Operations: []engine.FileOperation{{Path: name, Mode: object.ModeGitlink, ContentID: "1"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			for i, chunk := range test.chunks {
				if err = u.Chunk(ctx, "1", []byte(chunk), i == len(test.chunks)-1); err != nil {
					break
				}
			}
			if err == nil {
				_, err = u.Finish(ctx)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
		})
	}
}

// TestUploadOpenContents bounds the contents that have begun and not ended, and no others.
func TestUploadOpenContents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Limits: engine.Limits{OpenContentCountMax: 2}})
	t.Cleanup(shut)
	repo := enginetest.Create(t, host, "r")
	request := engine.UploadRequest{Target: main, Details: engine.CommitDetails{Message: "m", Author: thor}}
	for _, name := range []string{"a", "b", "c", "d"} {
		request.Operations = append(request.Operations, engine.FileOperation{Path: name, ContentID: name})
	}
	u, err := repo.NewUpload(ctx, acme, request)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for i, chunk := range []struct {
		content string
		eof     bool
		err     error
	}{
		{"a", false, nil},
		{"b", false, nil},
		{"c", false, engine.ErrInvalid},
		{"d", true, nil},
		{"a", true, nil},
		{"c", false, nil},
		{"c", true, nil},
		{"b", true, nil},
	} {
		if err := u.Chunk(ctx, chunk.content, []byte("data"), chunk.eof); !errors.Is(err, chunk.err) {
			t.Errorf("chunk %d, of %s: got %v, want %v", i, chunk.content, err, chunk.err)
		}
	}
	if _, err := u.Finish(ctx); err != nil {
		t.Error(err)
	}
}

// TestUploadIncomplete makes no commit of a content that has not ended.
func TestUploadIncomplete(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	u, err := repo.NewUpload(ctx, acme, engine.UploadRequest{
		Target:     main,
		Details:    engine.CommitDetails{Message: "m", Author: thor},
		Operations: []engine.FileOperation{{Path: "a", ContentID: "1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.Chunk(ctx, "1", []byte("begun"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(ctx); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
}

// TestUploadOnce replays keyed commits, also when two equal ones run concurrently.
func TestUploadOnce(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	keyed := func(key, body string) engine.Actor {
		a := acme
		a.Receipt = &refs.Receipt{
			Key:     refs.ReceiptKey{Org: a.Org, Repo: repo.Item().ID.String(), Endpoint: "commit", Key: key},
			Request: sha256.Sum256([]byte(body)),
		}
		return a
	}
	first, err := upload(repo, keyed("k", "1"), main, change{path: "a", content: "1"})
	if err != nil {
		t.Fatal(err)
	}
	results := make([]engine.CommitResult, 8)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			var err error
			if results[i], err = upload(repo, keyed("twin", "2"), main, change{path: "a", content: "2"}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, result := range results {
		if result != results[0] {
			t.Errorf("twins were told %v and %v", result, results[0])
		}
	}
	if results[0].Old != first.New {
		t.Errorf("the twins built on %s, want %s", results[0].Old, first.New)
	}
	again, err := upload(repo, keyed("k", "1"), engine.CommitTarget{Branch: "main", Expected: &object.ID{9}},
		change{path: "a", content: "1"})
	if err != nil || again != first {
		t.Errorf("the replay gave %v, %v, want %v", again, err, first)
	}
	if _, err := upload(repo, keyed("k", "another"), main, change{path: "a", content: "3"}); !errors.Is(err,
		refs.ErrReceiptMismatch) {
		t.Errorf("another request under the key gave %v, want ErrReceiptMismatch", err)
	}
}
