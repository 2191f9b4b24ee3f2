package main_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(packhorse_[a-z_]+)` \\| ([a-z]+) \\|")
	logRow    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:warn|error) \\|")
)

// docs/monitoring.md has every metric of a server with its type, and no other, before those of
// shared stores.
func TestMonitoringMetrics(t *testing.T) {
	t.Parallel()
	page, _, found := strings.Cut(docsPage(t, "monitoring.md"), "\n### Metrics of shared stores\n")
	if !found {
		t.Fatal("the page has no metrics of shared stores")
	}
	told := pairs(metricRow, page)
	shown := make(map[string]string)
	for name, m := range scrape(t) {
		if strings.HasPrefix(name, "packhorse_") {
			shown[name] = m.kind
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if told[name] != shown[name] {
			t.Errorf("%s is a %s, and the page says %q", name, shown[name], told[name])
		}
	}
	for name := range told {
		if shown[name] == "" {
			t.Errorf("the page tells of %s, which the server does not show", name)
		}
	}
}

// Every message that the page explains is the beginning of one in the code.
func TestMonitoringLog(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, folder := range []string{"api", "cmd", "engine", "odb", "refs"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := logRow.FindAllStringSubmatch(docsPage(t, "monitoring.md"), -1)
	if len(rows) == 0 {
		t.Error("the page explains no message")
	}
	for _, row := range rows {
		if !strings.Contains(code.String(), `"`+row[1]) {
			t.Errorf("nothing logs %q", row[1])
		}
	}
}

// docsPage returns a page of docs.
func docsPage(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// pairs returns the matches of the two groups of an expression.
func pairs(of *regexp.Regexp, text string) map[string]string {
	found := make(map[string]string)
	for _, match := range of.FindAllStringSubmatch(text, -1) {
		found[match[1]] = match[2]
	}
	return found
}
