package code_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/api/code"
)

// constants are the codes by the names of their constants.
func constants(t *testing.T) map[string]code.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "list.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]code.Code)
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				text, _ := strconv.Unquote(value.Value)
				named[spec.Names[0].Name] = code.Code(text)
			}
		}
		return true
	})
	return named
}

// source calls f with each node of the program that answers clients, and the name of its file.
func source(t *testing.T, f func(file string, node ast.Node)) {
	t.Helper()
	for _, root := range []string{"..", "../../cmd/packhorse"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "code" || strings.HasSuffix(entry.Name(), "test")):
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				f(filepath.ToSlash(path), node)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// selected is the name that an expression takes from a package, or "".
func selected(expr ast.Expr, from string) string {
	if selector, ok := expr.(*ast.SelectorExpr); ok {
		if name, ok := selector.X.(*ast.Ident); ok && name.Name == from {
			return selector.Sel.Name
		}
	}
	return ""
}

// isRefusal reports whether a literal, which is not empty, is an answer or an error with a code.
func isRefusal(file string, literal *ast.CompositeLit) bool {
	if len(literal.Elts) == 0 {
		return false
	}
	if name, ok := literal.Type.(*ast.Ident); ok {
		switch filepath.Base(filepath.Dir(file)) {
		case "auth", "exchange":
			return name.Name == "Error"
		case "problem":
			return name.Name == "Problem"
		}
	}
	return selected(literal.Type, "auth") == "Error" || selected(literal.Type, "exchange") == "Error" ||
		selected(literal.Type, "problem") == "Problem"
}

// statuses are those that refusals name.
var statuses = map[string]int{
	"StatusBadRequest": http.StatusBadRequest, "StatusUnauthorized": http.StatusUnauthorized,
	"StatusForbidden": http.StatusForbidden, "StatusNotFound": http.StatusNotFound,
	"StatusMethodNotAllowed": http.StatusMethodNotAllowed, "StatusRequestTimeout": http.StatusRequestTimeout,
	"StatusConflict": http.StatusConflict, "StatusRequestURITooLong": http.StatusRequestURITooLong,
	"StatusUnsupportedMediaType":        http.StatusUnsupportedMediaType,
	"StatusTooManyRequests":             http.StatusTooManyRequests,
	"StatusRequestHeaderFieldsTooLarge": http.StatusRequestHeaderFieldsTooLarge,
	"StatusInternalServerError":         http.StatusInternalServerError,
	"StatusServiceUnavailable":          http.StatusServiceUnavailable,
	"StatusGatewayTimeout":              http.StatusGatewayTimeout,
	"StatusHTTPVersionNotSupported":     http.StatusHTTPVersionNotSupported,
}

// Whatever makes a refusal gives it a code that comes with its status, and there is no code that
// nothing gives.
func TestRefusalsHaveCodes(t *testing.T) {
	t.Parallel()
	named := constants(t)
	used := make(map[code.Code]bool)
	made, paired := 0, 0
	pair := func(file, status, name string) {
		if status == "" || name == "" {
			return // it is given by others, which are looked at
		}
		paired++
		if entry := code.Find(named[name]); entry == nil || !slices.Contains(entry.Statuses, statuses[status]) {
			t.Errorf("%s: code %s with http.%s", file, name, status)
		}
	}
	source(t, func(file string, node ast.Node) {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			used[named[selected(node, "code")]] = true
		case *ast.CallExpr: // refuse(http.StatusNotFound, code.PathNotFound, ...)
			if len(node.Args) >= 2 {
				pair(file, selected(node.Args[0], "http"), selected(node.Args[1], "code"))
			}
		case *ast.CompositeLit:
			if !isRefusal(file, node) {
				return
			}
			made++
			fields := make(map[string]ast.Expr)
			for _, element := range node.Elts {
				if field, ok := element.(*ast.KeyValueExpr); ok {
					fields[field.Key.(*ast.Ident).Name] = field.Value
				}
			}
			if fields["Code"] == nil {
				t.Errorf("%s: a refusal without a code", file)
			}
			pair(file, selected(fields["Status"], "http"), selected(fields["Code"], "code"))
		}
	})
	if made < 20 || paired < 30 {
		t.Errorf("only %d refusals and %d statuses were found: the test looks at the wrong place", made, paired)
	}
	for _, e := range code.All() {
		if !used[e.Code] {
			t.Errorf("nothing has the code %s", e.Code)
		}
	}
}
