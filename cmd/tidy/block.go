package main

import (
	"fmt"
	"strings"
)

// blockLine is a line of a fenced block in a document.
type blockLine struct {
	number int // in the document, from 1
	text   string
}

// words returns the words of the line before "#".
func (l blockLine) words() []string {
	text, _, _ := strings.Cut(l.text, "#")
	return strings.Fields(text)
}

// fencedLines returns the lines of the first block that opens with ```name.
func fencedLines(document, name string) ([]blockLine, error) {
	var lines []blockLine
	inside := false
	number := 0
	for line := range strings.Lines(document) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case !inside:
			inside = line == "```"+name
		case strings.HasPrefix(line, "```"):
			return lines, nil
		default:
			lines = append(lines, blockLine{number, line})
		}
	}
	return nil, fmt.Errorf("%s has no whole ```%s block", drawing, name)
}
