// Package pathspec selects files of a tree by folders, globs and extensions, and walks the selected
// files.
//
// Start at [Spec.Compile], then [Walk]. Globs are those of gitignore(5), with alternatives in
// braces beside: a star stops at a slash, two stars do not; a glob with a slash anywhere but at its
// end begins at the root, any other matches files and folders at any depth; a glob that matches a
// folder selects all files in it.
package pathspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// ErrInvalid says that a glob, a path or an extension can match nothing, or exceeds a limit.
var ErrInvalid = errors.New("pathspec: invalid path filter")

// Limits of a [Spec].
const (
	// CountMax bounds the number of paths, globs and extensions of each kind.
	CountMax = 1000
	// GlobBytesMax is the size of a glob or a path.
	GlobBytesMax = 4096
	// alternativesMax bounds the globs that the braces of one expand to: all of them may be tried,
	// for every path.
	alternativesMax = 256
)

// Spec selects files: those in one of the paths, match an included glob and no excluded one, and
// have one of the extensions. A list that is empty does not restrict, and the zero value selects
// everything.
type Spec struct {
	// Paths are files, and folders with all that is in them, literally. "" is the root.
	Paths            []string
	Include, Exclude []string
	// Extensions are extensions of names, with or without the dot.
	Extensions []string
}

// Filter is a compiled [Spec]. It may be used concurrently.
type Filter struct {
	paths            []folder
	include, exclude []glob
	suffixes         []string
}

// folder is a path that selects itself and its content.
type folder struct {
	path string
	only bool // the path had a slash at its end and does not match a file
}

// glob is one compiled glob.
type glob struct {
	pattern  string
	anywhere bool   // it is matched with names, not with whole paths
	only     bool   // it matches folders only
	root     string // of a glob for whole paths: the folder that all it matches lies in
}

// Compile checks and compiles the lists. Errors: [ErrInvalid].
func (s *Spec) Compile() (*Filter, error) {
	f := &Filter{}
	for _, list := range [][]string{s.Paths, s.Include, s.Exclude, s.Extensions} {
		if len(list) > CountMax {
			return nil, fmt.Errorf("%w: a list of %d, at most %d", ErrInvalid, len(list), CountMax)
		}
		for _, text := range list {
			if len(text) > GlobBytesMax {
				return nil, fmt.Errorf("%w: %.40q... is longer than %d bytes", ErrInvalid, text, GlobBytesMax)
			}
		}
	}
	for _, path := range s.Paths {
		compiled, err := compilePath(path)
		if err != nil {
			return nil, err
		}
		if compiled.path == "" { // the root: no restriction
			f.paths = nil
			break
		}
		f.paths = append(f.paths, compiled)
	}
	var err error
	if f.include, err = compileGlobs(s.Include); err != nil {
		return nil, err
	}
	if f.exclude, err = compileGlobs(s.Exclude); err != nil {
		return nil, err
	}
	for _, extension := range s.Extensions {
		name := strings.TrimPrefix(extension, ".")
		if name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%w: %q is no extension", ErrInvalid, extension)
		}
		f.suffixes = append(f.suffixes, "."+name)
	}
	return f, nil
}

func compilePath(path string) (folder, error) {
	cleaned, only, err := CleanPath(path)
	return folder{path: cleaned, only: only}, err
}

// CleanPath returns the path in a tree that an item of [Spec.Paths] means, "" for the root, and
// whether it means a folder only. Errors: [ErrInvalid].
func CleanPath(path string) (cleaned string, only bool, err error) {
	cleaned = strings.TrimPrefix(strings.Trim(path, "/"), "./")
	if cleaned == "." || cleaned == "" {
		return "", false, nil
	}
	for segment := range strings.SplitSeq(cleaned, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", false, fmt.Errorf("%w: path %q", ErrInvalid, path)
		}
	}
	return cleaned, strings.HasSuffix(path, "/"), nil
}

func compileGlobs(texts []string) ([]glob, error) {
	globs := make([]glob, 0, len(texts))
	for _, text := range texts {
		g := glob{pattern: strings.TrimPrefix(text, "./")}
		if trimmed := strings.TrimRight(g.pattern, "/"); trimmed != g.pattern {
			g.pattern, g.only = trimmed, true
		}
		g.anywhere = !strings.Contains(g.pattern, "/")
		g.pattern = strings.TrimPrefix(g.pattern, "/")
		switch inside, ok := strings.CutSuffix(g.pattern, "/**"); {
		case !ok || strings.HasSuffix(inside, "**"):
		case g.only:
			g.pattern += "/*" // not the folder itself
		default:
			g.pattern, g.only = inside, true // the content of a folder is selected with it
		}
		if g.pattern == "" || !doublestar.ValidatePattern(g.pattern) {
			return nil, fmt.Errorf("%w: glob %q", ErrInvalid, text)
		}
		if alternatives(g.pattern) > alternativesMax {
			return nil, fmt.Errorf("%w: the braces of glob %.40q stand for more than %d globs", ErrInvalid, text,
				alternativesMax)
		}
		if !g.anywhere {
			g.root = literalRoot(g.pattern)
			g.pattern = exceptSlash(g.pattern)
		}
		globs = append(globs, g)
	}
	return globs, nil
}

// alternatives returns the number of globs without braces that a glob expands to, or more.
func alternatives(pattern string) int {
	product := 1
	var open []int // the alternatives of each brace that is open
	for i := 0; i < len(pattern) && product <= alternativesMax; i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '{':
			open = append(open, 1)
		case c == ',' && len(open) > 0:
			open[len(open)-1]++
		case c == '}' && len(open) > 0:
			product *= open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return product
}

// exceptSlash keeps negated classes from matching a slash, which the library permits: it adds the
// range of the slash to each.
func exceptSlash(pattern string) string {
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		out.WriteByte(pattern[i])
		if i+1 == len(pattern) {
			break
		}
		switch next := pattern[i+1]; {
		case pattern[i] == '\\':
			i++
			out.WriteByte(next)
		case pattern[i] == '[' && (next == '!' || next == '^'):
			i++
			out.WriteByte(next)
			out.WriteString("/-/")
		}
	}
	return out.String()
}

// literalRoot returns the folders at the beginning of a glob that are written without any magic.
// What is no UTF-8 ends them: to the library, any such byte matches any other, and U+FFFD.
func literalRoot(pattern string) string {
	end := strings.IndexAny(pattern, `*?[{\`+string(utf8.RuneError))
	if end < 0 {
		end = len(pattern)
	}
	return pattern[:max(strings.LastIndexByte(pattern[:end], '/'), 0)]
}

func (g *glob) matches(path string, isFolder bool) bool {
	if g.only && !isFolder {
		return false
	}
	if g.anywhere {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	return doublestar.MatchUnvalidated(g.pattern, path)
}

func anyMatches(globs []glob, path string, isFolder bool) bool {
	return slices.ContainsFunc(globs, func(g glob) bool { return g.matches(path, isFolder) })
}

// Match reports whether the file at a path is selected.
func (f *Filter) Match(path string) bool {
	state := f.root()
	for i := range len(path) {
		if path[i] == '/' {
			var ok bool
			if state, ok = f.enter(path[:i], state); !ok {
				return false
			}
		}
	}
	return f.file(path, state)
}

// LeadsBelow reports whether an included glob begins with a folder, and so matches nothing but what
// lies below it.
func (f *Filter) LeadsBelow(folder string) bool {
	return slices.ContainsFunc(f.include, func(g glob) bool { return g.root == folder || isAbove(folder, g.root) })
}

// inherited is the decision of the parent folders for their content.
type inherited struct {
	inPath   bool // it lies in one of the paths
	included bool // a folder matches an included glob
}

func (f *Filter) root() inherited {
	return inherited{inPath: len(f.paths) == 0, included: len(f.include) == 0}
}

// enter returns the decision of a folder for its content, and false when nothing in it is selected.
func (f *Filter) enter(path string, above inherited) (inherited, bool) {
	if !above.inPath {
		leads := false
		for i := range f.paths {
			p := &f.paths[i]
			above.inPath = above.inPath || p.path == path
			leads = leads || isAbove(path, p.path)
		}
		if !above.inPath && !leads {
			return above, false
		}
	}
	if anyMatches(f.exclude, path, true) {
		return above, false
	}
	if !above.included {
		above.included = anyMatches(f.include, path, true)
	}
	if !above.included {
		leads := slices.ContainsFunc(f.include, func(g glob) bool {
			return g.anywhere || g.root == path || isAbove(g.root, path) || isAbove(path, g.root)
		})
		if !leads {
			return above, false
		}
	}
	return above, true
}

// file reports whether a file is selected.
func (f *Filter) file(path string, above inherited) bool {
	if !above.inPath && !slices.ContainsFunc(f.paths, func(p folder) bool { return p.path == path && !p.only }) {
		return false
	}
	if !above.included && !anyMatches(f.include, path, false) {
		return false
	}
	if len(f.suffixes) > 0 &&
		!slices.ContainsFunc(f.suffixes, func(suffix string) bool { return strings.HasSuffix(path, suffix) }) {
		return false
	}
	return !anyMatches(f.exclude, path, false)
}

// isAbove reports whether path lies in folder, at any depth; everything lies in "".
func isAbove(folder, path string) bool {
	return folder == "" || len(path) > len(folder) && path[len(folder)] == '/' && path[:len(folder)] == folder
}
