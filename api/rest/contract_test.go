package rest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"packhorse/api/code"
	"packhorse/api/contract"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/openapi"
	"packhorse/api/openapi/openapitest"
)

// described is the document of the API, which allows no field in an answer that it does not have.
var described = sync.OnceValues(func() (*openapitest.Contract, error) {
	var routes []contract.Route
	for _, o := range contract.All() {
		routes = append(routes, contract.Route{Method: o.Method, Path: o.Path, Scope: "git:read", Denied: http.StatusForbidden})
	}
	operations, err := contract.Operations(routes)
	if err != nil {
		return nil, err
	}
	document, err := openapi.Document(contract.Info("test"), operations, openapi.Options{Strict: true})
	if err != nil {
		return nil, err
	}
	return openapitest.New(document)
})

// readBody returns the text of a body, nil for one of an unknown kind, and a body to be sent.
func readBody(t *testing.T, body io.Reader) (text []byte, again io.Reader) {
	t.Helper()
	if p, ok := body.(*pack); ok {
		body = &p.Buffer
	}
	var err error
	switch body := body.(type) {
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		text, err = io.ReadAll(body)
		again = bytes.NewReader(text)
	default:
		again = body
	}
	if err != nil {
		t.Fatal(err)
	}
	return text, again
}

// holdCode makes sure that an error has a code, which may come with its status.
func holdCode(t *testing.T, method, target string, got *exchangetest.Answer) {
	t.Helper()
	if got.Status < http.StatusBadRequest || method == http.MethodHead || len(got.Body) == 0 {
		return
	}
	var told struct{ Code code.Code }
	if err := json.Unmarshal(got.Body, &told); err != nil {
		t.Errorf("%s %s: %v: %s", method, target, err, got.Body)
		return
	}
	if entry := code.Find(told.Code); entry == nil || !slices.Contains(entry.Statuses, got.Status) {
		t.Errorf("%s %s: code %q with status %d: %s", method, target, told.Code, got.Status, got.Body)
	}
}

// hold holds a request and its answer against the document. The operation is that of the handler,
// and the family that of the parts of the path.
func (c *client) hold(
	parts map[string]string, h handler, method, target string, headers http.Header, body io.Reader, text []byte,
	got *exchangetest.Answer,
) {
	c.t.Helper()
	contract, err := described()
	if err != nil {
		c.t.Fatal(err)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		c.t.Fatal(err)
	}
	holdCode(c.t, method, target, got)
	name := runtime.FuncForPC(reflect.ValueOf(h).Pointer()).Name()
	name, isMethod := strings.CutSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
	if !isMethod {
		return // a handler of the test
	}
	if name == "File" && method == http.MethodHead {
		name = "HeadFile"
	}
	id := strings.ToLower(name[:1]) + name[1:]
	if parts["n"] == "" {
		id += "V1"
	}
	if err := contract.Check(&openapitest.Exchange{
		Method: method, ID: id, Query: u.Query(), Header: headers, Body: text, Loose: c.loose || body != nil && text == nil,
		Status: got.Status, AnswerHeader: got.Header, Answer: got.Body,
	}); err != nil {
		c.t.Error(err)
	}
}
