package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is the Go source of the project, nested modules left out.
type module struct {
	path     string // as in go.mod
	packages []*sourcePackage
	fileSet  *token.FileSet
}

// sourcePackage is one folder with Go files in it.
type sourcePackage struct {
	folder string // from the module's folder; "." for the module's own
	files  []sourceFile
}

type sourceFile struct {
	path   string
	test   bool // its name ends in _test.go
	text   string
	syntax *ast.File
}

// imported is one import of a file.
type imported struct {
	path string
	line int
}

var errNoModule = errors.New("no module line in go.mod")

// load parses every Go file of the module in root.
func load(root fs.FS) (*module, error) {
	goMod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, err
	}
	mod := &module{fileSet: token.NewFileSet()}
	for line := range strings.Lines(string(goMod)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			mod.path = strings.TrimSpace(name)
		}
	}
	if mod.path == "" {
		return nil, errNoModule
	}
	return mod, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case skipped(root, name):
			return fs.SkipDir
		}
		return mod.loadFolder(root, name)
	})
}

// skipped reports whether a folder holds no sources of this module.
func skipped(root fs.FS, folder string) bool {
	if folder == "." {
		return false
	}
	base := path.Base(folder)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" {
		return true
	}
	_, err := fs.Stat(root, path.Join(folder, "go.mod"))
	return err == nil
}

func (mod *module) loadFolder(root fs.FS, folder string) error {
	names, err := fs.Glob(root, path.Join(folder, "*.go"))
	if err != nil || len(names) == 0 {
		return err
	}
	pkg := &sourcePackage{folder: folder}
	for _, name := range names {
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(mod.fileSet, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		pkg.files = append(pkg.files, sourceFile{
			path: name, test: strings.HasSuffix(name, "_test.go"), text: string(source), syntax: syntax,
		})
	}
	mod.packages = append(mod.packages, pkg)
	return nil
}

// imports returns the imports of a file in source order.
func (mod *module) imports(f sourceFile) []imported {
	list := make([]imported, 0, len(f.syntax.Imports))
	for _, spec := range f.syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused such a file
		}
		list = append(list, imported{path: name, line: mod.fileSet.Position(spec.Pos()).Line})
	}
	return list
}

// folderOf returns the folder of a package of this module, and false for any other package.
func (mod *module) folderOf(importPath string) (string, bool) {
	if importPath == mod.path {
		return ".", true
	}
	return strings.CutPrefix(importPath, mod.path+"/")
}
