package main

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// guardedBy is the folder of the package that starts goroutines: a panic in a goroutine started
// otherwise ends the process.
const guardedBy = "odb/rescue"

// checkGoroutines finds unguarded goroutines of the tower: go statements, the Go methods of sync
// and errgroup, and functions of AfterFunc that do more than call another. A comment on the line
// that begins with "bare: " gives a reason, and allows it.
func checkGoroutines(mod *module, t tower) []finding {
	var findings []finding
	for _, pkg := range mod.packages {
		if floor, ok := t.floors[pkg.folder]; !ok || floor < 0 || pkg.folder == guardedBy {
			continue
		}
		for _, f := range pkg.files {
			if f.test {
				continue
			}
			excused := linesWith(mod.fileSet, f.syntax, "// bare: ")
			unguarded := func(at token.Pos, what string) {
				if line := mod.fileSet.Position(at).Line; !excused[line] {
					findings = append(findings,
						finding{f.path, line, what + " without a guard against panics: use package " + guardedBy})
				}
			}
			waits := mentions(f.syntax, "sync", "WaitGroup")
			for _, spec := range f.syntax.Imports {
				if imported, err := strconv.Unquote(spec.Path.Value); err == nil && path.Base(imported) == "errgroup" {
					unguarded(spec.Pos(), "errgroup")
				}
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					unguarded(n.Pos(), "a go statement")
				case *ast.CallExpr:
					if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" && len(n.Args) == 1 &&
						startsBare(n.Args[0], waits) {
						unguarded(n.Pos(), "WaitGroup.Go")
					} else if ok && method.Sel.Name == "AfterFunc" && len(n.Args) == 2 && works(n.Args[1]) {
						unguarded(n.Pos(), "AfterFunc")
					}
				}
				return true
			})
		}
	}
	return findings
}

// startsBare reports whether the argument of a method Go fits sync.WaitGroup: a function without a
// result. A named function is assumed to fit in a file that mentions wait groups.
func startsBare(argument ast.Expr, waits bool) bool {
	if literal, ok := argument.(*ast.FuncLit); ok {
		return literal.Type.Results == nil
	}
	return waits
}

// works reports whether an argument is a function that is not a single call, such as that of a
// cancel function.
func works(argument ast.Expr) bool {
	literal, ok := argument.(*ast.FuncLit)
	if !ok {
		return false
	}
	if len(literal.Body.List) != 1 {
		return true
	}
	_, call := literal.Body.List[0].(*ast.ExprStmt)
	return !call
}

// mentions reports whether a file names something of a package.
func mentions(file *ast.File, pkg, name string) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == name {
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == pkg {
				found = true
			}
		}
		return !found
	})
	return found
}

// linesWith returns the lines on which a comment begins so.
func linesWith(files *token.FileSet, file *ast.File, opening string) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, opening) {
				lines[files.Position(comment.Pos()).Line] = true
			}
		}
	}
	return lines
}
