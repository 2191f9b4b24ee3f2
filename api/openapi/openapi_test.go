package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"packhorse/api/openapi"
	"packhorse/api/openapi/openapitest"
)

var rewrite = flag.Bool("rewrite", false, "record the document anew")

type failure struct {
	Error string `json:"error" jsonschema:"for people"`
}

type page struct {
	HasMore bool `json:"has_more"`
}

// Colour has an exported name, which becomes that of a schema.
type Colour struct {
	Name  string `json:"name" schema:"required" jsonschema:"a word"`
	Shade *int   `json:"shade,omitempty" schema:"min=1,max=9"`
}

type colours struct {
	Colours []Colour          `json:"colours"`
	Codes   map[string]string `json:"codes,omitempty" schema:"optional"`
	page
}

type mixing struct {
	Target   string   `json:"target" schema:"required"`
	Name     string   `json:"name" schema:"older=target"`
	Parts    []Colour `json:"parts" schema:"required,min=2"`
	Expected string   `json:"expected_code" schema:"Code"`
	Stir     bool     `json:"stir" schema:"default=true"`
	Finish   string   `json:"finish" schema:"enum=matt|shiny,default=matt"`
	Hidden   string   `json:"-"`
}

type head struct {
	Metadata struct {
		Kind string `json:"kind" schema:"required"`
	} `json:"metadata" schema:"required"`
}

type drop struct {
	Drop string `json:"drop" schema:"required"`
}

func info() openapi.Info {
	return openapi.Info{
		Title: "Paint", Version: "1", Summary: "Colours.", Description: "Mixes colours.\n\n- *Every* call is `safe`.",
		Groups: []openapi.Group{{Name: "Colours", Description: "All of them."}},
		Scopes: []openapi.Scope{{Name: "look", Description: "seeing"}, {Name: "mix", Description: "mixing"}},
		Error:  failure{},
		Common: []openapi.Error{{Status: 400, Description: "Malformed."}},
		Headers: []openapi.Header{{
			Name: "X-Brush", Description: "Which brush.",
		}},
		Shapes: map[string]*jsonschema.Schema{"Code": {Type: "string", Pattern: "^#[0-9a-f]{6}$"}},
		Guard:  "^expected",
	}
}

func operations() []openapi.Operation {
	shelf := openapi.Parameter{Name: "shelf", In: openapi.InPath, Required: true, Description: "Where.", Example: "a/b"}
	return []openapi.Operation{
		{
			Method: "GET", Path: "/shelves/{shelf}/colours", ID: "colours", Group: "Colours", Summary: "lists colours",
			Description: "In the order of the rainbow.", Scope: "look", Denied: 403,
			Parameters: []openapi.Parameter{
				shelf,
				{Name: "like", In: openapi.InQuery, Older: "q", Required: true, Description: "A word.", Example: "red"},
				{Name: "limit", In: openapi.InQuery, Type: 0, Schema: "min=1,default=20"},
				{Name: "tone", In: openapi.InQuery, Repeated: true},
			},
			Answers: []openapi.Answer{{
				Status: 200, Description: "Colours.", Type: colours{},
				Example: `{"colours": [{"name": "red", "shade": 1}], "has_more": false}`,
			}},
		},
		{
			Method: "POST", Path: "/shelves/{shelf}/colours", ID: "mix", Group: "Colours", Summary: "mixes a colour",
			Scope: "mix", Denied: 401, Parameters: []openapi.Parameter{shelf},
			Body: &openapi.Body{
				Type: mixing{}, Example: `{"target": "orange", "parts": [{"name": "red"}, {"name": "yellow"}]}`,
			},
			Answers: []openapi.Answer{{
				Status: 201, Description: "Mixed.", Type: Colour{}, Headers: []openapi.Header{{Name: "X-Code", Schema: "Code", Always: true}},
			}},
			Errors: []openapi.Error{{Status: 409, Description: "It is dry."}},
		},
		{
			Method: "POST", Path: "/pour", ID: "pour", Group: "Colours", Summary: "pours", Scope: "mix", Denied: 401,
			Body: &openapi.Body{
				Lines: []any{head{}, drop{}}, Example: "{\"metadata\": {\"kind\": \"oil\"}}\n{\"drop\": \"x\"}\n",
			},
			Answers: []openapi.Answer{{Status: 200, Description: "The picture.", Media: "image/png"}},
		},
		{
			Method: "HEAD", Path: "/wall", ID: "wall", Group: "Colours", Summary: "looks at the wall",
			Answers: []openapi.Answer{{Status: 204, Description: "It is there."}},
		},
	}
}

// The whole document of a small API; -rewrite records it, and the review of the diff judges it.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := openapi.Document(info(), operations(), openapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := openapitest.CheckDocument(text); err != nil {
		t.Error(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/paint.json"
	if *rewrite {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the document differs from %s:\n%s", golden, got.Bytes())
	}
}

// Mistakes in a description are errors that name it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(o *openapi.Operation)
		says   string
	}{
		"no summary":        {func(o *openapi.Operation) { o.Summary = "" }, "a summary"},
		"unknown group":     {func(o *openapi.Operation) { o.Group = "Brushes" }, `group "Brushes"`},
		"unknown scope":     {func(o *openapi.Operation) { o.Scope = "eat" }, `scope "eat"`},
		"no status":         {func(o *openapi.Operation) { o.Denied = 0 }, "401 or 403"},
		"no answer":         {func(o *openapi.Operation) { o.Answers = nil }, "an answer"},
		"path":              {func(o *openapi.Operation) { o.Path += "/{name}" }, "2 parameters"},
		"another parameter": {func(o *openapi.Operation) { o.Path = "/x" }, "part of the path"},
		"same call twice":   {func(o *openapi.Operation) { o.Method = "POST" }, "described twice"},
		"same id twice":     {func(o *openapi.Operation) { o.ID = "mix" }, "described twice"},
		"same status twice": {func(o *openapi.Operation) { o.Errors = []openapi.Error{{Status: 200}} }, "status 200"},
		"example":           {func(o *openapi.Operation) { o.Answers[0].Example = "{" }, "example of 200"},
		"tag":               {func(o *openapi.Operation) { o.Parameters[2].Schema = "mni=1" }, `"mni=1"`},
		"type":              {func(o *openapi.Operation) { o.Answers[0].Type = make(chan int) }, "unsupported"},
		"two types of a name": {func(o *openapi.Operation) {
			type Colour struct{ Smell string }
			o.Answers[0].Type = Colour{}
		}, "called Colour"},
		"newer name": {func(o *openapi.Operation) {
			o.Answers[0].Type = struct {
				Old string `json:"old" schema:"older=new"`
			}{}
		}, "no field new"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := operations()
			test.change(&list[0])
			_, err := openapi.Document(info(), list, openapi.Options{})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}
