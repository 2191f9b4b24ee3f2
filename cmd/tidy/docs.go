package main

import (
	"go/ast"
	"strings"
)

// checkDocs finds packages without a comment, and comments that a blank line hides from go doc.
func checkDocs(mod *module) []finding {
	var findings []finding
	for _, pkg := range mod.packages {
		documented := false
		for _, f := range pkg.files {
			if doc := f.syntax.Doc; doc != nil && strings.HasPrefix(doc.Text(), opening(f)) {
				documented = true
			}
			if group := detached(f); group != nil {
				findings = append(findings, finding{
					f.path, mod.fileSet.Position(group.Pos()).Line,
					"a blank line hides the package comment from go doc",
				})
			}
		}
		if !documented {
			first := pkg.files[0]
			findings = append(findings,
				finding{pkg.folder, 0, "no file has a package comment that begins with " + strings.TrimSpace(opening(first))})
		}
	}
	return findings
}

// opening is how the comment of a file's package begins.
func opening(f sourceFile) string {
	name := f.syntax.Name.Name
	if name == "main" {
		return "Command "
	}
	return "Package " + strings.TrimSuffix(name, "_test") + " "
}

// detached returns a comment that reads like the package's and does not touch the package clause,
// or nil.
func detached(f sourceFile) *ast.CommentGroup {
	for _, group := range f.syntax.Comments {
		if group.Pos() > f.syntax.Package {
			return nil
		}
		if group != f.syntax.Doc && strings.HasPrefix(group.Text(), opening(f)) {
			return group
		}
	}
	return nil
}
