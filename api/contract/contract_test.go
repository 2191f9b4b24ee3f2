package contract_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"packhorse/api/contract"
	"packhorse/api/openapi"
	"packhorse/api/openapi/openapitest"
)

// routes are those of all calls that are described.
func routes() []contract.Route {
	var list []contract.Route
	for _, o := range contract.All() {
		list = append(list, contract.Route{Method: o.Method, Path: o.Path, Scope: "git:read", Denied: 403})
	}
	return list
}

func document(t *testing.T, options openapi.Options) []byte {
	t.Helper()
	operations, err := contract.Operations(routes())
	if err != nil {
		t.Fatal(err)
	}
	text, err := openapi.Document(contract.Info("test"), operations, options)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The document that is served, and the one that tests use, are OpenAPI 3.1, and their examples have
// the form that the document gives them.
func TestDocument(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]openapi.Options{"served": {}, "strict": {Strict: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := document(t, options)
			if err := openapitest.CheckDocument(text); err != nil {
				t.Error(err)
			}
			c, err := openapitest.New(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.CheckExamples(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A route without a description, and a description without a route, are named.
func TestOperations(t *testing.T) {
	t.Parallel()
	list := routes()
	left := list[0].Method + " " + list[0].Path
	_, err := contract.Operations(append(list[1:], contract.Route{Method: "GET", Path: "/api/v1/new"}))
	if err == nil || !strings.Contains(err.Error(), left+" is described and not served") ||
		!strings.Contains(err.Error(), "GET /api/v1/new is served and not described") {
		t.Errorf("%s was left out and another route added: %v", left, err)
	}
}

// The page of the contract says of each call what its description says.
func TestSummaries(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(/[^`]*)` \\| `[^`]*` \\| \\d+ \\| ([a-z].*) \\|$")
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		told[row[1]+" /api/v1"+row[2]] = row[3]
	}
	count := 0
	for _, o := range contract.All() {
		if !strings.HasPrefix(o.Path, "/api/v1/") {
			continue
		}
		count++
		if name := o.Method + " " + o.Path; told[name] != o.Summary {
			t.Errorf("%s: the page says %q, the description %q", name, told[name], o.Summary)
		}
	}
	if count != len(told) {
		t.Errorf("%d calls of the first family are described, the page has %d", count, len(told))
	}
}

// The answers that the page of the contract shows, which another test compares with the server's,
// have the form of the document, down to each field.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	c, err := openapitest.New(document(t, openapi.Options{Strict: true}))
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	answers := regexp.MustCompile("(?s)```sh\n((?:[^`]|`[^`])*?)```\n```json\n(.*?)```")
	called := regexp.MustCompile(`\$API(/[a-z/-]+)`)
	verb := regexp.MustCompile(`-X ([A-Z]+) `)
	for _, found := range answers.FindAllStringSubmatch(string(page), -1) {
		commands := strings.Split(found[1], "curl ")
		last := commands[len(commands)-1]
		path := called.FindStringSubmatch(last)
		if strings.Contains(last, "$PACKHORSE/mcp") {
			continue // which is described in words
		}
		if path == nil {
			t.Errorf("no call in %q", last)
			continue
		}
		method := "GET"
		if given := verb.FindStringSubmatch(last); given != nil {
			method = given[1]
		}
		decoder := json.NewDecoder(strings.NewReader(found[2]))
		for decoder.More() {
			var answer json.RawMessage
			if err := decoder.Decode(&answer); err != nil {
				t.Fatalf("%s %s: %v", method, path[1], err)
			}
			if err := c.CheckAnswer(method, "/api/v1"+path[1], answer); err != nil {
				t.Errorf("%s %s: %v\n%s", method, path[1], err, answer)
			}
			held++
		}
	}
	if held < 30 {
		t.Errorf("the page has %d answers, too few for its calls", held)
	}
}

// Each status in the table of errors belongs to some call, unless it belongs to none.
func TestStatuses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n## Errors\n")
	if !ok {
		t.Fatal("the page has no section Errors")
	}
	described := map[string]bool{
		"405": true, // of a path, whose other methods are calls
		"499": true, // only in the log
		"501": true, // of git LFS
		"505": true, // of a request that is not read
	}
	for _, status := range regexp.MustCompile(`"([45]\d\d)":`).FindAllSubmatch(document(t, openapi.Options{}), -1) {
		described[string(status[1])] = true
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		if !described[row[1]] {
			t.Errorf("no call is said to answer %s", row[1])
		}
	}
}
