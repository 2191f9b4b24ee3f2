package api

import (
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/console"
	"packhorse/api/exchange"
)

// consoleEndpoints serve the files of the console, which need no token: what they show they ask of
// the API. A slash behind the path of the page is taken off, since its links are relative to it. A
// browser that asks for the root is sent to the page.
func consoleEndpoints(files []console.File) []*endpoint {
	if len(files) == 0 {
		return nil
	}
	all := []*endpoint{openEndpoint(console.Path+"/", func(x exchange.Exchange, _ *auth.Grant) error {
		x.SetHeader("Location", "../console")
		x.Respond(http.StatusPermanentRedirect, "", nil)
		return nil
	}), openEndpoint("/", func(x exchange.Exchange, _ *auth.Grant) error {
		if !strings.Contains(x.Header("Accept"), "text/html") {
			return errNoPath
		}
		x.SetHeader("Location", "console")
		x.Respond(http.StatusSeeOther, "", nil)
		return nil
	})}
	for i := range files {
		f := &files[i]
		all = append(all, openEndpoint(f.Path, send(f.ContentType, f.ETag, f.Headers(), f.Body)))
	}
	for _, e := range all {
		e.label = console.Path // the names of the files say nothing about the server
	}
	return all
}

// consoleHandler serves the same files on the private listener, where /metrics may be.
func consoleHandler(f *console.File) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for name, value := range f.Headers() {
			w.Header().Set(name, value)
		}
		if exchange.TagAmong(r.Header.Get("If-None-Match"), f.ETag, true) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", f.ContentType)
		_, _ = w.Write(f.Body) // the client has gone
	}
}
