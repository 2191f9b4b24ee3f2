package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
)

// anyOrigin stands for the pages of every origin.
const anyOrigin = "*"

// origins are the origins whose pages may read answers (Fetch standard, "CORS protocol"); none turn
// that off. No credentials of a browser are ever allowed: a page brings its token itself.
type origins []string

// CheckOrigins checks [Config.Origins]: origins as browsers send them, or "*" alone.
func CheckOrigins(texts []string) error {
	for _, text := range texts {
		if text == anyOrigin {
			if len(texts) > 1 {
				return errors.New("* allows every origin: expected * alone")
			}
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "" {
			return fmt.Errorf("%.200q is not an origin: expected one as in https://app.example.com, or * alone", text)
		}
		if origin := originOf(u); text != origin {
			return fmt.Errorf("%.200q is not an origin: expected %s", text, origin)
		}
	}
	return nil
}

// originOf returns the origin of a page as browsers send it: in small letters, without the default
// port, and without what follows the host.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	for scheme, port := range map[string]string{"http": ":80", "https": ":443"} {
		if u.Scheme == scheme {
			host = strings.TrimSuffix(host, port)
		}
	}
	return u.Scheme + "://" + strings.TrimSuffix(host, ":")
}

// What a page may send, beyond what every page may, and what it may read of an answer.
var (
	pageMethods = strings.Join([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	}, ", ")
	pageHeaders = strings.Join([]string{
		"Authorization", "Code-Storage-Agent", "Content-Type", "Git-Protocol", "Idempotency-Key", "If-Match",
		"If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Event-ID", "Range", "Traceparent",
		"Tracestate", "X-Min-Sequence",
	}, ", ")
	shownHeaders = strings.Join([]string{
		"Accept-Ranges", "Allow", "Content-Disposition", "Content-Range", "ETag", "Retry-After", "WWW-Authenticate",
		"X-Blob-Sha", "X-Last-Commit-Sha", "X-Repo-Sequence", "X-Request-Id",
	}, ", ")
)

// pageSeconds is how long a browser may keep the answer to a preflight; Chromium takes no more.
const pageSeconds = "7200"

// open reports whether pages of other origins may use a path: the API, its description, and the
// paths of git clients. MCP compares the origin by itself, and the paths of health, metrics and the
// console are not for pages of others.
func (o origins) open(path string) bool {
	if len(o) == 0 {
		return false
	}
	if strings.HasPrefix(path, "/api/") || path == "/openapi.json" || path == "/llms.txt" {
		return true
	}
	_, ok := exchange.ParseGitPath(path)
	return ok
}

// has reports whether the pages of an origin may read answers.
func (o origins) has(origin string) bool { return o[0] == anyOrigin || slices.Contains(o, origin) }

// allow lets the page that asks read the answer, a refusal as well, if its origin is one of these.
func (o origins) allow(x *transfer) {
	if !o.open(x.path) {
		return
	}
	allowed := anyOrigin
	if o[0] != anyOrigin {
		x.SetHeader("Vary", "Origin") // also without one: caches keep these answers apart
		allowed = x.Header("Origin")
	}
	if o.has(allowed) {
		x.SetHeader("Access-Control-Allow-Origin", allowed)
		x.SetHeader("Access-Control-Expose-Headers", shownHeaders)
	}
}

// isPreflight reports whether a browser asks if a page may send a request. No token comes with it.
func (o origins) isPreflight(x *transfer) bool {
	return x.method == http.MethodOptions && o.open(x.path) && x.Header("Origin") != "" &&
		x.Header("Access-Control-Request-Method") != ""
}

var errOrigin = refuse(http.StatusForbidden, code.OriginDenied, "pages of this origin may not use the server (--cors-origin)")

// preflight answers a browser that asks. It looks neither at a token nor at what is stored, so that
// the answer is the same for each path, whether there is something or not.
func (o origins) preflight() *endpoint {
	return &endpoint{label: "preflight", open: true, Route: Route{
		Method: http.MethodOptions,
		Handler: func(x exchange.Exchange, _ *auth.Grant) error {
			if !o.has(x.Header("Origin")) {
				return errOrigin
			}
			x.SetHeader("Access-Control-Allow-Methods", pageMethods)
			x.SetHeader("Access-Control-Allow-Headers", pageHeaders)
			x.SetHeader("Access-Control-Max-Age", pageSeconds)
			x.Respond(http.StatusNoContent, "", nil)
			return nil
		},
	}}
}
