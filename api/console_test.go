package api_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/console"
)

// Everybody can read the files of the console at both listeners, under a policy that lets nothing
// else in, and is not sent again what he has.
func TestConsole(t *testing.T) {
	t.Parallel()
	files, err := console.Files()
	must(err)
	f := serve(t, nil, func(c *api.Config) { c.Console = files })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	public := func(request *http.Request) *http.Response {
		request.URL.Scheme, request.URL.Host, request.RequestURI = "http", f.address, ""
		response, err := transport.RoundTrip(request)
		must(err)
		return response
	}
	admin := func(request *http.Request) *http.Response {
		w := httptest.NewRecorder()
		f.Admin().ServeHTTP(w, request)
		return w.Result()
	}
	for name, door := range map[string]func(*http.Request) *http.Response{"public": public, "admin": admin} {
		ask := func(method, path, ifNoneMatch string) (*http.Response, []byte) {
			request := httptest.NewRequest(method, path, http.NoBody)
			if ifNoneMatch != "" {
				request.Header.Set("If-None-Match", ifNoneMatch)
			}
			response := door(request)
			defer response.Body.Close() //nolint:errcheck // nothing was written
			body, err := io.ReadAll(response.Body)
			must(err)
			return response, body
		}
		for i := range files {
			file := &files[i]
			whole, body := ask("GET", file.Path, "")
			if whole.StatusCode != 200 || !bytes.Equal(body, file.Body) || whole.Header.Get("Content-Type") != file.ContentType {
				t.Errorf("%s: GET %s: %d %v, %d bytes", name, file.Path, whole.StatusCode, whole.Header, len(body))
			}
			for header, want := range map[string]string{
				"Content-Security-Policy": console.Policy, "X-Content-Type-Options": "nosniff",
				"Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "Etag": file.ETag,
			} {
				if got := whole.Header.Get(header); got != want {
					t.Errorf("%s: GET %s: %s is %q, want %q", name, file.Path, header, got, want)
				}
			}
			if head, nothing := ask("HEAD", file.Path, ""); head.StatusCode != 200 || name == "public" && len(nothing) > 0 ||
				head.Header.Get("Etag") != file.ETag {
				t.Errorf("%s: HEAD %s: %d %v", name, file.Path, head.StatusCode, head.Header)
			}
			if same, nothing := ask("GET", file.Path, `"other", `+file.ETag); same.StatusCode != 304 || len(nothing) > 0 {
				t.Errorf("%s: GET %s once more: %d, %d bytes", name, file.Path, same.StatusCode, len(nothing))
			}
			if post, _ := ask("POST", file.Path, ""); post.StatusCode != 405 {
				t.Errorf("%s: POST %s: %d", name, file.Path, post.StatusCode)
			}
		}
		for _, path := range []string{"/console/index.html", "/console/static/main.js", "/console/pages", "/console/none.js"} {
			if missing, _ := ask("GET", path, ""); missing.StatusCode != 404 {
				t.Errorf("%s: GET %s: %d, want 404", name, path, missing.StatusCode)
			}
		}
	}
	if slash := public(httptest.NewRequest("GET", "/console/", http.NoBody)); slash.StatusCode != 308 ||
		slash.Header.Get("Location") != "../console" {
		t.Errorf("GET /console/: %d %v", slash.StatusCode, slash.Header)
	}
	for accept, want := range map[string]int{"text/html,*/*;q=0.8": 303, "application/json": 404, "": 404} {
		request := httptest.NewRequest("GET", "/", http.NoBody)
		request.Header.Set("Accept", accept)
		if root := public(request); root.StatusCode != want || (root.Header.Get("Location") == "console") != (want == 303) {
			t.Errorf("GET / for %q: %d %v", accept, root.StatusCode, root.Header)
		}
	}
}

// Without files there is no console.
func TestConsoleOff(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, nil)
	for _, path := range []string{"/console", "/console/", "/console/main.js"} {
		response, err := http.Get("http://" + f.address + path)
		must(err)
		must(response.Body.Close())
		w := httptest.NewRecorder()
		f.Admin().ServeHTTP(w, httptest.NewRequest("GET", path, http.NoBody))
		if response.StatusCode != 404 || w.Code != 404 {
			t.Errorf("GET %s: %d, on the private listener %d", path, response.StatusCode, w.Code)
		}
	}
}

// The policy is the one that the document promises.
func TestConsolePolicy(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	} {
		if !strings.Contains(console.Policy+";", rule+";") {
			t.Errorf("the policy lacks %s: %s", rule, console.Policy)
		}
	}
	if strings.Contains(console.Policy, "unsafe") || strings.Contains(console.Policy, "*") {
		t.Errorf("the policy lets in too much: %s", console.Policy)
	}
}
