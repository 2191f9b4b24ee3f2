package problem

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsDocument compares the table of errors in docs/api.md with the table of this package:
// each kind with its status, and whether the client gets a time for the next try.
func TestErrorsDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Errors\n")
	if !ok {
		t.Fatal("docs/api.md has no section Errors")
	}
	told := make(map[string]string)
	kind := regexp.MustCompile("`([^`]+)`")
	for _, line := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]*)\| (yes )?\| \S.* \|$`).FindAllStringSubmatch(section,
		-1) {
		for _, name := range kind.FindAllStringSubmatch(line[2], -1) {
			if told[name[1]] != "" {
				t.Errorf("%s is there twice", name[1])
			}
			told[name[1]] = line[1] + " " + line[3]
		}
	}
	names := kinds(t)
	if len(names) != len(table) {
		t.Fatalf("table.go names %d kinds, the table has %d rows", len(names), len(table))
	}
	for i, name := range names {
		want := fmt.Sprint(table[i].status, " ")
		if table[i].retry > 0 {
			want += "yes "
		}
		if told[name] != want {
			t.Errorf("%s: the page says %q, the table %q", name, told[name], want)
		}
		delete(told, name)
	}
	for name := range told {
		if !strings.HasPrefix(name, "auth.") && !strings.HasPrefix(name, "exchange.") {
			t.Errorf("%s is no kind of the table", name)
		}
	}
}

// kinds returns the names of the rows of the table, in their order.
func kinds(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(node ast.Node) bool {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		value := pair.Value
		if generic, ok := value.(*ast.IndexExpr); ok { // typed[*package.Name]
			value = generic.Index
			if star, ok := value.(*ast.StarExpr); ok {
				value = star.X
			}
		}
		if key, ok := pair.Key.(*ast.Ident); ok && (key.Name == "kind" || key.Name == "typed") {
			if selector, ok := value.(*ast.SelectorExpr); ok {
				names = append(names, selector.X.(*ast.Ident).Name+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return names
}
