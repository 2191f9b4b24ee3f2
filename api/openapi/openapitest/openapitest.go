// Package openapitest holds requests and their answers against an OpenAPI document, for tests.
//
// Start at [New] and [Contract.Check]. What it judges is what package openapi writes: parameters of
// simple types, bodies of JSON and NDJSON, and answers of any media type.
package openapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// Contract is a document that exchanges are held against. Its methods may be called concurrently.
type Contract struct {
	schemas    map[string]*jsonschema.Schema
	responses  map[string]response
	headers    map[string]header
	operations []*operation

	mu       sync.Mutex
	resolved map[*jsonschema.Schema]*jsonschema.Resolved
	seen     map[string]map[int]bool // statuses of operations
}

// Exchange is a request with its answer.
type Exchange struct {
	Method string
	// ID is that of the operation, for a request whose path is not known; "" finds it by Method and
	// Path.
	ID           string
	Path         string // as sent, escapes and all
	Query        url.Values
	Header       http.Header
	Body         []byte
	Status       int
	AnswerHeader http.Header
	Answer       []byte
	// Loose leaves the request unchecked: the test sends what is wrong, and knows it.
	Loose bool
}

type operation struct {
	id, method string
	segments   []string // of the path's template
	parameters []parameter
	body       *body
	responses  map[int]response
}

type parameter struct {
	Name     string             `json:"name"`
	In       string             `json:"in"`
	Required bool               `json:"required"`
	Schema   *jsonschema.Schema `json:"schema"`
}

type body struct {
	Required bool             `json:"required"`
	Content  map[string]media `json:"content"`
}

type media struct {
	Schema  *jsonschema.Schema `json:"schema"`
	Example json.RawMessage    `json:"example"`
}

type response struct {
	Ref     string            `json:"$ref"`
	Headers map[string]header `json:"headers"`
	Content map[string]media  `json:"content"`
}

type header struct {
	Ref      string             `json:"$ref"`
	Required bool               `json:"required"`
	Schema   *jsonschema.Schema `json:"schema"`
}

// New reads a document.
func New(document []byte) (*Contract, error) {
	// References point into the schema that is resolved, which has the named ones beside it.
	document = bytes.ReplaceAll(document, []byte(`"#/components/schemas/`), []byte(`"#/$defs/`))
	var read struct {
		Paths map[string]map[string]struct {
			ID         string              `json:"operationId"`
			Parameters []parameter         `json:"parameters"`
			Body       *body               `json:"requestBody"`
			Responses  map[string]response `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas   map[string]*jsonschema.Schema `json:"schemas"`
			Responses map[string]response           `json:"responses"`
			Headers   map[string]header             `json:"headers"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &read); err != nil {
		return nil, fmt.Errorf("openapitest: %w", err)
	}
	c := &Contract{
		schemas: read.Components.Schemas, responses: read.Components.Responses, headers: read.Components.Headers,
		resolved: make(map[*jsonschema.Schema]*jsonschema.Resolved), seen: make(map[string]map[int]bool),
	}
	for _, path := range slices.Sorted(maps.Keys(read.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(read.Paths[path])) {
			told := read.Paths[path][method]
			o := &operation{
				id: told.ID, method: strings.ToUpper(method), segments: strings.Split(path, "/"), parameters: told.Parameters,
				body: told.Body, responses: make(map[int]response),
			}
			for status, r := range told.Responses {
				number, err := strconv.Atoi(status)
				if err != nil {
					return nil, fmt.Errorf("openapitest: %s: status %q", o.id, status)
				}
				o.responses[number] = r
			}
			c.operations = append(c.operations, o)
		}
	}
	return c, nil
}

// Check reports how a request and its answer differ from the document. A request is held against it
// only if the answer is no error: a bad one may look as it likes.
func (c *Contract) Check(x *Exchange) error {
	o := c.find(x)
	if o == nil {
		return fmt.Errorf("openapitest: %s %s is not in the document", x.Method, x.Path)
	}
	c.note(o.id, x.Status)
	var faults []error
	if x.Status < http.StatusBadRequest && !x.Loose {
		faults = append(faults, c.request(o, x))
	}
	faults = append(faults, c.answer(o, x))
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("openapitest: %s (%s %s) answered %d: %w", o.id, x.Method, x.Path, x.Status, err)
	}
	return nil
}

// Unseen returns the operations, each with a status that is no error, which no exchange has had so
// far.
func (c *Contract) Unseen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unseen []string
	for _, o := range c.operations {
		for _, status := range slices.Sorted(maps.Keys(o.responses)) {
			if status < http.StatusBadRequest && !c.seen[o.id][status] {
				unseen = append(unseen, fmt.Sprintf("%s %d", o.id, status))
			}
		}
	}
	return unseen
}

func (c *Contract) note(id string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[id] == nil {
		c.seen[id] = make(map[int]bool)
	}
	c.seen[id][status] = true
}

// find returns the operation of a request; one whose path has no parameters is preferred.
func (c *Contract) find(x *Exchange) *operation {
	var found *operation
	best := -1
	segments := strings.Split(x.Path, "/")
	for _, o := range c.operations {
		if x.ID != "" {
			if o.id == x.ID {
				return o
			}
			continue
		}
		if exact := o.matches(segments); o.method == x.Method && exact > best {
			found, best = o, exact
		}
	}
	return found
}

// matches returns how many segments of a path are those of the template, or -1 if it is another
// path.
func (o *operation) matches(segments []string) int {
	if len(segments) != len(o.segments) {
		return -1
	}
	exact := 0
	for i, segment := range o.segments {
		switch {
		case segment == segments[i]:
			exact++
		case !strings.HasPrefix(segment, "{") || segments[i] == "":
			return -1
		}
	}
	return exact
}

func (c *Contract) request(o *operation, x *Exchange) error {
	var faults []error
	known := make(map[string]bool)
	for _, p := range o.parameters {
		var values []string
		switch p.In {
		case "query":
			known[p.Name] = true
			values = x.Query[p.Name]
		case "header":
			values = x.Header.Values(p.Name)
		default: // of the path, which fits; a test that knows no path has none either
			continue
		}
		if len(values) == 0 || slices.Equal(values, []string{""}) { // an empty one is as good as none
			if p.Required {
				faults = append(faults, fmt.Errorf("parameter %s is missing", p.Name))
			}
			continue
		}
		if err := c.texts(p.Schema, values); err != nil {
			faults = append(faults, fmt.Errorf("parameter %s: %w", p.Name, err))
		}
	}
	for name := range x.Query {
		if !known[name] {
			faults = append(faults, fmt.Errorf("parameter %s is not described", name))
		}
	}
	if err := c.sent(o, x); err != nil {
		faults = append(faults, fmt.Errorf("body of the request: %w", err))
	}
	return errors.Join(faults...)
}

// texts holds the values of a parameter or a header against its schema.
func (c *Contract) texts(schema *jsonschema.Schema, values []string) error {
	if schema.Type == "array" {
		for _, value := range values {
			if err := c.texts(schema.Items, []string{value}); err != nil {
				return err
			}
		}
		return nil
	}
	var value any = values[0]
	if schema.Type == "integer" || schema.Type == "number" || schema.Type == "boolean" {
		if err := json.Unmarshal([]byte(values[0]), &value); err != nil {
			return fmt.Errorf("expected a %s, got %q", schema.Type, values[0])
		}
	}
	return c.valid(schema, value)
}

func (c *Contract) sent(o *operation, x *Exchange) error {
	text := bytes.TrimSpace(x.Body)
	if o.body == nil {
		if len(text) > 0 {
			return errors.New("there should be none")
		}
		return nil
	}
	if len(text) == 0 {
		if o.body.Required {
			return errors.New("it is missing")
		}
		return nil
	}
	if ndjson, ok := o.body.Content[ndjsonType]; ok {
		return c.lines(ndjson.Schema, text, true)
	}
	return c.json(o.body.Content[jsonType].Schema, text, true)
}

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
)

func (c *Contract) lines(schema *jsonschema.Schema, text []byte, sent bool) error {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := c.json(schema, line, sent); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

// json holds a JSON value against a schema. In what is sent, null means that a member is absent.
func (c *Contract) json(schema *jsonschema.Schema, text []byte, sent bool) error {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	if sent {
		withoutNull(value)
	}
	return c.valid(schema, value)
}

func withoutNull(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if member == nil {
				delete(value, name)
				continue
			}
			withoutNull(member)
		}
	case []any:
		for _, item := range value {
			withoutNull(item)
		}
	}
}

func (c *Contract) valid(schema *jsonschema.Schema, value any) error {
	resolved, err := c.resolve(schema)
	if err != nil {
		return err
	}
	return resolved.Validate(value)
}

func (c *Contract) resolve(schema *jsonschema.Schema) (*jsonschema.Resolved, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if resolved := c.resolved[schema]; resolved != nil {
		return resolved, nil
	}
	root := &jsonschema.Schema{
		Defs: make(map[string]*jsonschema.Schema), AllOf: []*jsonschema.Schema{schema.CloneSchemas()},
	}
	if err := c.define(root.Defs, schema); err != nil {
		return nil, err
	}
	resolved, err := root.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, err
	}
	c.resolved[schema] = resolved
	return resolved, nil
}

// define adds the named schemas to which a schema leads.
func (c *Contract) define(defined map[string]*jsonschema.Schema, schema *jsonschema.Schema) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	for {
		_, rest, ok := bytes.Cut(text, []byte(`"#/$defs/`))
		if !ok {
			return nil
		}
		name, _, _ := bytes.Cut(rest, []byte(`"`))
		text = rest
		if defined[string(name)] != nil {
			continue
		}
		named := c.schemas[string(name)]
		if named == nil {
			return fmt.Errorf("there is no schema %s", name)
		}
		defined[string(name)] = named.CloneSchemas()
		if err := c.define(defined, named); err != nil {
			return err
		}
	}
}

func (c *Contract) answer(o *operation, x *Exchange) error {
	r, ok := o.responses[x.Status]
	if !ok {
		return errors.New("the status is not described")
	}
	if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
		r = c.responses[name]
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		h := r.Headers[name]
		if shared, ok := strings.CutPrefix(h.Ref, "#/components/headers/"); ok {
			h = c.headers[shared]
		}
		values := x.AnswerHeader.Values(name)
		switch {
		case len(values) == 0 && h.Required:
			faults = append(faults, fmt.Errorf("header %s is missing", name))
		case len(values) > 0:
			if err := c.texts(h.Schema, values); err != nil {
				faults = append(faults, fmt.Errorf("header %s: %w", name, err))
			}
		}
	}
	if err := c.content(&r, x); err != nil {
		faults = append(faults, fmt.Errorf("body %.300q: %w", x.Answer, err))
	}
	return errors.Join(faults...)
}

func (c *Contract) content(r *response, x *Exchange) error {
	if len(r.Content) == 0 {
		if len(x.Answer) > 0 {
			return errors.New("there should be none")
		}
		return nil
	}
	name, _, err := mime.ParseMediaType(x.AnswerHeader.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type: %w", err)
	}
	told, ok := r.Content[name]
	switch {
	case !ok:
		return fmt.Errorf("content type %s is not described", name)
	case told.Schema == nil:
		return nil
	case name == ndjsonType:
		return c.lines(told.Schema, x.Answer, false)
	default:
		return c.json(told.Schema, x.Answer, false)
	}
}

// CheckAnswer reports how a JSON answer to a call differs from all answers and errors of JSON that
// the document has for it, those that are shared with other calls left out.
func (c *Contract) CheckAnswer(method, path string, answer []byte) error {
	o := c.find(&Exchange{Method: method, Path: path})
	if o == nil {
		return fmt.Errorf("openapitest: %s %s is not in the document", method, path)
	}
	var faults []error
	for _, status := range slices.Sorted(maps.Keys(o.responses)) {
		m, ok := o.responses[status].Content[jsonType]
		if !ok {
			m, ok = o.responses[status].Content[ndjsonType] // one line of it
		}
		if !ok {
			continue
		}
		err := c.json(m.Schema, answer, false)
		if err == nil {
			return nil
		}
		faults = append(faults, fmt.Errorf("%d: %w", status, err))
	}
	return errors.Join(faults...)
}

// CheckExamples holds the examples in the document against their schemas.
func (c *Contract) CheckExamples() error {
	var faults []error
	const sentBody = "the request"
	check := func(o *operation, what string, contents map[string]media) {
		for name, m := range contents {
			if len(m.Example) == 0 {
				continue
			}
			var err error
			var lines string
			switch {
			case m.Schema == nil:
			case name == ndjsonType:
				if err = json.Unmarshal(m.Example, &lines); err == nil {
					err = c.lines(m.Schema, []byte(lines), what == sentBody)
				}
			default:
				err = c.json(m.Schema, m.Example, false)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("openapitest: example of %s, %s: %w", o.id, what, err))
			}
		}
	}
	for _, o := range c.operations {
		if o.body != nil {
			check(o, sentBody, o.body.Content)
		}
		for status, r := range o.responses {
			check(o, strconv.Itoa(status), r.Content)
		}
	}
	return errors.Join(faults...)
}
