package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"packhorse/api"
	calls "packhorse/api/contract"
	"packhorse/api/openapi"
	"packhorse/api/openapi/openapitest"
	"packhorse/api/rest"
)

// described is the document of the API, which allows no field in an answer that it does not have.
var described = sync.OnceValues(func() (*openapitest.Contract, error) {
	var routes []calls.Route
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		routes = append(routes,
			calls.Route{Method: route.Method, Path: route.Path, Scope: route.Scope.String(), Denied: route.Denied},
			calls.Route{Method: route.Method, Path: route.Named, Scope: route.Scope.String(), Denied: http.StatusForbidden})
	}
	operations, err := calls.Operations(routes)
	if err != nil {
		return nil, err
	}
	text, err := openapi.Document(calls.Info("test"), operations, openapi.Options{Strict: true})
	if err != nil {
		return nil, err
	}
	return openapitest.New(text)
})

// hold holds a request and its answer against the document.
func (w *writable) hold(request *http.Request, sent string, response *http.Response, answer []byte) {
	w.t.Helper()
	page, err := described()
	must(err)
	path, _, _ := strings.Cut(request.URL.RequestURI(), "?")
	if !strings.HasPrefix(path, "/api/") {
		return
	}
	if response.StatusCode >= http.StatusBadRequest && len(answer) > 0 {
		codeOf(w.t, request.Method+" "+path, response.StatusCode, string(answer))
	}
	if err := page.Check(&openapitest.Exchange{
		Method: request.Method, Path: path, Query: request.URL.Query(), Header: request.Header, Body: []byte(sent),
		Status: response.StatusCode, AnswerHeader: response.Header, Answer: answer,
	}); err != nil {
		w.t.Error(err)
	}
}

func documents(t *testing.T) []openapi.File {
	t.Helper()
	files, err := api.Documents(api.Routes(rest.New(rest.Config{})), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Everybody can read the documents, and is not sent again what he has.
func TestDocuments(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, func(c *api.Config) { c.Documents = documents(t) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(method, path, ifNoneMatch string) (*http.Response, []byte) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.address+path, http.NoBody)
		must(err)
		if ifNoneMatch != "" {
			request.Header.Set("If-None-Match", ifNoneMatch)
		}
		response, err := transport.RoundTrip(request)
		must(err)
		defer response.Body.Close() //nolint:errcheck // nothing was written
		body, err := io.ReadAll(response.Body)
		must(err)
		return response, body
	}
	for path, want := range map[string]struct{ media, text string }{
		"/openapi.json": {"application/json", `"version":"v1.2.3"`},
		"/docs":         {"text/html; charset=utf-8", "/api/repos/{n}/branches/create"},
		"/llms.txt":     {"text/plain; charset=utf-8", "# Packhorse"},
	} {
		whole, body := get("GET", path, "")
		tag := whole.Header.Get("Etag")
		if whole.StatusCode != 200 || whole.Header.Get("Content-Type") != want.media || tag == "" ||
			whole.Header.Get("X-Content-Type-Options") != "nosniff" || !bytes.Contains(body, []byte(want.text)) {
			t.Errorf("GET %s: %d %v, %d bytes", path, whole.StatusCode, whole.Header, len(body))
		}
		policy := whole.Header.Get("Content-Security-Policy")
		if (path == "/docs") != strings.HasPrefix(policy, "default-src 'none'; ") {
			t.Errorf("GET %s: policy %q", path, policy)
		}
		head, nothing := get("HEAD", path, "")
		if head.StatusCode != 200 || len(nothing) > 0 || head.ContentLength != int64(len(body)) || head.Header.Get("Etag") != tag {
			t.Errorf("HEAD %s: %d %v, want %d bytes", path, head.StatusCode, head.Header, len(body))
		}
		if same, nothing := get("GET", path, tag); same.StatusCode != 304 || len(nothing) > 0 || same.Header.Get("Etag") != tag {
			t.Errorf("GET %s once more: %d %v, %q", path, same.StatusCode, same.Header, nothing)
		}
		if other, again := get("GET", path, `"other"`); other.StatusCode != 200 || !bytes.Equal(again, body) {
			t.Errorf("GET %s with another tag: %d, %d bytes", path, other.StatusCode, len(again))
		}
		if post, _ := get("POST", path, ""); post.StatusCode != 405 || post.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d %v", path, post.StatusCode, post.Header)
		}
	}
}

// The document has each row of the table at each of its paths, with its scope and the status
// without it, and nothing else.
func TestDocumentsHaveRoutes(t *testing.T) {
	t.Parallel()
	var read struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string `json:"security"`
			Denied   int                   `json:"x-status-without-scope"`
		} `json:"paths"`
	}
	for _, f := range documents(t) {
		if f.Path == openapi.DocumentPath {
			must(json.Unmarshal(f.Body, &read))
		}
	}
	type row struct {
		scope  string
		denied int
	}
	told := make(map[string]row)
	for path, methods := range read.Paths {
		for method, o := range methods {
			if len(o.Security) != 1 || len(o.Security[0]["token"]) != 1 {
				t.Errorf("%s %s: security %v", method, path, o.Security)
				continue
			}
			told[strings.ToUpper(method)+" "+path] = row{o.Security[0]["token"][0], o.Denied}
		}
	}
	served := 0
	for _, route := range api.Routes(rest.New(rest.Config{})) {
		for path, denied := range map[string]int{route.Path: route.Denied, route.Named: 403} {
			served++
			if want := (row{route.Scope.String(), denied}); told[route.Method+" "+path] != want {
				t.Errorf("%s %s: the document says %v, want %v", route.Method, path, told[route.Method+" "+path], want)
			}
		}
	}
	if len(told) != served {
		t.Errorf("the document has %d calls, the table %d", len(told), served)
	}
	routes := api.Routes(rest.New(rest.Config{}))
	routes[0].Named = "/api/more"
	if _, err := api.Documents(routes, ""); err == nil || !strings.Contains(err.Error(), "/api/more is served and not described") {
		t.Errorf("a route without a description: %v", err)
	}
}
