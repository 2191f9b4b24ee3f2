package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// machinePath matches the paths of homes and checkouts, which mean nothing on another machine.
var machinePath = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.~/*%$}-])/(?:root|home|Users|work)/[A-Za-z0-9_.-]`)

// topLevel lists the folders allowed at the top. Files there are documents, dotfiles, go.mod,
// go.sum, the Makefile, and what builds and composes images.
var topLevel = []string{"api", "bench", "cmd", "docs", "engine", "fuzz", "odb", "pack", "refs"}

// untold lists folders whose files are not committed.
var untold = []string{".git", ".cache", ".data", "bin", "data", "dist", "node_modules", "bench/results/tmp"}

// isUntold reports whether the files of a folder are not committed.
func isUntold(folder string) bool {
	return slices.Contains(untold, folder) || path.Base(folder) == "node_modules"
}

// checkPaths finds text files that contain a path of a developer's machine, and misplaced files at
// the top level.
func checkPaths(root fs.FS) ([]finding, error) {
	var findings []finding
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if isUntold(name) {
				return fs.SkipDir
			}
			if name != "." && !strings.Contains(name, "/") && !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) {
				findings = append(findings, finding{name, 0, "does not belong at the top level"})
			}
			return nil
		}
		if !entry.Type().IsRegular() || name == ".git" { // which is a file in a linked working tree
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		findings = append(findings, machinePaths(name, data)...)
		return nil
	})
	return findings, err
}

// machinePaths returns a finding for every line of a text that contains a machine's path. A file
// with a NUL in it is not a text.
func machinePaths(name string, data []byte) []finding {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil
	}
	var findings []finding
	number := 0
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		number++
		if machinePath.Match(lines.Bytes()) {
			findings = append(findings, finding{name, number, "tells a path of one machine"})
		}
	}
	return findings
}
