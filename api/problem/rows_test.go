package problem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every error kind that a lower floor exports has a row: each Err* variable by its name, each
// *Error type by its name or, when it has an Is method, by the sentinel that the method compares
// with. A kind that a package takes from another one counts once, under either name.
func TestEveryErrorHasARow(t *testing.T) {
	t.Parallel()
	const root = "../.."
	told := rows(t)
	taken := make(map[string]string) // a kind, and its package.Name in another package
	type kind struct{ importPath, name string }
	var kinds []kind
	for _, floor := range []string{"refs", "odb", "pack", "engine"} {
		for _, dir := range packages(t, filepath.Join(root, floor)) {
			importPath := path.Join("packhorse",
				filepath.ToSlash(strings.TrimPrefix(dir, filepath.Clean(root)+string(filepath.Separator))))
			for _, name := range exportedErrors(t, dir, taken) {
				kinds = append(kinds, kind{importPath, name})
			}
		}
	}
	for _, k := range kinds {
		if !told[k.importPath+"."+k.name] && !told[taken[path.Base(k.importPath)+"."+k.name]] {
			t.Errorf("%s.%s has no row in table.go", k.importPath, k.name)
		}
	}
	if len(kinds) < 20 {
		t.Errorf("only %d kinds of errors were found: the test looks at the wrong place", len(kinds))
	}
}

// rows returns the names in table.go, as "import/path.Name".
func rows(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	imports := make(map[string]string)
	for _, spec := range file.Imports {
		importPath, _ := strconv.Unquote(spec.Path.Value)
		imports[path.Base(importPath)] = importPath
	}
	named := make(map[string]bool)
	ast.Inspect(file, func(node ast.Node) bool {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		value := pair.Value
		if generic, ok := value.(*ast.IndexExpr); ok { // typed: typed[*package.Name]
			value = generic.Index
			if star, ok := value.(*ast.StarExpr); ok {
				value = star.X
			}
		}
		if key, ok := pair.Key.(*ast.Ident); ok && (key.Name == "kind" || key.Name == "typed") {
			if selector, ok := value.(*ast.SelectorExpr); ok {
				named[imports[selector.X.(*ast.Ident).Name]+"."+selector.Sel.Name] = true // a kind is package.Name
			}
		}
		return true
	})
	return named
}

// packages returns the folders with Go files in and below dir, without those that only tests
// import.
func packages(t *testing.T, dir string) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case entry.Name() == "testdata" || strings.HasSuffix(entry.Name(), "test"):
			return fs.SkipDir
		}
		dirs = append(dirs, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// exportedErrors returns the names of the exported Err* variables of a package, and of its exported
// *Error types without Is. Those that are another package's go into taken, by that name.
func exportedErrors(t *testing.T, dir string, taken map[string]string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	hasIs := make(map[string]bool)
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.GenDecl:
				names = append(names, errorNames(d, strings.TrimPrefix(filepath.ToSlash(dir), "../../"), taken)...)
			case *ast.FuncDecl:
				if d.Name.Name == "Is" && d.Recv != nil {
					hasIs[receiver(d)] = true
				}
			}
		}
	}
	var kinds []string
	for _, name := range names {
		if !hasIs[name] {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

func errorNames(d *ast.GenDecl, dir string, taken map[string]string) []string {
	var names []string
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for i, name := range spec.Names {
				if d.Tok != token.VAR || !strings.HasPrefix(name.Name, "Err") {
					continue
				}
				if i < len(spec.Values) {
					noteTaken(spec.Values[i], name.Name, dir, taken)
				}
				names = append(names, name.Name)
			}
		case *ast.TypeSpec:
			if spec.Assign.IsValid() {
				continue // an alias is checked where its type is
			}
			if spec.Name.IsExported() && strings.HasSuffix(spec.Name.Name, "Error") {
				names = append(names, spec.Name.Name)
			}
		}
	}
	return names
}

// noteTaken notes that a variable of dir is another package's.
func noteTaken(value ast.Expr, name, dir string, taken map[string]string) {
	if selector, ok := value.(*ast.SelectorExpr); ok {
		taken[selector.X.(*ast.Ident).Name+"."+selector.Sel.Name] = "packhorse/" + dir + "." + name
	}
}

func receiver(d *ast.FuncDecl) string {
	expr := d.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	name, _ := expr.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}
