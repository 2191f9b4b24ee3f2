package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"packhorse/api/code"
	"packhorse/api/contract"
	"packhorse/api/openapi"
)

// TestBadInput spoils each field of each call of a client: a value of another type, the field
// twice, and a text of nearly 1 MiB. The answer names the field, and nothing is written.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w, first := contracted(t)
	const repo = "own/er"
	state := func() string {
		var all strings.Builder
		for _, path := range []string{"", "/events?limit=100", "/branches", "/branches?ephemeral=true", "/tags", "/notes/refs"} {
			got := w.do(call{"GET /api/repos/own%2Fer" + path, repo, ""}, nil)
			got.done(t)
			all.Write(got.body)
		}
		return all.String()
	}
	before := state()
	spoiled := 0
	for _, c := range contracts() {
		line, chunks, _ := strings.Cut(c.body, "\n")
		var body map[string]any
		if line == "" || c.status/100 != 2 {
			continue
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(line, "$FIRST", first)), &body); err != nil {
			t.Fatal(err)
		}
		method, path, _ := strings.Cut(c.route, " ")
		route := method + " /api/repos" + strings.Replace(path, "{n}", url.PathEscape(repo), 1)
		for _, name := range fieldsOf(body, "") {
			for how, spoil := range spoils {
				text, ok := spoil(body, name)
				if !ok {
					continue
				}
				spoiled++
				got := w.do(call{route, repo, text + "\n" + chunks}, nil)
				named := strings.Contains(string(got.body), name[strings.LastIndexByte(name, '.')+1:])
				if how == "1 MiB" {
					named = true // the value that cannot be is shown instead, shortened
				}
				refused := got.status == http.StatusBadRequest ||
					how == "1 MiB" && (got.status == http.StatusNotFound || got.status == http.StatusConflict)
				if !refused || !named || len(got.body) > 4<<10 {
					t.Errorf("%s, %s, %s: status %d: %.300s", route, name, how, got.status, got.body)
				}
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("it was %s, and is %s", before, after)
	}
	if spoiled < 200 {
		t.Errorf("only %d requests were spoiled", spoiled)
	}
}

// TestBadParameters gives each flag and each number in the query of each call a value that is none,
// and each call a query of 1 MiB. The answer names the parameter.
func TestBadParameters(t *testing.T) {
	t.Parallel()
	w, _ := contracted(t)
	const repo = "own/er"
	tried := 0
	for _, o := range contract.All() {
		if o.Method == http.MethodHead || strings.Contains(o.Path, "git-credentials") {
			continue
		}
		path, query, body := pathOf(o.Path, repo), "", ""
		if o.Body != nil && o.Method == http.MethodDelete {
			body = `{"name":"t"}`
		}
		for _, p := range o.Parameters {
			if p.In == openapi.InQuery && p.Required {
				query += "&" + p.Name + "=main"
			}
		}
		for _, p := range o.Parameters {
			if _, isText := p.Type.(string); p.In != openapi.InQuery || p.Type == nil || isText {
				continue
			}
			for name := range strings.FieldsSeq(p.Name + " " + p.Older) {
				tried++
				got := w.do(call{o.Method + " " + path + "?" + name + "=%C3%A9" + query, repo, body}, nil)
				if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), name) {
					t.Errorf("%s %s, %s: status %d: %s", o.Method, path, name, got.status, got.body)
				}
				if as := codeOf(t, path, got.status, string(got.body)); as != code.InvalidRequest {
					t.Errorf("%s %s, %s: code %s", o.Method, path, name, as)
				}
			}
		}
		c := w.dial(t)
		c.send(o.Method + " " + path + "?path=" + strings.Repeat("x", 9<<10) + " HTTP/1.1\nHost: x\nContent-Length: 0\n\n")
		if got := c.receive(o.Method); got.StatusCode != http.StatusRequestURITooLong {
			t.Errorf("%s %s with a long query: status %d: %s", o.Method, path, got.StatusCode, got.body)
		}
	}
	if tried < 40 {
		t.Errorf("only %d parameters were tried", tried)
	}
}

// isFreeText reports whether a field may hold any text.
func isFreeText(name string) bool {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "commit_message", "note", "pattern", "username", "password", "name", "email":
		return true
	}
	return false
}

// fieldsOf are the fields of an object and of the objects in it, with dots between.
func fieldsOf(object map[string]any, prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		names = append(names, prefix+name)
		if inner, ok := object[name].(map[string]any); ok {
			names = append(names, fieldsOf(inner, prefix+name+".")...)
		}
	}
	return names
}

// spoils are ways to spoil a field of a body; false for a field that cannot be spoilt so.
var spoils = map[string]func(body map[string]any, name string) (string, bool){
	"another type": func(body map[string]any, name string) (string, bool) {
		return rendered(body, "", func(at string, value any) []any {
			if at != name {
				return []any{value}
			}
			if _, ok := value.(string); ok {
				return []any{7}
			}
			return []any{"x"}
		}), true
	},
	"an array": func(body map[string]any, name string) (string, bool) {
		return rendered(body, "", func(at string, value any) []any {
			if at == name {
				if _, ok := value.([]any); ok {
					return []any{map[string]any{"a": 1}}
				}
				return []any{[]any{value}}
			}
			return []any{value}
		}), true
	},
	"twice": func(body map[string]any, name string) (string, bool) {
		return rendered(body, "", func(at string, value any) []any {
			if at == name {
				return []any{value, value}
			}
			return []any{value}
		}), true
	},
	"1 MiB": func(body map[string]any, name string) (string, bool) {
		isText := false
		text := rendered(body, "", func(at string, value any) []any {
			if _, ok := value.(string); ok && at == name && !isFreeText(name) {
				isText = true
				return []any{strings.Repeat("x", 1<<20-4<<10)}
			}
			return []any{value}
		})
		return text, isText
	},
}

// rendered is an object as JSON, with the values for each field that as gives.
func rendered(object map[string]any, prefix string, as func(name string, value any) []any) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		for _, value := range as(prefix+name, object[name]) {
			text := ""
			if inner, ok := value.(map[string]any); ok {
				text = rendered(inner, prefix+name+".", as)
			} else {
				data, err := json.Marshal(value)
				must(err)
				text = string(data)
			}
			members = append(members, fmt.Sprintf("%q:%s", name, text))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}
