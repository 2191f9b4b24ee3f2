package openapitest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"packhorse/api/openapi"
	"packhorse/api/openapi/openapitest"
)

type failure struct {
	Error string `json:"error"`
}

type request struct {
	Name     string `json:"name" schema:"required"`
	Expected string `json:"expected_tip"`
	Options  struct {
		Deep bool `json:"deep"`
	} `json:"options"`
}

type answer struct {
	Name string `json:"name"`
	Note string `json:"note,omitempty"`
}

type first struct {
	Head request `json:"head" schema:"required"`
}

type next struct {
	Data string `json:"data" schema:"required"`
}

func contract(t *testing.T) *openapitest.Contract {
	t.Helper()
	ok := func(description string) []openapi.Answer {
		return []openapi.Answer{{
			Status: 200, Description: description, Type: answer{},
			Headers: []openapi.Header{{Name: "X-Count", Type: 0, Always: true}},
		}}
	}
	in := func(name string, of any, words string) openapi.Parameter {
		return openapi.Parameter{Name: name, In: openapi.InQuery, Type: of, Schema: words}
	}
	required := in("path", nil, "")
	required.Required = true
	several := in("range", 0, "")
	several.Repeated = true
	document, err := openapi.Document(openapi.Info{
		Title: "t", Version: "1", Groups: []openapi.Group{{Name: "g"}}, Error: failure{}, Guard: "^expected",
		Scopes: []openapi.Scope{{Name: "s"}}, Common: []openapi.Error{{Status: 400, Description: "Malformed."}},
	}, []openapi.Operation{
		{
			Method: "GET", Path: "/things/{n}", ID: "read", Group: "g", Summary: "reads", Scope: "s", Denied: 403,
			Parameters: []openapi.Parameter{
				{Name: "n", In: openapi.InPath, Required: true}, required, in("limit", 0, "min=1"), in("deep", false, ""), several,
			},
			Answers: ok("It."),
		},
		{
			Method: "GET", Path: "/things/all", ID: "all", Group: "g", Summary: "reads all", Scope: "s", Denied: 403,
			Answers: []openapi.Answer{{Status: 200, Description: "Bytes.", Media: "application/gzip"}, {Status: 204, Description: "None."}},
		},
		{
			Method: "POST", Path: "/things", ID: "write", Group: "g", Summary: "writes", Scope: "s", Denied: 403,
			Body: &openapi.Body{Type: request{}}, Answers: ok("Written."),
		},
		{
			Method: "POST", Path: "/lines", ID: "lines", Group: "g", Summary: "writes lines", Scope: "s", Denied: 403,
			Body: &openapi.Body{Lines: []any{first{}, next{}}}, Answers: ok("Written."),
		},
	}, openapi.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openapitest.New(document)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each fault of a request or an answer is found, and what is right passes.
func TestCheck(t *testing.T) {
	t.Parallel()
	const good = `{"name":"x"}`
	tests := map[string]struct {
		call   string // method and target
		body   string
		status int
		answer string
		media  string // of the answer; "" for JSON
		fault  string // part of the error; "" for none
	}{
		"right":                  {"GET /things/a%2Fb?path=x&limit=3&deep=true&range=1&range=2", "", 200, good, "", ""},
		"empty parameter":        {"GET /things/a?path=x&limit=", "", 200, good, "", ""},
		"parameter is missing":   {"GET /things/a", "", 200, good, "", "path is missing"},
		"parameter is not there": {"GET /things/a?path=x&depth=1", "", 200, good, "", "depth is not described"},
		"no number":              {"GET /things/a?path=x&limit=y", "", 200, good, "", "limit"},
		"below its bound":        {"GET /things/a?path=x&limit=0", "", 200, good, "", "minimum"},
		"one of several":         {"GET /things/a?path=x&range=1&range=y", "", 200, good, "", "range"},
		"no such path":           {"GET /thing/a", "", 200, good, "", "not in the document"},
		"status":                 {"GET /things/a?path=x", "", 201, good, "", "not described"},
		"bad request":            {"GET /things/a?limit=0", "", 400, `{"error":"no"}`, "", ""},
		"error of another form":  {"GET /things/a", "", 400, `{"message":"no"}`, "", "message"},
		"field is missing":       {"GET /things/a?path=x", "", 200, `{}`, "", "name"},
		"field is not described": {"GET /things/a?path=x", "", 200, `{"name":"x","size":1}`, "", "size"},
		"null in an answer":      {"GET /things/a?path=x", "", 200, `{"name":"x","note":null}`, "", "note"},
		"two values":             {"GET /things/a?path=x", "", 200, good + good, "", "more than one"},
		"content type":           {"GET /things/a?path=x", "", 200, good, "text/plain", "text/plain"},
		"header":                 {"GET /things/a?path=x", "", 200, good, "application/json; q=1", ""},
		"the longest template":   {"GET /things/all", "", 200, "bytes", "application/gzip", ""},
		"no body":                {"GET /things/all", "", 204, "", "", ""},
		"a body after all":       {"GET /things/all", "", 204, "x", "", "none"},
		"body of a GET":          {"GET /things/all", "x", 204, "", "", "none"},
		"request":                {"POST /things", `{"name":"x","expected_tip":"y","more":1,"options":{}}`, 200, good, "", ""},
		"null in a request":      {"POST /things", `{"name":"x","expected_tip":null}`, 200, good, "", ""},
		"request without a name": {"POST /things", `{}`, 200, good, "", "name"},
		"required, and null":     {"POST /things", `{"name":null}`, 200, good, "", "name"},
		"unknown guard":          {"POST /things", `{"name":"x","expected_top":"y"}`, 200, good, "", "propertyNames"},
		"unknown guard within":   {"POST /things", `{"name":"x","options":{"expected_tip":1}}`, 200, good, "", "propertyNames"},
		"no body of a request":   {"POST /things", "", 200, good, "", "missing"},
		"lines":                  {"POST /lines", "{\"head\":{\"name\":\"x\"}}\n\n{\"data\":\"y\"}\n", 200, good, "", ""},
		"bad line":               {"POST /lines", "{\"head\":{\"name\":\"x\"}}\n{\"data\":1}\n", 200, good, "", "line 2"},
	}
	c := contract(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method, target, _ := strings.Cut(test.call, " ")
			path, query, _ := strings.Cut(target, "?")
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{"Content-Type": {"application/json"}, "X-Count": {"1"}}
			if test.media != "" {
				header.Set("Content-Type", test.media)
			}
			err = c.Check(&openapitest.Exchange{
				Method: method, Path: path, Query: values, Body: []byte(test.body), Status: test.status, AnswerHeader: header,
				Answer: []byte(test.answer),
			})
			if (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("error %v, want %q", err, test.fault)
			}
		})
	}
}

// A header that an answer must have is missed, and held against its type.
func TestHeaders(t *testing.T) {
	t.Parallel()
	c := contract(t)
	for count, fault := range map[string]string{"": "X-Count is missing", "x": "X-Count: expected", "7": ""} {
		header := http.Header{"Content-Type": {"application/json"}}
		if count != "" {
			header.Set("X-Count", count)
		}
		err := c.Check(&openapitest.Exchange{
			Method: "POST", Path: "/things", Body: []byte(`{"name":"x"}`), Status: 200, AnswerHeader: header,
			Answer: []byte(`{"name":"x"}`),
		})
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("count %q: error %v, want %q", count, err, fault)
		}
	}
	if unseen := strings.Join(c.Unseen(), ", "); unseen != "lines 200, all 200, all 204, read 200" {
		t.Errorf("unseen: %s", unseen)
	}
}
