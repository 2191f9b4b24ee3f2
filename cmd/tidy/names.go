package main

import (
	"path"
	"slices"
	"strings"
)

// drawers are names of packages without a subject.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "base", "misc", "shared"}

// checkNames finds folders, packages and files with such names.
func checkNames(mod *module) []finding {
	var findings []finding
	for _, pkg := range mod.packages {
		for folder := range strings.SplitSeq(pkg.folder, "/") {
			if isDrawer(folder) {
				findings = append(findings, finding{pkg.folder, 0, folder + " is a drawer, not a noun: name what is in it"})
			}
		}
		for _, f := range pkg.files {
			stem, _, _ := strings.Cut(strings.TrimSuffix(path.Base(f.path), ".go"), "_")
			if isDrawer(stem) {
				findings = append(findings, finding{f.path, 0, stem + " is a drawer, not a noun: name what is in it"})
			}
			if name := strings.TrimSuffix(f.syntax.Name.Name, "_test"); isDrawer(name) {
				findings = append(findings, finding{f.path, 0, "package " + name + " is a drawer, not a noun: name what is in it"})
			}
		}
	}
	return findings
}

func isDrawer(name string) bool {
	return slices.Contains(drawers, name) || strings.HasSuffix(name, "util") || strings.HasSuffix(name, "utils")
}
