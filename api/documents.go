package api

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/contract"
	"packhorse/api/exchange"
	"packhorse/api/openapi"
)

// Documents describes routes, for Config.Documents: an OpenAPI document, a page of it for people,
// and a text for agents. version is that of the program. An error names the routes without a
// description in package contract, and the descriptions without a route.
func Documents(routes []Route, version string) ([]openapi.File, error) {
	operations, err := contract.Operations(described(routes))
	if err != nil {
		return nil, err
	}
	return openapi.Files(contract.Info(version), operations)
}

// described are the paths of routes, in the form that package contract describes.
func described(routes []Route) []contract.Route {
	var paths []contract.Route
	for _, row := range routes {
		for _, at := range row.at() {
			paths = append(paths, contract.Route{
				Method: at.Method, Path: at.Path, Scope: at.Scope.String(), Denied: at.Denied,
			})
		}
	}
	return paths
}

// documents are the endpoints of files, which need no token.
func documents(files []openapi.File) []*endpoint {
	var all []*endpoint
	for _, f := range files {
		all = append(all, openEndpoint(f.Path, document(f)))
	}
	return all
}

func document(f openapi.File) Handler {
	return send(f.ContentType, f.ETag, f.Headers(), f.Body)
}

// send answers with a whole file, or with 304 a client that has it.
func send(contentType, etag string, headers map[string]string, body []byte) Handler {
	return func(x exchange.Exchange, _ *auth.Grant) error {
		for name, value := range headers {
			x.SetHeader(name, value)
		}
		if exchange.TagAmong(x.Header("If-None-Match"), etag, true) {
			x.Respond(http.StatusNotModified, "", nil)
			return nil
		}
		x.Respond(http.StatusOK, contentType, body)
		return nil
	}
}
