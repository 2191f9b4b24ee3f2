package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/rest"
)

// document returns docs/api.md, and its part up to the first section.
func document(t *testing.T) (whole, top string) {
	t.Helper()
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	top, _, ok := strings.Cut(string(page), "\n## ")
	if !ok {
		t.Fatal("docs/api.md has no sections")
	}
	return string(page), top
}

// TestRoutesDocument holds the table of endpoints in docs/api.md against the table of routes, and
// each route has a section.
func TestRoutesDocument(t *testing.T) {
	t.Parallel()
	const base = "/api/v1"
	whole, top := document(t)
	told := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(/[^`]*)` \\| `([^`]*)` \\| (\\d+) \\| [a-z].* \\|$")
	for _, row := range rows.FindAllStringSubmatch(top, -1) {
		told[row[1]+" "+base+row[2]] = fmt.Sprintf("%s, %s, else %s", namedPath(row[1]+" "+row[2]), row[3], row[4])
	}
	served := make(map[string]string)
	described := make(map[string]bool)
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		name := route.Method + " " + route.Path
		served[name] = fmt.Sprintf("%s, %s, else %d", route.Named, route.Scope, route.Denied)
		if route.Method != http.MethodHead { // which GET describes
			described[name] = true
		}
	}
	for name, want := range served {
		if got, ok := told[name]; !ok || got != want {
			t.Errorf("%s: the table of endpoints says %q, the routes %q", name, got, want)
		}
	}
	for name := range told {
		if _, ok := served[name]; !ok {
			t.Errorf("%s: the table of endpoints has what is not served", name)
		}
	}
	sections := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^### ([A-Z]+ /\S+)$`).FindAllStringSubmatch(whole, -1) {
		sections[heading[1]] = true
	}
	if !maps.Equal(sections, described) {
		t.Errorf("sections of %q, routes %q", slices.Sorted(maps.Keys(sections)), slices.Sorted(maps.Keys(described)))
	}
}

// TestDocumentSections checks the headings of docs/api.md, which other documents and comments cite,
// and that its lines are short.
func TestDocumentSections(t *testing.T) {
	t.Parallel()
	whole, _ := document(t)
	var sections []string
	for number, line := range strings.Split(whole, "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, name)
		}
		if columns := len([]rune(line)); columns > 100 {
			t.Errorf("line %d has %d columns", number+1, columns)
		}
	}
	want := []string{
		"Conventions", "Authentication", "Repositories", "Branches and tags", "Files and trees", "Commits", "Diffs",
		"Writing commits",
		"Merging", "Notes", "Search and blame", "Archives", "Webhooks", "Upstreams", "Git over HTTP", "MCP", "Errors",
	}
	if !slices.Equal(sections, want) {
		t.Errorf("sections %q, want %q", sections, want)
	}
}

// namedPath is the path that names the repository, as "Two families of paths" has it, of a method
// and a path.
func namedPath(call string) string {
	switch call {
	case "GET /repos", "POST /repos":
		return "/api/repos"
	case "GET /events":
		return "/api/events"
	case "POST /transactions":
		return "/api/transactions"
	case "GET /repo", "PATCH /repo", "DELETE /repos/delete":
		return "/api/repos/{n}"
	case "DELETE /repos/tags":
		return "/api/repos/{n}/tags/{name}"
	case "PUT /repos/git-credentials", "DELETE /repos/git-credentials":
		return "/api/repos/{n}/git-credentials/{id}"
	default:
		_, path, _ := strings.Cut(call, " /repos")
		return "/api/repos/{n}" + path
	}
}
