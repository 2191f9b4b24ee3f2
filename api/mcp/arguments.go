package mcp

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/code"
	"packhorse/api/problem"
)

// arguments are those of one call, by name.
type arguments map[string]jsontext.Value

// kind is the type of an argument.
type kind uint8

const (
	text    kind = iota
	flag         // a boolean
	count        // an integer
	texts        // an array of strings
	person       // an object with name and email
	objects      // an array of objects with the fields of
)

// field is an argument that a tool takes.
type field struct {
	name     string
	kind     kind
	about    string
	required bool
	oneOf    []string // the values it may have, if only these
	of       []field
	// to is the name that the API has for it, name by default. In a body it is a path with dots; an
	// argument with a prefix "header:" becomes a header.
	to string
	// own says that the tool reads the argument itself.
	own bool
}

func (f *field) target() string {
	if f.to == "" {
		return f.name
	}
	return f.to
}

// argumentError says what is wrong with the arguments of a call. The model that made them gets it.
type argumentError struct{ message string }

func (e *argumentError) Error() string { return e.message }

// answer is what the API would say about the arguments.
func (e *argumentError) answer() *Answer {
	p := problem.Problem{Status: http.StatusBadRequest, Code: code.InvalidRequest, Message: e.message}
	return &Answer{Status: p.Status, Body: p.JSON()}
}

func wrongArgument(format string, args ...any) error {
	return &argumentError{fmt.Sprintf(format, args...)}
}

// check refuses arguments that the fields do not have, so that none is ignored, least of all a
// guard; and a missing one. An argument that is null counts as left out. within is the place of an
// inner object, "" for the arguments themselves.
func (a arguments) check(fields []field, within string) error {
	known := make([]string, len(fields))
	for i := range fields {
		known[i] = fields[i].name
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(known, name) {
			return wrongArgument("argument %.100q is not known here; there are %s", within+name, strings.Join(known, ", "))
		}
	}
	a.dropNulls()
	for i := range fields {
		f := &fields[i]
		value, given := a[f.name]
		if !given {
			if f.required {
				return wrongArgument("argument %q is required: %s", within+f.name, f.about)
			}
			continue
		}
		if err := f.check(value); err != nil {
			return wrongArgument("argument %q: %v", within+f.name, err)
		}
	}
	return nil
}

// dropNulls removes the arguments that count as left out.
func (a arguments) dropNulls() {
	maps.DeleteFunc(a, func(_ string, value jsontext.Value) bool { return value.Kind() == 'n' })
}

// itemsMax bounds the items of an array, which take many times the memory of their text.
const itemsMax = 1000

// checkItems refuses an array of more than [itemsMax] items.
func checkItems(value jsontext.Value) error {
	if value.Kind() != '[' {
		return nil // the decoder refuses it
	}
	d := jsontext.NewDecoder(bytes.NewReader(value))
	_, _ = d.ReadToken() // the value is valid JSON
	for items := 0; d.PeekKind() != ']'; items++ {
		if items == itemsMax {
			return fmt.Errorf("expected at most %d items", itemsMax)
		}
		if err := d.SkipValue(); err != nil {
			return err
		}
	}
	return nil
}

// check checks the type of a value.
func (f *field) check(value jsontext.Value) error {
	if f.kind == texts || f.kind == objects {
		if err := checkItems(value); err != nil {
			return err
		}
	}
	var err error
	var expected string
	switch f.kind {
	case text:
		var s string
		expected, err = "a string", json.Unmarshal(value, &s)
		if err == nil && f.oneOf != nil && !slices.Contains(f.oneOf, s) {
			return fmt.Errorf("expected one of %s, got %.40q", strings.Join(f.oneOf, ", "), s)
		}
	case flag:
		var b bool
		expected, err = "true or false", json.Unmarshal(value, &b)
	case count:
		var n int64
		expected, err = "an integer", json.Unmarshal(value, &n)
	case texts:
		var s []string
		expected, err = "an array of strings", json.Unmarshal(value, &s)
	case person:
		var p struct {
			Name  string `json:"name"`
			Email string `json:"email"`
		}
		expected = `an object {"name": "...", "email": "..."}`
		err = json.Unmarshal(value, &p, json.RejectUnknownMembers(true))
	case objects:
		var all []arguments
		if expected, err = "an array of objects", json.Unmarshal(value, &all); err != nil {
			break
		}
		for i, one := range all {
			if err := one.check(f.of, fmt.Sprintf("[%d].", i)); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return fmt.Errorf("expected %s", expected)
	}
	return nil
}

// text returns an argument that [arguments.check] has passed, "" without one.
func (a arguments) text(name string) (s string) {
	if value, ok := a[name]; ok {
		_ = json.Unmarshal(value, &s) // it has been checked
	}
	return s
}

// count returns an argument that [arguments.check] has passed.
func (a arguments) count(name string) (n int64, given bool) {
	value, given := a[name]
	if given {
		_ = json.Unmarshal(value, &n) // it has been checked
	}
	return n, given
}

// texts returns an argument that [arguments.check] has passed.
func (a arguments) texts(name string) (all []string) {
	if value, ok := a[name]; ok {
		_ = json.Unmarshal(value, &all) // it has been checked
	}
	return all
}

const headerPrefix = "header:"

// headers returns the arguments that become headers.
func (a arguments) headers(fields []field) map[string]string {
	headers := make(map[string]string)
	for i := range fields {
		if name, ok := strings.CutPrefix(fields[i].to, headerPrefix); ok && a[fields[i].name] != nil {
			headers[name] = a.text(fields[i].name)
		}
	}
	return headers
}

// query returns the arguments as a query.
func (a arguments) query(fields []field) url.Values {
	values := make(url.Values)
	for i := range fields {
		f := &fields[i]
		value, given := a[f.name]
		if !given || f.own {
			continue
		}
		switch f.kind {
		case texts:
			values[f.target()] = a.texts(f.name)
		case text:
			values.Set(f.target(), a.text(f.name))
		case count:
			n, _ := a.count(f.name)
			values.Set(f.target(), strconv.FormatInt(n, 10))
		default:
			values.Set(f.target(), string(bytes.TrimSpace(value)))
		}
	}
	return values
}

// body returns the arguments as a JSON object.
func (a arguments) body(fields []field) map[string]any {
	body := make(map[string]any)
	for i := range fields {
		f := &fields[i]
		value, given := a[f.name]
		if !given || f.own || strings.HasPrefix(f.to, headerPrefix) {
			continue
		}
		object, path := body, strings.Split(f.target(), ".")
		for _, name := range path[:len(path)-1] {
			inner, ok := object[name].(map[string]any)
			if !ok {
				inner = make(map[string]any)
				object[name] = inner
			}
			object = inner
		}
		object[path[len(path)-1]] = value
	}
	return body
}

// encode is JSON of the same bytes for the same value, as an idempotency key demands.
func encode(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }

// schema is the JSON Schema of a value.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	// Additional is false for objects: other members are refused.
	Additional *bool `json:"additionalProperties,omitempty"`
}

func objectSchema(fields []field) *schema {
	s := &schema{Type: "object", Properties: make(map[string]*schema), Additional: new(bool)}
	for i := range fields {
		f := &fields[i]
		s.Properties[f.name] = f.schema()
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (f *field) schema() *schema {
	var s *schema
	switch f.kind {
	case flag:
		s = &schema{Type: "boolean"}
	case count:
		s = &schema{Type: "integer"}
	case texts:
		s = &schema{Type: "array", Items: &schema{Type: "string"}}
	case person:
		s = objectSchema(personFields)
	case objects:
		s = &schema{Type: "array", Items: objectSchema(f.of)}
	default:
		s = &schema{Type: "string", Enum: f.oneOf}
	}
	s.Description = f.about
	return s
}

var personFields = []field{{name: "name", required: true}, {name: "email", required: true}}
