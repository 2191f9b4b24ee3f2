package pathspec_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/pathspec"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

func compile(t *testing.T, s pathspec.Spec) *pathspec.Filter {
	t.Helper()
	f, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMatch(t *testing.T) {
	t.Parallel()
	files := []string{
		"README.md", "a.go", "a_test.go", "lib/README.md", "lib/a.go", "lib/sub/b.go", "lib/sub/b.ts", "library/c.go",
		"src/lib/d.go", "vendor/x/y.go",
		"x.tar.gz", "weird[1]/f*", ".hidden/.go",
	}
	tests := map[string]struct {
		spec pathspec.Spec
		want string
	}{
		"nothing asked":           {pathspec.Spec{}, strings.Join(files, " ")},
		"a name anywhere":         {pathspec.Spec{Include: []string{"README.md"}}, "README.md lib/README.md"},
		"a name at the root":      {pathspec.Spec{Include: []string{"/README.md"}}, "README.md"},
		"a star stops at a slash": {pathspec.Spec{Include: []string{"lib/*.go"}}, "lib/a.go"},
		"two stars do not":        {pathspec.Spec{Include: []string{"lib/**/*.go"}}, "lib/a.go lib/sub/b.go"},
		"any folder":              {pathspec.Spec{Include: []string{"**/lib/*.go"}}, "lib/a.go src/lib/d.go"},
		"a folder by name": {
			pathspec.Spec{Include: []string{"lib"}}, "lib/README.md lib/a.go lib/sub/b.go lib/sub/b.ts src/lib/d.go",
		},
		"a folder only": {pathspec.Spec{Include: []string{"a.go/", "sub/"}}, "lib/sub/b.go lib/sub/b.ts"},
		"all in a folder": {
			pathspec.Spec{Include: []string{"lib/**"}}, "lib/README.md lib/a.go lib/sub/b.go lib/sub/b.ts",
		},
		"all in a file is nothing": {pathspec.Spec{Include: []string{"a.go/**"}}, ""},
		"everything":               {pathspec.Spec{Include: []string{"**"}}, strings.Join(files, " ")},
		"braces":                   {pathspec.Spec{Include: []string{"lib/**/*.{ts,md}"}}, "lib/README.md lib/sub/b.ts"},
		"a class":                  {pathspec.Spec{Include: []string{"/[a-b].go"}}, "a.go"},
		"escapes":                  {pathspec.Spec{Include: []string{`weird\[1\]/f\*`}}, "weird[1]/f*"},
		"dots are matched":         {pathspec.Spec{Include: []string{"*/*"}, Exclude: []string{"[a-z]*"}}, ".hidden/.go"},
		"exclusion": {
			pathspec.Spec{Include: []string{"*.go"}, Exclude: []string{"vendor/**", "*_test.go", "lib"}},
			"a.go library/c.go .hidden/.go",
		},
		"paths": {
			pathspec.Spec{Paths: []string{"lib/sub", "/a.go", "vendor/"}}, "a.go lib/sub/b.go lib/sub/b.ts vendor/x/y.go",
		},
		"paths are literal":    {pathspec.Spec{Paths: []string{"weird[1]", "l*"}}, "weird[1]/f*"},
		"a path with a slash":  {pathspec.Spec{Paths: []string{"a.go/"}}, ""},
		"the root among paths": {pathspec.Spec{Paths: []string{"lib", ""}, Include: []string{"/*.md"}}, "README.md"},
		"paths and globs": {
			pathspec.Spec{Paths: []string{"lib"}, Include: []string{"*.go"}}, "lib/a.go lib/sub/b.go",
		},
		"extensions": {
			pathspec.Spec{Extensions: []string{".ts", "md", "tar.gz"}}, "README.md lib/README.md lib/sub/b.ts x.tar.gz",
		},
		"extensions and exclusions": {pathspec.Spec{Extensions: []string{"go"}, Exclude: []string{"/*/"}}, "a.go a_test.go"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := compile(t, test.spec)
			var got []string
			for _, path := range files {
				if f.Match(path) {
					got = append(got, path)
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), test.want)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]pathspec.Spec{
		"empty glob":         {Include: []string{""}},
		"only slashes":       {Exclude: []string{"//"}},
		"open class":         {Include: []string{"[a"}},
		"open brace":         {Include: []string{"{a,b"}},
		"many alternatives":  {Include: []string{strings.Repeat("{a,b}", 9)}},
		"nested ones":        {Include: []string{strings.Repeat("{a,{b,c}}", 5)}},
		"long glob":          {Include: []string{strings.Repeat("a", pathspec.GlobBytesMax+1)}},
		"many globs":         {Include: slices.Repeat([]string{"a"}, pathspec.CountMax+1)},
		"path upwards":       {Paths: []string{"a/../b"}},
		"path with an empty": {Paths: []string{"a//b"}},
		"empty extension":    {Extensions: []string{"."}},
		"path as extension":  {Extensions: []string{"a/b"}},
	} {
		if _, err := spec.Compile(); !errors.Is(err, pathspec.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	compile(t, pathspec.Spec{Include: []string{strings.Repeat("{a,b}", 8), `\{a,b,c\}`}})
}

// forest holds trees in memory.
type forest map[object.ID][]byte

func (f forest) ReadTree(_ context.Context, id object.ID) ([]byte, error) {
	data, ok := f[id]
	if !ok {
		return nil, fmt.Errorf("no tree %s", id)
	}
	return data, nil
}

// plant stores the trees of files and returns the root.
func (f forest) plant(paths []string) object.ID {
	below := map[string][]string{}
	var entries []object.TreeEntry
	for _, path := range paths {
		name, rest, deeper := strings.Cut(path, "/")
		switch {
		case !deeper:
			entries = append(entries, object.TreeEntry{Mode: object.ModeBlob, Name: name, ID: object.ID(sha1.Sum([]byte(path)))})
		default:
			below[name] = append(below[name], rest)
		}
	}
	for name, inside := range below {
		entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: name, ID: f.plant(inside)})
	}
	object.SortTree(entries)
	data := object.AppendTree(nil, entries)
	id := object.ID(sha1.Sum(data))
	f[id] = data
	return id
}

// randomPaths draws paths of which none is a folder of another.
func randomPaths(random *rand.Rand) []string {
	set := map[string]bool{}
	for range 60 {
		var path strings.Builder
		for range random.IntN(4) {
			path.WriteString([]string{"a", "b", "a.d", "lib", "ab"}[random.IntN(5)] + "/")
		}
		path.WriteString([]string{"x", "a.go", "b.go", "lib.c", "ab.ts", "y-z"}[random.IntN(6)])
		set[path.String()] = true
	}
	var paths []string
	for path := range set {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func randomGlob(random *rand.Rand) string {
	parts := []string{
		"*", "?", "a", "b", "lib", "*.go", "a*", "[ab]", "**", "**/", "/", "/", "/**", "x", ".", "[!a]*", `\a`,
	}
	var glob strings.Builder
	for range 1 + random.IntN(4) {
		glob.WriteString(parts[random.IntN(len(parts))])
	}
	return glob.String()
}

func walk(t *testing.T, trees forest, root object.ID, f *pathspec.Filter, from string) (files []string) {
	t.Helper()
	for entry, err := range pathspec.Walk(t.Context(), trees, root, f, from) {
		if err != nil {
			t.Fatal(err)
		}
		if !entry.Mode.IsTree() {
			files = append(files, entry.Path)
		}
	}
	return files
}

// TestWalk holds walks against matching every path, from the beginning and from the middle.
func TestWalk(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		paths := randomPaths(random)
		trees := forest{}
		root := trees.plant(paths)
		all := walk(t, trees, root, compile(t, pathspec.Spec{}), "")
		if len(all) != len(paths) {
			t.Fatalf("%d files, want %d", len(all), len(paths))
		}
		var spec pathspec.Spec
		for range random.IntN(3) {
			spec.Include = append(spec.Include, randomGlob(random))
		}
		for range random.IntN(2) {
			spec.Exclude = append(spec.Exclude, randomGlob(random))
		}
		for range random.IntN(2) {
			path, _, _ := strings.Cut(paths[random.IntN(len(paths))], "/")
			spec.Paths = append(spec.Paths, path)
		}
		f, err := spec.Compile()
		if err != nil {
			continue
		}
		from := random.IntN(len(all))
		for i, start := range map[int]string{0: "", from: all[from]} {
			var want []string
			for _, path := range all[i:] {
				if f.Match(path) {
					want = append(want, path)
				}
			}
			if got := walk(t, trees, root, f, start); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %+v from %q:\ngot  %q\nwant %q", seed, spec, start, got, want)
			}
		}
	}
}

// strayStars are two stars beside something else than a slash: gitignore(5) calls them regular
// ones, and git lets them cross slashes.
var strayStars = regexp.MustCompile(`[^/]\*\*|\*\*[^/]`)

// TestGlobsAreGits holds globs against those of gitignore.
func TestGlobsAreGits(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	random := rand.New(rand.NewPCG(5, 5))
	paths := randomPaths(random)
	var index strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&index, "100644 %040x\t%s\n", 1, path)
	}
	git.Input([]byte(index.String()), "update-index", "--index-info")
	held := 0
	for range 250 {
		glob := randomGlob(random)
		f, err := (&pathspec.Spec{Include: []string{glob}}).Compile()
		if err != nil || strings.Contains(glob, "//") || strings.HasPrefix(glob, "./") || strayStars.MatchString(glob) {
			continue
		}
		held++
		want := git.Git("-c", "core.bare=false", "--work-tree", git.Dir, "ls-files", "--cached", "--ignored", "--exclude",
			glob)
		var got []string
		for _, path := range paths {
			if f.Match(path) {
				got = append(got, path)
			}
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("glob %q:\ngot  %q\nwant %q", glob, got, strings.Split(want, "\n"))
		}
	}
	if held < 100 {
		t.Errorf("only %d globs were compared", held)
	}
}
