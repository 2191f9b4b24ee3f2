package main

import (
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkCitations finds citations of missing things. A comment, a Markdown page or the Makefile
// cites a page by its path, with a heading (ARCHITECTURE.md, "The floors") or with the number that
// a heading begins with (docs/invariants.md 2). The pages about the project also cite files,
// folders, tests and identifiers in backquotes.
func checkCitations(mod *module, t *tree) []finding {
	var findings []finding
	for _, pkg := range mod.packages {
		for _, f := range pkg.files {
			for _, group := range f.syntax.Comments {
				findings = append(findings, t.checkPages(f.path, mod.fileSet.Position(group.Pos()).Line, commentText(group))...)
			}
		}
	}
	tests, names := testsOf(mod), declarationsOf(mod)
	for name, text := range t.texts {
		prose := withoutBlocks(text)
		findings = append(findings, t.checkPages(name, 1, prose)...)
		if isAboutProject(name) {
			findings = append(findings, t.checkQuoted(name, prose, tests, names)...)
		}
	}
	return findings
}

// isAboutProject reports whether the words in backquotes of a page are checked against the tree.
func isAboutProject(name string) bool {
	return path.Ext(name) == ".md" && slices.Contains([]string{".", "docs", "docs/walkthroughs"}, path.Dir(name))
}

// tree has all that can be cited, and the texts beside Go that cite.
type tree struct {
	paths map[string]bool   // files and folders, and each of their ends that begins at a folder
	whole map[string]bool   // files and folders
	texts map[string]string // of the Markdown pages and the Makefile
	pages map[string]page
}

// page has the citable parts of a Markdown page.
type page struct {
	headings map[string]bool
	numbers  map[string]bool // that headings begin with
}

func readTree(root fs.FS) (*tree, error) {
	t := &tree{paths: map[string]bool{}, whole: map[string]bool{}, texts: map[string]string{}, pages: map[string]page{}}
	return t, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && isUntold(name) {
			return fs.SkipDir
		}
		t.whole[name] = true
		for end := name; ; {
			t.paths[end] = true
			_, rest, below := strings.Cut(end, "/")
			if !below {
				break
			}
			end = rest
		}
		if entry.IsDir() || strings.Contains("/"+name, "/testdata/") || path.Ext(name) != ".md" && name != "Makefile" {
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		t.texts[name] = string(data)
		t.pages[name] = parsePage(withoutBlocks(string(data)))
		return nil
	})
}

var (
	headingLine   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	headingNumber = regexp.MustCompile(`^(\d+)\. `)
)

func parsePage(text string) page {
	p := page{headings: map[string]bool{}, numbers: map[string]bool{}}
	for _, heading := range headingLine.FindAllStringSubmatch(text, -1) {
		p.headings[strings.TrimSpace(heading[1])] = true
		if number := headingNumber.FindStringSubmatch(heading[1]); number != nil {
			p.numbers[number[1]] = true
		}
	}
	return p
}

// withoutBlocks empties the lines of fenced blocks.
func withoutBlocks(text string) string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if inside || fence {
			lines[i] = ""
		}
		if fence {
			inside = !inside
		}
	}
	return strings.Join(lines, "\n")
}

// commentText returns the words of a comment, line by line.
func commentText(group *ast.CommentGroup) string {
	var lines []string
	for _, comment := range group.List {
		for line := range strings.SplitSeq(comment.Text, "\n") {
			lines = append(lines, strings.TrimPrefix(line, "//"))
		}
	}
	return strings.Join(lines, "\n")
}

var (
	// citedPage is a page with everything attached to it, such as an address, which is none of ours.
	citedPage    = regexp.MustCompile(`[^\s"'()<>\[\]{}` + "`" + `,;]*\w\.md\b(?:#[\w-]+)?`)
	citedHeading = regexp.MustCompile(`^,\s+"([^"]+)"`)
	citedNumbers = regexp.MustCompile(`^\s+\d+(?:(?:,|,? and| to)\s+\d+)*`)
	digits       = regexp.MustCompile(`\d+`)
)

// checkPages returns the citations of pages in a text, which begins at a line of a file, that lead
// nowhere.
func (t *tree) checkPages(file string, line int, text string) []finding {
	var findings []finding
	for _, at := range citedPage.FindAllStringIndex(text, -1) {
		cited, anchor, _ := strings.Cut(text[at[0]:at[1]], "#")
		if strings.Contains(cited, "://") || strings.ContainsAny(cited, "*$") {
			continue
		}
		missing := func(what string) {
			findings = append(findings, finding{file, line + strings.Count(text[:at[0]], "\n"), what})
		}
		name := path.Join(path.Dir(file), cited)
		if !t.whole[name] {
			name = path.Clean(cited)
		}
		if !t.whole[name] {
			missing("cites " + cited + ", which is not in the tree")
			continue
		}
		p, rest := t.pages[name], text[at[1]:]
		if anchor != "" && !p.hasAnchor(anchor) {
			missing("cites " + cited + "#" + anchor + ", which is no heading there")
		}
		if heading := citedHeading.FindStringSubmatch(rest); heading != nil {
			if words := strings.Join(strings.Fields(heading[1]), " "); !p.headings[words] {
				missing("cites " + cited + ", \"" + words + "\", which is no heading there")
			}
		}
		if len(p.numbers) > 0 {
			for _, number := range digits.FindAllString(citedNumbers.FindString(rest), -1) {
				if !p.numbers[number] {
					missing("cites " + cited + " " + number + ", which is no number there")
				}
			}
		}
	}
	return findings
}

var noAnchor = regexp.MustCompile(`[^\pL\pN _-]`)

// hasAnchor reports whether a heading has that anchor in the rendered page.
func (p page) hasAnchor(anchor string) bool {
	for heading := range p.headings {
		if strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

var (
	quoted     = regexp.MustCompile("`([^`\\s]+)`")
	quotedPath = regexp.MustCompile(`^[\w.-]+(?:/[\w.-]+)*/?$`)
	quotedTest = regexp.MustCompile(`^((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)(?:/.*)?$`)
	// inFolders says in which folders a test is that several have.
	inFolders = regexp.MustCompile("^\\s+\\(in\\s+`[\\w/]+`(?:\\s+and\\s+in\\s+`[\\w/]+`)*\\)")
)

// checkQuoted returns the missing files, folders, tests and identifiers in backquotes.
func (t *tree) checkQuoted(file, text string, tests map[string][]string, names declared) []finding {
	var findings []finding
	for _, at := range quoted.FindAllStringSubmatchIndex(text, -1) {
		cited := text[at[2]:at[3]]
		missing := func(what string) {
			findings = append(findings, finding{file, 1 + strings.Count(text[:at[0]], "\n"), what})
		}
		if test := quotedTest.FindStringSubmatch(cited); test != nil {
			if len(tests[test[1]]) == 0 {
				missing("cites " + test[1] + ", which is no test")
			}
			for _, folder := range quoted.FindAllStringSubmatch(inFolders.FindString(text[at[1]:]), -1) {
				if !slices.Contains(tests[test[1]], folder[1]) {
					missing("cites " + test[1] + ", which is no test in " + folder[1])
				}
			}
			continue
		}
		if isPath(cited) && !t.paths[strings.TrimSuffix(cited, "/")] {
			missing("cites " + cited + ", which is not in the tree")
		}
		if !names.has(cited) {
			missing("cites " + cited + ", which is not declared")
		}
	}
	return findings
}

// isPath reports whether a word in backquotes is meant to be a path of the tree: a Go file, or
// anything in a folder that stands at the top. Below refs only Go files are, since git's refs are
// called so too.
func isPath(word string) bool {
	if !quotedPath.MatchString(word) {
		return false
	}
	if path.Ext(word) == ".go" {
		return path.Base(word) != ".go"
	}
	first, _, below := strings.Cut(word, "/")
	return below && first != "refs" && slices.Contains(topLevel, first)
}

// testsOf returns the folders of each test, fuzz target, benchmark and example.
func testsOf(mod *module) map[string][]string {
	tests := map[string][]string{}
	for _, pkg := range mod.packages {
		for _, f := range pkg.files {
			if !f.test {
				continue
			}
			for _, decl := range f.syntax.Decls {
				if function, ok := decl.(*ast.FuncDecl); ok && function.Recv == nil && quotedTest.MatchString(function.Name.Name) {
					tests[function.Name.Name] = append(tests[function.Name.Name], pkg.folder)
				}
			}
		}
	}
	return tests
}
