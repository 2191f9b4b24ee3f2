// Package openapi makes an OpenAPI 3.1 document from Go values, a page of it for people and a text
// for agents.
//
// Start at [Operation], which describes one call, [Document] and [Files]. The package knows OpenAPI
// and HTML, and nothing of git or of the server. The map, by file:
//
//	openapi        the description of an API
//	schema, tag    JSON schemas from Go types and the tags of their fields
//	document       the document
//	site           what is served: the document, the page, the text, each with its headers
//	page, outline  the page for people; schemas as lists of fields
//	agents         the text for agents
package openapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Info describes what all operations have in common.
type Info struct {
	Title       string
	Version     string // of the API's description
	Summary     string // one sentence
	Description string // Markdown of paragraphs, lists and `code`
	Programs    []Program
	Groups      []Group
	Scopes      []Scope
	// Error is a value of the type of every error that has no type of its own.
	Error any
	// Common are errors that each operation with a token may answer.
	Common []Error
	// Headers are those of every answer.
	Headers []Header
	// Shapes are schemas with a name, which tags and parameters may use.
	Shapes map[string]*jsonschema.Schema
	// Guard is a regular expression. A field of a request whose name matches it, and that is not
	// described, is refused; other fields are ignored.
	Guard string
}

// Program is a whole example, for the page.
type Program struct {
	Title string
	Code  string
}

// Group is a chapter of operations.
type Group struct {
	Name        string
	Description string
}

// Scope is a permission of a token.
type Scope struct {
	Name        string
	Description string
}

// Operation is one call: a method of a path.
type Operation struct {
	Method      string // upper case
	Path        string // a template: /api/repos/{n}/branches
	ID          string // unique; in lower camel case
	Group       string // the name of one of Info.Groups
	Summary     string // a verb and its object, no full stop
	Description string
	Scope       string // that the token must have; "" for a call without a token
	Denied      int    // the status when it has not
	// Twin is the ID of the operation that does the same at a newer path, "" without one. The page
	// shows both as one.
	Twin string

	Parameters []Parameter
	Body       *Body
	Answers    []Answer
	Errors     []Error // beside Info.Common; an error of the same status replaces a common one
	Error      any     // a value of the type of its errors; nil for Info.Error
}

// In is the place of a parameter.
type In string

// The places of parameters.
const (
	InPath   In = "path"
	InQuery  In = "query"
	InHeader In = "header"
)

// Parameter is a part of a path, a parameter of the query, or a header of the request.
type Parameter struct {
	Name string
	In   In
	// Type is a value of the parameter's type, a string, a number or a boolean; nil for a string.
	Type any
	// Schema has the words of a field's tag, such as "min=1,default=20".
	Schema      string
	Required    bool
	Repeated    bool   // may be given several times
	Older       string // an older name that is understood, too
	Description string
	Example     string
}

// Body is the body of a request.
type Body struct {
	Type any // a value of the type of a JSON body
	// Lines are values of the types of the lines of an NDJSON body, in place of Type.
	Lines       []any
	Optional    bool // it may be empty
	Description string
	Example     string
}

// MediaType is the content type of the body.
func (b *Body) MediaType() string {
	if len(b.Lines) > 0 {
		return linesType
	}
	return jsonType
}

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// Answer is an answer that is no error.
type Answer struct {
	Status      int
	Description string
	Type        any    // a value of the type of a JSON body; nil for another media type
	Media       string // such a media type; "" for none, if there is no body
	// Lines are values of the types of the lines of an NDJSON body, in place of Type and Media.
	Lines   []any
	Headers []Header
	Example string
	// Also are other content types of the body, of which a client asks for one.
	Also []Content
}

// MediaType is the content type of the body, "" without one.
func (a *Answer) MediaType() string {
	switch {
	case a.Type != nil:
		return jsonType
	case len(a.Lines) > 0:
		return linesType
	default:
		return a.Media
	}
}

// Content is a body of a media type other than JSON.
type Content struct {
	Media   string
	Example string
}

// Header is a header of an answer.
type Header struct {
	Name        string
	Type        any    // as of a parameter
	Schema      string // as of a parameter
	Description string
	Always      bool
}

// Error is an error of one status.
type Error struct {
	Status      int
	Description string // when it happens
	Type        any    // a value of the type of its body; nil for that of the operation
	Bare        bool   // it has no body of JSON
	Headers     []Header
	Example     string
}

// isCommon reports whether an error is one of Common, and not one of its status alone.
func (i *Info) isCommon(e Error) bool {
	return slices.ContainsFunc(i.Common, func(c Error) bool {
		return c.Status == e.Status && c.Description == e.Description
	})
}

// check finds mistakes in the description that the document would not show.
func (o *Operation) check(info *Info) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("openapi: %s %s: %s", o.Method, o.Path, fmt.Sprintf(format, args...))
	}
	switch {
	case o.ID == "" || o.Summary == "":
		return wrong("an id and a summary are required")
	case !slices.ContainsFunc(info.Groups, func(g Group) bool { return g.Name == o.Group }):
		return wrong("group %q is not known", o.Group)
	case o.Scope != "" && !slices.ContainsFunc(info.Scopes, func(s Scope) bool { return s.Name == o.Scope }):
		return wrong("scope %q is not known", o.Scope)
	case o.Scope != "" && o.Denied != http.StatusUnauthorized && o.Denied != http.StatusForbidden:
		return wrong("401 or 403 is expected without the scope, not %d", o.Denied)
	case len(o.Answers) == 0:
		return wrong("an answer is required")
	}
	named := make(map[string]bool)
	for _, p := range o.Parameters {
		if p.In == InPath {
			named[p.Name] = true
			if !strings.Contains(o.Path, "{"+p.Name+"}") || !p.Required || p.Older != "" {
				return wrong("parameter %s must be required, part of the path, and have one name", p.Name)
			}
		}
	}
	if count := strings.Count(o.Path, "{"); count != len(named) {
		return wrong("the path has %d parameters, of which %d are described", count, len(named))
	}
	statuses := make(map[int]bool)
	for _, a := range o.Answers {
		if statuses[a.Status] {
			return wrong("status %d is described twice", a.Status)
		}
		statuses[a.Status] = true
	}
	for _, e := range o.Errors {
		if statuses[e.Status] {
			return wrong("status %d is described twice", e.Status)
		}
		statuses[e.Status] = true
	}
	return nil
}

// errors are all errors of an operation, those of its own first.
func (o *Operation) errors(info *Info) []Error {
	told := append([]Error(nil), o.Errors...)
	if o.Scope == "" {
		return told
	}
	for _, common := range info.Common {
		if !slices.ContainsFunc(told, func(e Error) bool { return e.Status == common.Status }) &&
			!slices.ContainsFunc(o.Answers, func(a Answer) bool { return a.Status == common.Status }) {
			told = append(told, common)
		}
	}
	return told
}
