package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Options change a document. The zero value is for the one that is served.
type Options struct {
	// Strict allows no field in an answer beside those described: for tests. Clients must ignore
	// fields that they do not know, so the document that is served allows them.
	Strict bool
}

// Document returns an OpenAPI 3.1 document in JSON. The same description always gives the same
// bytes. An error names what is wrong with the description.
func Document(info Info, operations []Operation, options Options) ([]byte, error) {
	d, err := describe(info, operations, options)
	if err != nil {
		return nil, err
	}
	return d.encode()
}

// document is an OpenAPI object: the names are those of the standard.
type document struct {
	OpenAPI           string              `json:"openapi"`
	Info              documentInfo        `json:"info"`
	JSONSchemaDialect string              `json:"jsonSchemaDialect"`
	Servers           []map[string]string `json:"servers"`
	Tags              []tag               `json:"tags"`
	Paths             ordered             `json:"paths"`
	Components        components          `json:"components"`

	told map[string]*operationObject // by their IDs
}

func (d *document) encode() ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return body.Bytes(), nil
}

type documentInfo struct {
	Title       string `json:"title"`
	Summary     string `json:"summary,omitempty"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type components struct {
	Schemas         map[string]*jsonschema.Schema `json:"schemas"`
	Responses       map[string]*response          `json:"responses,omitempty"`
	Headers         map[string]*headerObject      `json:"headers,omitempty"`
	SecuritySchemes map[string]map[string]string  `json:"securitySchemes"`
}

type operationObject struct {
	Tags        []string              `json:"tags"`
	Summary     string                `json:"summary"`
	Description string                `json:"description,omitempty"`
	OperationID string                `json:"operationId"`
	Parameters  []parameterObject     `json:"parameters,omitempty"`
	RequestBody *requestBody          `json:"requestBody,omitempty"`
	Responses   ordered               `json:"responses"`
	Security    []map[string][]string `json:"security"`
	// Denied is the status without the scope.
	Denied int `json:"x-status-without-scope,omitempty"`
}

type parameterObject struct {
	Name        string             `json:"name"`
	In          In                 `json:"in"`
	Description string             `json:"description,omitempty"`
	Required    bool               `json:"required,omitempty"`
	Deprecated  bool               `json:"deprecated,omitempty"`
	Explode     bool               `json:"explode,omitempty"`
	Schema      *jsonschema.Schema `json:"schema"`
	Example     any                `json:"example,omitempty"`
	// GoName keeps names apart that would be the same in Go, for generators that know it.
	GoName string `json:"x-go-name,omitempty"`
}

type requestBody struct {
	Description string               `json:"description,omitempty"`
	Required    bool                 `json:"required,omitempty"`
	Content     map[string]mediaType `json:"content"`
}

type mediaType struct {
	Schema  *jsonschema.Schema `json:"schema,omitempty"`
	Example any                `json:"example,omitempty"`
}

type response struct {
	Ref         string                   `json:"$ref,omitempty"`
	Description string                   `json:"description,omitempty"`
	Headers     map[string]*headerObject `json:"headers,omitempty"`
	Content     map[string]mediaType     `json:"content,omitempty"`
}

type headerObject struct {
	Ref         string             `json:"$ref,omitempty"`
	Description string             `json:"description,omitempty"`
	Required    bool               `json:"required,omitempty"`
	Schema      *jsonschema.Schema `json:"schema,omitempty"`
}

// ordered is a JSON object that keeps the order of its members.
type ordered []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (o ordered) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// security is the name of the token in the document.
const security = "token"

// writer makes a document.
type writer struct {
	info    *Info
	schemas *schemas
	common  map[string]*response // errors with a name
	headers map[string]*headerObject
}

func describe(info Info, operations []Operation, options Options) (*document, error) {
	w := &writer{
		info: &info, schemas: newSchemas(&info, options.Strict), common: make(map[string]*response),
		headers: make(map[string]*headerObject),
	}
	d := &document{
		OpenAPI: "3.1.0",
		Info: documentInfo{
			Title: info.Title, Summary: info.Summary, Description: info.Description, Version: info.Version,
		},
		JSONSchemaDialect: "https://json-schema.org/draft/2020-12/schema",
		Servers:           []map[string]string{{"url": "/"}},
		told:              make(map[string]*operationObject, len(operations)),
	}
	for _, group := range info.Groups {
		d.Tags = append(d.Tags, tag(group))
	}
	if err := w.headersOf(); err != nil {
		return nil, err
	}
	paths := make(map[string]int)
	for i := range operations {
		o := &operations[i]
		if err := o.check(&info); err != nil {
			return nil, err
		}
		told, err := w.operation(o)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Method, o.Path, err)
		}
		at, ok := paths[o.Path]
		if !ok {
			at = len(d.Paths)
			paths[o.Path] = at
			d.Paths = append(d.Paths, member{o.Path, ordered{}})
		}
		methods := d.Paths[at].value.(ordered)
		method := strings.ToLower(o.Method)
		if d.told[o.ID] != nil || slices.ContainsFunc(methods, func(m member) bool { return m.name == method }) {
			return nil, fmt.Errorf("openapi: %s %s (%s) is described twice", o.Method, o.Path, o.ID)
		}
		d.told[o.ID] = told
		d.Paths[at].value = append(methods, member{method, told})
	}
	d.Components = components{
		Schemas: w.schemas.named, Responses: w.common, Headers: w.headers,
		SecuritySchemes: map[string]map[string]string{security: {
			"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": scopesText(&info),
		}},
	}
	return d, nil
}

func scopesText(info *Info) string {
	var text strings.Builder
	text.WriteString("The scopes of a token, which each operation names:\n")
	for _, scope := range info.Scopes {
		fmt.Fprintf(&text, "\n- `%s`: %s", scope.Name, scope.Description)
	}
	return text.String()
}

func (w *writer) operation(o *Operation) (*operationObject, error) {
	told := &operationObject{
		Tags: []string{o.Group}, Summary: o.Summary, Description: o.Description, OperationID: o.ID,
		Security: []map[string][]string{},
	}
	if o.Scope != "" {
		told.Security, told.Denied = []map[string][]string{{security: {o.Scope}}}, o.Denied
	}
	for i := range o.Parameters {
		if err := w.parameter(told, &o.Parameters[i]); err != nil {
			return nil, err
		}
	}
	var err error
	if told.RequestBody, err = w.body(o.Body); err != nil {
		return nil, err
	}
	answers := make(map[int]*response)
	for i := range o.Answers {
		a := &o.Answers[i]
		if answers[a.Status], err = w.answer(o, a); err != nil {
			return nil, err
		}
	}
	for _, e := range o.errors(w.info) {
		if answers[e.Status], err = w.failure(o, e); err != nil {
			return nil, err
		}
	}
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		told.Responses = append(told.Responses, member{strconv.Itoa(status), answers[status]})
	}
	return told, nil
}

func (w *writer) parameter(to *operationObject, p *Parameter) error {
	told := parameterObject{Name: p.Name, In: p.In, Description: p.Description, Required: p.Required}
	var err error
	if told.Schema, err = w.value(p.Type, p.Schema); err != nil {
		return fmt.Errorf("parameter %s: %w", p.Name, err)
	}
	if p.Example != "" {
		if told.Example, err = literal(told.Schema, p.Example); err != nil {
			return fmt.Errorf("parameter %s: example: %w", p.Name, err)
		}
	}
	if p.Repeated {
		told.Schema, told.Explode, told.Example = &jsonschema.Schema{Type: "array", Items: told.Schema}, true, nil
	}
	if p.Older == "" {
		to.Parameters = append(to.Parameters, told)
		return nil
	}
	before := told
	before.Name, before.Deprecated, before.Required, before.Example = p.Older, true, false, nil
	before.Description = "Older name of `" + p.Name + "`."
	if strings.EqualFold(strings.ReplaceAll(p.Older, "_", ""), strings.ReplaceAll(p.Name, "_", "")) {
		before.GoName = strings.ToUpper(p.Older[:1]) + p.Older[1:] + "Older"
	}
	if p.Required { // in one of its names, which OpenAPI cannot say
		told.Required = false
		told.Description = "Required. " + told.Description
	}
	to.Parameters = append(to.Parameters, told, before)
	return nil
}

// value is the schema of a parameter or header.
func (w *writer) value(of any, tag string) (*jsonschema.Schema, error) {
	if of == nil {
		of = ""
	}
	schema, err := w.schemas.of(of, true)
	if err != nil {
		return nil, err
	}
	return schema, w.schemas.apply(tag, schema, nil, "")
}

func (w *writer) body(b *Body) (*requestBody, error) {
	if b == nil {
		return nil, nil
	}
	told := &requestBody{Description: b.Description, Required: !b.Optional}
	var media mediaType
	var err error
	if len(b.Lines) == 0 {
		media.Schema, err = w.schemas.of(b.Type, true)
	} else {
		media.Schema, err = w.lines(b.Lines, true)
	}
	if err != nil {
		return nil, err
	}
	if media.Example, err = example(b.MediaType(), b.Example); err != nil {
		return nil, fmt.Errorf("example of the body: %w", err)
	}
	told.Content = map[string]mediaType{b.MediaType(): media}
	return told, nil
}

// lines is the schema of each line of an NDJSON body.
func (w *writer) lines(lines []any, sent bool) (*jsonschema.Schema, error) {
	told := &jsonschema.Schema{Description: "One line of the body."}
	for _, line := range lines {
		schema, err := w.schemas.of(line, sent)
		if err != nil {
			return nil, err
		}
		told.OneOf = append(told.OneOf, schema)
	}
	return told, nil
}

// example is JSON as it is, and any other text as a string.
func example(media, text string) (any, error) {
	switch {
	case text == "":
		return nil, nil
	case media != jsonType:
		return text, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil, err
	}
	return json.RawMessage(compact.Bytes()), nil
}

func (w *writer) answer(o *Operation, a *Answer) (*response, error) {
	media := mediaType{}
	name := a.MediaType()
	var err error
	if a.Type != nil {
		media.Schema, err = w.schemas.of(a.Type, false)
	} else if len(a.Lines) > 0 {
		media.Schema, err = w.lines(a.Lines, false)
	}
	if err != nil {
		return nil, err
	}
	if media.Example, err = example(name, a.Example); err != nil {
		return nil, fmt.Errorf("example of %d: %w", a.Status, err)
	}
	told := &response{Description: a.Description}
	if told.Headers, err = w.headersIn(a.Headers); err != nil {
		return nil, err
	}
	if name != "" && o.Method != http.MethodHead {
		told.Content = map[string]mediaType{name: media}
		for _, also := range a.Also {
			another := mediaType{}
			if also.Example != "" {
				another.Example = also.Example
			}
			told.Content[also.Media] = another
		}
	}
	return told, nil
}

// failure is the response of an error. Common ones are made once, and shared.
func (w *writer) failure(o *Operation, e Error) (*response, error) {
	if e.Type != nil || o.Error != nil || o.Method == http.MethodHead || !w.info.isCommon(e) {
		return w.ownFailure(o, e)
	}
	name := strings.ReplaceAll(http.StatusText(e.Status), " ", "")
	if w.common[name] == nil {
		told, err := w.ownFailure(o, e)
		if err != nil {
			return nil, err
		}
		w.common[name] = told
	}
	return &response{Ref: "#/components/responses/" + name}, nil
}

func (w *writer) ownFailure(o *Operation, e Error) (*response, error) {
	typed := e.Type
	if typed == nil {
		typed = o.Error
	}
	if typed == nil {
		typed = w.info.Error
	}
	told := &response{Description: e.Description}
	var err error
	if told.Headers, err = w.headersIn(e.Headers); err != nil {
		return nil, err
	}
	if !e.Bare && o.Method != http.MethodHead {
		var media mediaType
		if media.Schema, err = w.schemas.of(typed, false); err != nil {
			return nil, err
		}
		if media.Example, err = example(jsonType, e.Example); err != nil {
			return nil, fmt.Errorf("example of %d: %w", e.Status, err)
		}
		told.Content = map[string]mediaType{jsonType: media}
	}
	return told, nil
}

// headersOf describes the headers of every answer.
func (w *writer) headersOf() error {
	told, err := w.describeHeaders(w.info.Headers)
	w.headers = told
	return err
}

// headersIn are the headers of one answer, with those of every answer.
func (w *writer) headersIn(headers []Header) (map[string]*headerObject, error) {
	told, err := w.describeHeaders(headers)
	for name := range w.headers {
		told[name] = &headerObject{Ref: "#/components/headers/" + name}
	}
	return told, err
}

func (w *writer) describeHeaders(headers []Header) (map[string]*headerObject, error) {
	told := make(map[string]*headerObject)
	for _, h := range headers {
		schema, err := w.value(h.Type, h.Schema)
		if err != nil {
			return told, fmt.Errorf("header %s: %w", h.Name, err)
		}
		told[h.Name] = &headerObject{Description: h.Description, Required: h.Always, Schema: schema}
	}
	return told, nil
}
