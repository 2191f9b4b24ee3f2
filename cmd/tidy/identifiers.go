package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"unicode"
)

// quotedName is a Go identifier with the package or type before it.
var quotedName = regexp.MustCompile(`^[A-Za-z]\w*(?:\.[A-Za-z]\w*){1,2}$`)

// declared has the names that the module declares.
type declared struct {
	packages map[string]map[string]bool // names at the top level, by the package's name
	types    map[string]map[string]bool // methods and fields, by the type's name
}

// declarationsOf collects the declarations of a module. Packages of one name, and types of one
// name, are taken together.
func declarationsOf(mod *module) declared {
	d := declared{packages: map[string]map[string]bool{}, types: map[string]map[string]bool{}}
	for _, pkg := range mod.packages {
		for _, f := range pkg.files {
			add(d.packages, f.syntax.Name.Name, "")
			for _, decl := range f.syntax.Decls {
				d.collect(f.syntax.Name.Name, decl)
			}
		}
	}
	return d
}

func add(names map[string]map[string]bool, of, name string) {
	if names[of] == nil {
		names[of] = map[string]bool{}
	}
	names[of][name] = true
}

func (d declared) collect(pkg string, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			add(d.packages, pkg, decl.Name.Name)
			return
		}
		add(d.types, typeName(decl.Recv.List[0].Type), decl.Name.Name)
	case *ast.GenDecl:
		if decl.Tok == token.IMPORT {
			return
		}
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(d.packages, pkg, name.Name)
				}
			case *ast.TypeSpec:
				add(d.packages, pkg, spec.Name.Name)
				d.collectMembers(spec)
			}
		}
	}
}

// collectMembers adds the fields of a struct and the methods of an interface, the embedded ones
// under the name of their type.
func (d declared) collectMembers(spec *ast.TypeSpec) {
	add(d.types, spec.Name.Name, "")
	var fields *ast.FieldList
	switch kind := spec.Type.(type) {
	case *ast.StructType:
		fields = kind.Fields
	case *ast.InterfaceType:
		fields = kind.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			add(d.types, spec.Name.Name, name.Name)
		}
		if len(field.Names) == 0 {
			add(d.types, spec.Name.Name, typeName(field.Type))
		}
	}
}

// typeName returns the name of a type without its package, pointer and type arguments.
func typeName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.StarExpr:
		return typeName(expr.X)
	case *ast.SelectorExpr:
		return expr.Sel.Name
	case *ast.IndexExpr:
		return typeName(expr.X)
	case *ast.IndexListExpr:
		return typeName(expr.X)
	default:
		return ""
	}
}

// has reports whether a word in backquotes is declared, if it is meant to be: as a name of one of
// our packages or a member of a type. A field of JSON looks the same but for its lower-case words,
// so that package.Name and Type.member count, and type.member when the type has a capital in it.
func (d declared) has(word string) bool {
	if !quotedName.MatchString(word) {
		return true
	}
	first, rest, _ := strings.Cut(word, ".")
	second, member, isMember := strings.Cut(rest, ".")
	if names, ok := d.packages[first]; ok {
		if !unicode.IsUpper(rune(second[0])) {
			return true
		}
		return names[second] && (!isMember || d.types[second][member])
	}
	if isMember || !strings.ContainsFunc(first, unicode.IsUpper) {
		return true
	}
	members, ok := d.types[first]
	return members[second] || !ok && !unicode.IsUpper(rune(second[0])) // Cargo.lock
}
