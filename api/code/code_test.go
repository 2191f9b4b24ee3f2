package code_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/api/code"
)

// told is an entry in one line.
func told(e *code.Entry) string {
	statuses := make([]string, 0, len(e.Statuses))
	for _, status := range e.Statuses {
		statuses = append(statuses, fmt.Sprint(status))
	}
	return fmt.Sprintf("%s | %s | %s", e.Code, strings.Join(statuses, ", "), e.Retry)
}

// Every code that was given out is still there, with the statuses and the advice of that day, and
// every code is noted as given out. A line of the file is only ever added; a status may join one.
func TestPromises(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/promised")
	if err != nil {
		t.Fatal(err)
	}
	promised := strings.Split(strings.TrimSpace(string(file)), "\n")
	all := code.All()
	var lines []string
	for i := range all {
		lines = append(lines, told(&all[i]))
		if !slices.Contains(promised, lines[i]) {
			t.Errorf("testdata/promised has no line %q: a new code has to be added there", lines[i])
		}
	}
	for _, line := range promised {
		if !slices.Contains(lines, line) {
			t.Errorf("%q was promised, and is not kept", line)
		}
	}
}

func TestForm(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile("^[a-z]+(_[a-z]+)*$")
	seen := make(map[code.Code]bool)
	for _, e := range code.All() {
		if !word.MatchString(string(e.Code)) || seen[e.Code] {
			t.Errorf("%q is there twice, or is no word", e.Code)
		}
		seen[e.Code] = true
		if len(e.Statuses) == 0 || !slices.IsSorted(e.Statuses) || e.Statuses[0] < 400 {
			t.Errorf("%s has the statuses %v", e.Code, e.Statuses)
		}
		if found := code.Find(e.Code); found == nil || found.Code != e.Code {
			t.Errorf("%s is not found", e.Code)
		}
	}
	if code.Find("none") != nil {
		t.Error("a word that is no code was found")
	}
}

// The tables of docs/api.md have the codes in their order, each with its statuses and whether a
// retry makes sense, what it means and what to do.
func TestDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Errors\n")
	if !ok {
		t.Fatal("docs/api.md has no section Errors")
	}
	var rows []string
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9, ]+) \\| (no|yes|reread) \\| \\S.* \\| \\S.* \\|$")
	for _, found := range row.FindAllStringSubmatch(section, -1) {
		rows = append(rows, strings.Join(found[1:], " | "))
	}
	all := code.All()
	for i := range all {
		if line := told(&all[i]); i >= len(rows) || rows[i] != line {
			t.Fatalf("row %d of the page is not %q", i, line)
		}
	}
	if len(rows) != len(all) {
		t.Errorf("the page has %q, which is no code", rows[len(all):])
	}
}
