package main

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The last columns of a line. A tab is one column.
const (
	proseColumns = 100
	codeColumns  = 120
)

// generated lists folders of pages that programs write.
var generated = []string{"bench/results"}

// checkWidths finds lines that are too long: comments that fill a line, prose of Markdown pages,
// and code. A table, a block, a directive or a string literal cannot be broken, and may be longer.
func checkWidths(mod *module, t *tree) []finding {
	var findings []finding
	for _, pkg := range mod.packages {
		for _, f := range pkg.files {
			findings = append(findings, goWidths(f, literalLines(mod.fileSet, f.syntax))...)
		}
	}
	for name, text := range t.texts {
		if path.Ext(name) == ".md" && !slices.Contains(generated, path.Dir(name)) {
			findings = append(findings, pageWidths(name, text)...)
		}
	}
	return findings
}

// unbroken matches a comment that is a line of a block, or a directive.
var unbroken = regexp.MustCompile(`^//(?:\t|[a-z]+:)`)

func goWidths(f sourceFile, literals map[int]bool) []finding {
	var findings []finding
	number := 0
	for line := range strings.SplitSeq(f.text, "\n") {
		number++
		width, words := utf8.RuneCountInString(line), strings.TrimLeft(line, "\t")
		switch {
		case unbroken.MatchString(words) || literals[number]:
		case strings.HasPrefix(words, "//"):
			if width > proseColumns {
				findings = append(findings, finding{f.path, number, "comment ends behind column 100"})
			}
		case width > codeColumns:
			findings = append(findings, finding{f.path, number, "code ends behind column 120"})
		}
	}
	return findings
}

// literalLines returns the lines that string literals stand on.
func literalLines(files *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			for line := files.Position(literal.Pos()).Line; line <= files.Position(literal.End()).Line; line++ {
				lines[line] = true
			}
		}
		return true
	})
	return lines
}

func pageWidths(name, text string) []finding {
	var findings []finding
	number := 0
	for line := range strings.SplitSeq(withoutBlocks(text), "\n") {
		number++
		if utf8.RuneCountInString(line) > proseColumns && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") {
			findings = append(findings, finding{name, number, "prose ends behind column 100"})
		}
	}
	return findings
}
