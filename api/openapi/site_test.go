package openapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"regexp"
	"strings"
	"testing"

	"packhorse/api/openapi"
)

func files(t *testing.T, list []openapi.Operation) map[string]openapi.File {
	t.Helper()
	made, err := openapi.Files(info(), list)
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]openapi.File)
	for _, f := range made {
		named[f.Path] = f
	}
	return named
}

// The page loads nothing and runs nothing but its own style and script, which its policy names.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	f := files(t, operations())[openapi.PagePath]
	page := string(f.Body)
	for _, part := range []string{"style", "script"} {
		found := regexp.MustCompile(`(?s)<`+part+`>(.*?)</`+part+`>`).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			t.Fatalf("the page has %d of %s", len(found), part)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := part + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(f.Policy, want) {
			t.Errorf("the policy %q lacks %s", f.Policy, want)
		}
		page = strings.Replace(page, found[0][0], "", 1)
	}
	if !strings.HasPrefix(f.Policy, "default-src 'none'; ") || f.Headers()["Content-Security-Policy"] != f.Policy {
		t.Errorf("policy %q, headers %v", f.Policy, f.Headers())
	}
	if found := regexp.MustCompile(`(?i)\s(src|style|on[a-z]+)=|<(link|img|iframe|form|base)\b|url\(`).FindString(page); found != "" {
		t.Errorf("the policy refuses %q", found)
	}
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if id, ok := strings.CutPrefix(link[1], "#"); ok {
			if strings.Count(page, ` id="`+id+`"`) != 1 {
				t.Errorf("%d places are called %s", strings.Count(page, ` id="`+id+`"`), id)
			}
		} else if link[1] != openapi.DocumentPath && link[1] != openapi.AgentsPath {
			t.Errorf("the page leads to %s", link[1])
		}
	}
}

// The page shows what the description says: fields, bounds, names of both ages, examples.
func TestPageContent(t *testing.T) {
	t.Parallel()
	list := operations()
	list[3].Description = `<script>alert("x")</script> and ` + "`<b>`"
	page := string(files(t, list)[openapi.PagePath].Body)
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, ""))
	for _, want := range []string{
		`curl -sS -H "Authorization: Bearer $TOKEN"`, `"$PACKHORSE/shelves/a%2Fb/colours?like=red"`,
		"-d '{\"target\": \"orange\"", "Content-Type: application/x-ndjson", "curl -sS -I \\\n",
		"Scope look, else 403", "No token", "The first line", "Each further line", "name string older name", "shade integer optional",
		"1 to 9", "default matt; one of matt, shiny", "2 items or more", "It is dry.", "As every call: 400",
		`<script>alert("x")</script> and <b>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>") {
		t.Error("the text of a description became a part of the page")
	}
}

// An error shows its fields if it has others than every error: by its own type, or by that of the
// errors of its call.
func TestPageErrors(t *testing.T) {
	t.Parallel()
	type stained struct {
		failure
		Depth int `json:"depth" jsonschema:"of the stain"`
	}
	tests := map[string]struct {
		change func(o *openapi.Operation)
		shown  bool
	}{
		"every error":           {func(*openapi.Operation) {}, false},
		"errors of the call":    {func(o *openapi.Operation) { o.Error = stained{} }, true},
		"the error":             {func(o *openapi.Operation) { o.Errors[0].Type = stained{} }, true},
		"an error without body": {func(o *openapi.Operation) { o.Error, o.Errors[0].Bare = stained{}, true }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := operations()
			test.change(&list[1])
			page := string(files(t, list)[openapi.PagePath].Body)
			_, shown, _ := strings.Cut(page, "It is dry.")
			shown, _, ok := strings.Cut(shown, "</article>")
			text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(shown, "")
			for _, want := range []string{"Fields", "error string", "depth integer", "of the stain"} {
				if !ok || strings.Contains(text, want) != test.shown {
					t.Errorf("%q is shown: %t, want %t; the error is\n%s", want, !test.shown, test.shown, text)
				}
			}
		})
	}
}

// A call at an older path is shown with its newer one.
func TestTwins(t *testing.T) {
	t.Parallel()
	list := operations()
	older := list[2]
	older.Path, older.ID, older.Twin, older.Denied = "/v0/pour", "pourV0", "pour", 403
	made := files(t, append(list, older))
	page, agents := string(made[openapi.PagePath].Body), string(made[openapi.AgentsPath].Body)
	if !strings.Contains(page, "also <code>POST /v0/pour</code>, else 403") || strings.Contains(page, `id="pourV0"`) {
		t.Error("the page does not show both paths as one call")
	}
	if !strings.Contains(agents, "- `POST /pour`: pours (`mix`); also `/v0/pour`\n") {
		t.Errorf("the text for agents is\n%s", agents)
	}
	if !strings.Contains(string(made[openapi.DocumentPath].Body), `"/v0/pour":{"post":`) {
		t.Error("the document lacks the older path")
	}
	older.Twin = "spill"
	if _, err := openapi.Files(info(), append(list, older)); err == nil || !strings.Contains(err.Error(), "spill") {
		t.Errorf("a twin that is not there: %v", err)
	}
}

// The same description gives the same tags, and another one gives others.
func TestTags(t *testing.T) {
	t.Parallel()
	first, second := files(t, operations()), files(t, operations())
	changed := files(t, operations()[:3])
	for path, f := range first {
		if second[path].ETag != f.ETag || changed[path].ETag == f.ETag || f.Headers()["ETag"] != f.ETag {
			t.Errorf("%s: tags %s, %s and, of another description, %s", path, f.ETag, second[path].ETag, changed[path].ETag)
		}
	}
}
