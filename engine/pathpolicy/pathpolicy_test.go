package pathpolicy_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // the hash of git
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/pathpolicy"
	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// forest holds trees in memory.
type forest struct {
	trees map[object.ID][]byte
	reads map[object.ID]int
}

func newForest() *forest { return &forest{map[object.ID][]byte{}, map[object.ID]int{}} }

func (f *forest) ReadTree(_ context.Context, id object.ID) ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	f.reads[id]++
	data, ok := f.trees[id]
	if !ok {
		return nil, fmt.Errorf("no tree %s", id)
	}
	return data, nil
}

var errUnwanted = errors.New("only trees are to be read")

func (f *forest) Read(context.Context, object.ID) (object.Type, []byte, error) {
	return 0, nil, errUnwanted
}

func (f *forest) Stat(context.Context, object.ID) (odb.Info, error) { return odb.Info{}, errUnwanted }

func (f *forest) Open(context.Context, object.ID) (*odb.Object, error) {
	return nil, errUnwanted
}

// plant stores files, each "content", "link:content" or "module:content", and returns the root.
func (f *forest) plant(files map[string]string) object.ID {
	below := map[string]map[string]string{}
	var entries []object.TreeEntry
	for path, content := range files {
		if name, rest, deeper := strings.Cut(path, "/"); deeper {
			if below[name] == nil {
				below[name] = map[string]string{}
			}
			below[name][rest] = content
			continue
		}
		mode := object.ModeBlob
		switch {
		case strings.HasPrefix(content, "link:"):
			mode = object.ModeSymlink
		case strings.HasPrefix(content, "module:"):
			mode = object.ModeGitlink
		}
		entries = append(entries, object.TreeEntry{Mode: mode, Name: path, ID: sha1.Sum([]byte(content))})
	}
	for name, inside := range below {
		entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: name, ID: f.plant(inside)})
	}
	object.SortTree(entries)
	data := object.AppendTree(nil, entries)
	id := object.ID(sha1.Sum(data))
	f.trees[id] = data
	return id
}

// parse reads a claim as a token has it.
func parse(t *testing.T, claim string) pathpolicy.Policy {
	t.Helper()
	var pairs [][]any
	if err := json.Unmarshal([]byte(claim), &pairs); err != nil {
		t.Fatal(err)
	}
	policy, err := pathpolicy.Parse(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestCheck holds policies against one change of a few files: "" in the new files removes one.
func TestCheck(t *testing.T) {
	t.Parallel()
	const ci = `[[".github/**", ["no-write"]]]`
	old := map[string]string{
		"README": "1", "src/a.go": "1", "src/gen/b.go": "1", ".github/workflows/ci.yml": "1", "keys/a.pem": "1",
	}
	tests := map[string]struct {
		claim  string
		change map[string]string
		denied string // what the refusal says, "" for none
	}{
		"nothing protected":  {`[]`, map[string]string{".github/x": "2"}, ""},
		"another path":       {ci, map[string]string{"src/a.go": "2", "new": "1"}, ""},
		"changed":            {ci, map[string]string{".github/workflows/ci.yml": "2"}, `path ".github/workflows/ci.yml"`},
		"added":              {ci, map[string]string{".github/deep/er": "2"}, `path ".github/deep/er"`},
		"removed":            {ci, map[string]string{".github/workflows/ci.yml": ""}, `".github/workflows/ci.yml"`},
		"renamed from there": {ci, map[string]string{".github/workflows/ci.yml": "", "ci.yml": "1"}, `workflows/ci.yml"`},
		"renamed to there":   {ci, map[string]string{"src/a.go": "", ".github/a.go": "1"}, `".github/a.go"`},
		"mode":               {ci, map[string]string{".github/workflows/ci.yml": "link:1"}, `ci.yml"`},
		"in capitals":        {ci, map[string]string{".GitHub/Workflows/ci.yml": "2"}, `path ".GitHub/Workflows/ci.yml"`},
		"Kelvin's K":         {`[["keys/**", ["no-write"]]]`, map[string]string{"\u212aeys/x": "2"}, "eys/x"},
		"ignored by HFS+":    {ci, map[string]string{".git\u200chub/x": "2"}, `hub/x"`},
		"ignored by NTFS":    {ci, map[string]string{".github. ./x": "2"}, `".github. ./x"`},
		"a pattern of capitals": {
			`[["SRC/*.GO", ["no-write"]]]`, map[string]string{"src/a.go": "2"}, `"src/a.go" is protected by "SRC/*.GO"`,
		},
		"a link in its place":    {ci, map[string]string{".github/workflows/ci.yml": "", ".github": "link:x"}, `".github"`},
		"a module in its place":  {`[["a/b/c", ["no-write"]]]`, map[string]string{"a": "module:1"}, `path "a"`},
		"a link above":           {`[["a/b/c/**", ["no-write"]]]`, map[string]string{"a/b": "link:1"}, `path "a/b"`},
		"a link to a new folder": {`[["a/b/c/**", ["no-write"]]]`, map[string]string{"a/b/c": "link:1"}, `path "a/b/c"`},
		"a link beside":          {`[["a/b/c/**", ["no-write"]]]`, map[string]string{"a/bb": "link:1", "b": "link:2"}, ""},
		"a file above":           {`[["a/b/c/**", ["no-write"]]]`, map[string]string{"a/b": "1"}, ""},
		"names at any depth":     {`[["*.pem", ["no-write"]]]`, map[string]string{"x/y/Z.PEM": "1"}, `"x/y/Z.PEM"`},
		"an exception":           {`[["src/gen/**", []], ["src", ["no-write"]]]`, map[string]string{"src/gen/b.go": "2"}, ""},
		"beside the exception": {
			`[["src/gen/**", []], ["src", ["no-write"]]]`, map[string]string{"src/a.go": "2"}, `"src/a.go" is protected by "src"`,
		},
		"an exception in capitals": {
			`[["src/gen/**", []], ["src", ["no-write"]]]`, map[string]string{"src/GEN/b.go": "2"}, `"src/GEN/b.go"`,
		},
		"an exception that is late": {
			`[["src", ["no-write"]], ["src/gen/**", []]]`, map[string]string{"src/gen/b.go": "2"}, `"src/gen/b.go"`,
		},
		"a link in an exception": {
			`[["src/gen/**", []], ["**", ["no-write"]]]`, map[string]string{"src/gen/l": "link:1"}, "",
		},
		"a link in place of an exception": {
			`[["src/gen/**", []], ["**", ["no-write"]]]`, map[string]string{"src/gen/b.go": "", "src/gen": "link:1"}, "",
		},
		"all":        {`[["**", ["no-write"]]]`, map[string]string{"new": "1"}, `path "new"`},
		"unknown op": {`[["new", ["no-read"]]]`, map[string]string{"new": "1"}, "no-read on refs/heads/main: path"},
		"unknown op beside another": {
			`[["new", ["no-write", "no-read"]]]`, map[string]string{"new": "1"}, `whose op is not known`,
		},
		"a terminal's escapes": {`[["**", ["no-write"]]]`, map[string]string{"\x1b[31m": "1"}, `path "\x1b[31m"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForest()
			files := maps.Clone(old)
			for path, content := range test.change {
				if files[path] = content; content == "" {
					delete(files, path)
				}
			}
			policy := parse(t, test.claim)
			err := policy.Check(t.Context(), f, "refs/heads/main", []object.ID{f.plant(old)}, f.plant(files))
			switch {
			case test.denied == "" && err != nil:
				t.Error(err)
			case test.denied != "" && (!errors.Is(err, refs.ErrDenied) || !strings.Contains(err.Error(), test.denied)):
				t.Errorf("got %v, want a refusal with %s", err, test.denied)
			}
		})
	}
}

// TestCheckAmongSeveral compares random trees with several others, file by file.
func TestCheckAmongSeveral(t *testing.T) {
	t.Parallel()
	policy := parse(t, `[["a", []], ["**", ["no-write"]]]`)
	denied := 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		draw := func() map[string]string {
			files := map[string]string{}
			for _, path := range []string{"a", "b", "c.d", "c/e", "c/f", "g/h/i"} {
				if content := random.IntN(24); content > 0 {
					files[path] = fmt.Sprint(min(content, 3))
				}
			}
			return files
		}
		f := newForest()
		after := draw()
		var before []map[string]string
		var trees []object.ID
		for range (seed + 3) % 4 {
			before = append(before, draw())
			trees = append(trees, f.plant(before[len(before)-1]))
		}
		want := ""
		for _, path := range []string{"b", "c.d", "c/e", "c/f", "g/h/i"} {
			same := func(files map[string]string) bool { return files[path] == after[path] }
			if want == "" && (len(before) > 0 && !slices.ContainsFunc(before, same) || len(before) == 0 && after[path] != "") {
				want = fmt.Sprintf("path %q ", path)
			}
		}
		err := policy.Check(t.Context(), f, "refs/heads/main", trees, f.plant(after))
		if want == "" && err != nil || want != "" && (!errors.Is(err, refs.ErrDenied) || !strings.Contains(err.Error(), want)) {
			t.Fatalf("seed %d: %v, want %q\nbefore %v\nafter  %v", seed, err, want, before, after)
		}
		if want != "" {
			denied++
		}
	}
	if denied < 100 || denied > 400 {
		t.Errorf("%d of 500 are refused", denied)
	}
}

// TestCheckOpensWhatDiffers looks at the trees that are read.
func TestCheckOpensWhatDiffers(t *testing.T) {
	t.Parallel()
	f := newForest()
	files := map[string]string{"same/deep/file": "1", "also/same": "2", "changed/in/here": "3"}
	old := f.plant(files)
	files["changed/in/here"] = "4"
	if err := parse(t, `[["same/**", ["no-write"]]]`).Check(t.Context(), f, "r", []object.ID{old}, f.plant(files)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []map[string]string{{"deep/file": "1"}, {"same": "2"}} {
		if id := f.plant(folder); f.reads[id] != 0 {
			t.Errorf("the folder with %v was read", folder)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	long := make([][]any, pathpolicy.RuleCountMax+1)
	for i := range long {
		long[i] = []any{"a", []any{}}
	}
	for name, pairs := range map[string][][]any{
		"no pair": {{"a"}}, "three": {{"a", []any{}, 1}}, "no pattern": {{1, []any{}}}, "no ops": {{"a", "no-write"}},
		"an op that is no text": {{"a", []any{1}}}, "an empty op": {{"a", []any{""}}}, "an empty pattern": {{"", []any{}}},
		"a pattern that cannot be": {{"a[", []any{"no-write"}}}, "too many": long,
	} {
		if _, err := pathpolicy.Parse(pairs); !errors.Is(err, pathpolicy.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCheck feeds patterns and paths of strangers: a policy never panics, and refuses the spelling
// of a pattern without magic, in any case.
func FuzzCheck(f *testing.F) {
	f.Add(".github/**", ".GitHub/x")
	f.Add("{a,b}/[!c]*", "a/\u200cb")
	f.Add("src", "SRC./x ")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		policy, err := pathpolicy.Parse([][]any{{pattern, []any{"no-write"}}})
		clean := strings.Trim(path, "/")
		if err != nil || clean == "" || strings.Contains(clean, "//") || strings.ContainsRune(clean, 0) {
			return
		}
		forest := newForest()
		err = policy.Check(t.Context(), forest, "refs/heads/main", nil, forest.plant(map[string]string{clean: "1"}))
		if err != nil && !errors.Is(err, refs.ErrDenied) {
			t.Fatal(err)
		}
		if err == nil && clean == pattern && !strings.ContainsAny(pattern, `*?[]{}\!,`) && !strings.HasPrefix(pattern, "./") {
			t.Fatalf("the path %q is not protected by itself", clean)
		}
	})
}
