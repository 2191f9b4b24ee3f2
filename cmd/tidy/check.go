package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
)

// drawing is the document that holds the floors and modules blocks.
const drawing = "ARCHITECTURE.md"

// finding is one violation.
type finding struct {
	path string // from the module's folder, with slashes
	line int    // from 1; 0 when the whole file or folder is meant
	text string
}

func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s", f.path, f.text)
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text)
}

// check returns every finding in the module, ordered by path and line.
func check(root fs.FS) ([]finding, error) {
	mod, err := load(root)
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(root, drawing)
	if err != nil {
		return nil, err
	}
	floors, err := fencedLines(string(text), "floors")
	if err != nil {
		return nil, err
	}
	modules, err := fencedLines(string(text), "modules")
	if err != nil {
		return nil, err
	}
	tower, findings := parseTower(floors)
	fences, more := parseFences(modules)
	findings = append(findings, more...)

	findings = append(findings, tower.check(mod)...)
	findings = append(findings, fences.check(mod, tower)...)
	findings = append(findings, checkDocs(mod)...)
	findings = append(findings, checkNames(mod)...)
	findings = append(findings, checkGoroutines(mod, tower)...)
	paths, err := checkPaths(root)
	if err != nil {
		return nil, err
	}
	findings = append(findings, paths...)
	tree, err := readTree(root)
	if err != nil {
		return nil, err
	}
	findings = append(findings, checkCitations(mod, tree)...)
	findings = append(findings, checkWidths(mod, tree)...)

	slices.SortStableFunc(findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.text, b.text))
	})
	return slices.Compact(findings), nil
}
