package main

import (
	"slices"
	"strings"
)

// fences is the modules block of ARCHITECTURE.md: a line is a dependency's module path and the
// folders that may import it, with the purpose in a comment after "#". The word "tests" in place of
// a folder lets every test, and every room of tests, import it. Folders beside the tower are free.
type fences []fence

type fence struct {
	module  string
	folders []string
	line    int
}

// parseFences reads the lines of the modules block. A malformed line is a finding.
func parseFences(lines []blockLine) (fences, []finding) {
	var list fences
	var findings []finding
	for _, line := range lines {
		words := line.words()
		switch len(words) {
		case 0:
		case 1:
			findings = append(findings, finding{drawing, line.number, words[0] + " has no folder"})
		default:
			list = append(list, fence{module: words[0], folders: words[1:], line: line.number})
		}
	}
	return list, findings
}

// check returns the imports of dependencies from folders that are not listed for them, and the
// listed places that import nothing.
func (l fences) check(mod *module, t tower) []finding {
	var findings []finding
	used := map[string]bool{}
	for _, pkg := range mod.packages {
		if t.floors[pkg.folder] == floorBeside {
			continue
		}
		for _, f := range pkg.files {
			for _, imp := range mod.imports(f) {
				if !foreign(mod, imp.path) {
					continue
				}
				place, reason := l.admit(imp.path, pkg.folder, f.test || t.floors[pkg.folder] == floorTests)
				if reason != "" {
					findings = append(findings, finding{f.path, imp.line, reason})
				}
				used[place] = true
			}
		}
	}
	for _, fence := range l {
		for _, folder := range fence.folders {
			if !used[fence.module+" "+folder] {
				findings = append(findings, finding{drawing, fence.line, folder + " does not import " + fence.module})
			}
		}
	}
	return findings
}

// admit returns the entry in the list that allows folder to import importPath, or why it may not.
func (l fences) admit(importPath, folder string, test bool) (place, reason string) {
	i := slices.IndexFunc(l, func(f fence) bool {
		return importPath == f.module || strings.HasPrefix(importPath, f.module+"/")
	})
	switch {
	case i < 0:
		return "", importPath + " is not in the modules block of " + drawing
	case slices.Contains(l[i].folders, folder):
		return l[i].module + " " + folder, ""
	case test && slices.Contains(l[i].folders, "tests"):
		return l[i].module + " tests", ""
	default:
		return "", l[i].module + " stops at " + strings.Join(l[i].folders, ", ")
	}
}

// foreign reports whether a package is neither of this module nor of the standard library.
func foreign(mod *module, importPath string) bool {
	if _, ours := mod.folderOf(importPath); ours {
		return false
	}
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}
