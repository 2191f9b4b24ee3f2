package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page's parts
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// pageData is what the page shows.
type pageData struct {
	Title, Version, Summary  string
	DocumentPath, AgentsPath string
	Intro                    template.HTML
	Programs                 []Program
	Groups                   []pageGroup
	Scopes, Shapes           []pageField
	Common                   []pageError
	Style                    template.CSS
	Script                   template.JS
}

type pageGroup struct {
	Name, Anchor string
	Text         template.HTML
	Calls        []*pageCall
}

type pageCall struct {
	ID, Method, Path, Summary string
	Text                      template.HTML
	Scope                     string
	Denied                    int
	Twins                     []pageTwin
	Parameters                []pageField
	Body                      *pageBody
	Answers                   []pageAnswer
	Errors                    []pageError
	Also                      []int // statuses of common errors
	Curl                      string
}

// pageTwin is another path of a call.
type pageTwin struct {
	Method, Path string
	Denied       int
}

type pageField struct {
	Depth int // 0 to depthShown
	Name  string
	Place string // of a parameter
	Type  string
	Mark  string // required, or that it may be missing
	Older bool
	Text  template.HTML
}

// Marks of fields and parameters.
const (
	markRequired = "required"
	markOptional = "optional"
)

type pageBody struct {
	Media, Example string
	Optional       bool
	Text           template.HTML
	Parts          []pagePart
}

// pagePart is a JSON object of a body: the body, or one of its lines.
type pagePart struct {
	Name   string
	Fields []pageField
}

type pageAnswer struct {
	Status  int
	Media   string
	Text    template.HTML
	Headers []pageField
	Parts   []pagePart
	Example string
	Also    []Content
}

type pageError struct {
	Status int
	Text   template.HTML
	Fields []pageField
}

// depthShown is how far fields are indented.
const depthShown = 6

// pageOf renders the page of a document, and returns its policy for content: nothing but its own
// style and script.
func pageOf(info *Info, operations []Operation, d *document) (page []byte, policy string, err error) {
	p := &painter{info: info, document: d, calls: make(map[string]*pageCall)}
	data := &pageData{
		Title: info.Title, Version: info.Version, Summary: info.Summary, Intro: marked(info.Description),
		Programs: info.Programs, DocumentPath: DocumentPath, AgentsPath: AgentsPath, Style: template.CSS(pageStyle),
		Script: template.JS(pageScript),
	}
	for _, scope := range info.Scopes {
		data.Scopes = append(data.Scopes, pageField{Name: scope.Name, Text: marked(scope.Description)})
	}
	for _, name := range slices.Sorted(maps.Keys(info.Shapes)) {
		shape := info.Shapes[name]
		kind := shape.Type
		if shape.Format != "" {
			kind += ", " + shape.Format
		}
		data.Shapes = append(data.Shapes, pageField{Name: name, Type: kind, Text: marked(fieldText(shape))})
	}
	for _, e := range info.Common {
		data.Common = append(data.Common, pageError{Status: e.Status, Text: marked(e.Description)})
	}
	for _, group := range info.Groups {
		told := pageGroup{Name: group.Name, Anchor: anchor(group.Name), Text: marked(group.Description)}
		for i := range operations {
			if o := &operations[i]; o.Group == group.Name && o.Twin == "" {
				told.Calls = append(told.Calls, p.call(o))
			}
		}
		if len(told.Calls) > 0 {
			data.Groups = append(data.Groups, told)
		}
	}
	for i := range operations {
		if o := &operations[i]; o.Twin != "" {
			call := p.calls[o.Twin]
			if call == nil {
				return nil, "", fmt.Errorf("openapi: %s is said to do the same as %s, which is not described", o.ID, o.Twin)
			}
			call.Twins = append(call.Twins, pageTwin{o.Method, o.Path, o.Denied})
		}
	}
	parsed, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, "", fmt.Errorf("openapi: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, "", fmt.Errorf("openapi: %w", err)
	}
	policy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'", hashOf(pageStyle), hashOf(pageScript))
	return out.Bytes(), policy, nil
}

// hashOf names a text in a policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// anchor is the name of a group's place on the page; no call has a hyphen in its ID.
func anchor(name string) string {
	return "group-" + strings.ToLower(strings.ReplaceAll(name, " ", "-"))
}

// painter turns operations into what the page shows of them.
type painter struct {
	info     *Info
	document *document
	calls    map[string]*pageCall
}

func (p *painter) call(o *Operation) *pageCall {
	call := &pageCall{
		ID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Text: marked(o.Description), Scope: o.Scope,
		Denied: o.Denied, Curl: curl(o),
	}
	p.calls[o.ID] = call
	told := p.document.told[o.ID]
	for i := range told.Parameters {
		parameter := &told.Parameters[i]
		call.Parameters = append(call.Parameters, pageField{
			Name: parameter.Name, Place: string(parameter.In), Type: typeText(p.document.Components.Schemas, parameter.Schema),
			Mark: markIf(requiredByName(o, parameter.Name), markRequired), Older: parameter.Deprecated,
			Text: marked(join(strings.TrimPrefix(parameter.Description, "Required. "),
				fieldText(parameter.Schema))),
		})
	}
	if told.RequestBody != nil {
		call.Body = p.body(o.Body, told.RequestBody)
	}
	for i := range o.Answers {
		a := &o.Answers[i]
		response := p.response(told, a.Status)
		answer := pageAnswer{Status: a.Status, Text: marked(a.Description), Example: a.Example}
		answer.Media = a.MediaType()
		switch content := response.Content[answer.Media]; {
		case len(a.Lines) > 0 && content.Schema != nil:
			answer.Parts = p.parts(content.Schema, false)
		case content.Schema != nil:
			answer.Parts = []pagePart{{Fields: p.fields(content.Schema, false)}}
		}
		answer.Also = a.Also
		for _, h := range a.Headers {
			answer.Headers = append(answer.Headers, pageField{
				Name: h.Name, Mark: markIf(!h.Always, markOptional), Text: marked(h.Description),
			})
		}
		call.Answers = append(call.Answers, answer)
	}
	for _, e := range o.errors(p.info) {
		if p.info.isCommon(e) {
			call.Also = append(call.Also, e.Status)
			continue
		}
		shown := pageError{Status: e.Status, Text: marked(e.Description)}
		if content, ok := p.response(told, e.Status).Content[jsonType]; ok && (e.Type != nil || o.Error != nil) {
			shown.Fields = p.fields(content.Schema, false)
		}
		call.Errors = append(call.Errors, shown)
	}
	return call
}

func (p *painter) response(of *operationObject, status int) *response {
	for _, m := range of.Responses {
		if told, ok := m.value.(*response); ok && m.name == fmt.Sprint(status) {
			return told
		}
	}
	return &response{}
}

func (p *painter) body(b *Body, told *requestBody) *pageBody {
	shown := &pageBody{
		Media: b.MediaType(), Optional: b.Optional, Text: marked(b.Description), Example: b.Example,
	}
	schema := told.Content[b.MediaType()].Schema
	if len(b.Lines) == 0 {
		shown.Parts = []pagePart{{Fields: p.fields(schema, true)}}
		return shown
	}
	shown.Parts = p.parts(schema, true)
	return shown
}

// parts are the lines of an NDJSON body, by their schemas.
func (p *painter) parts(schema *jsonschema.Schema, sent bool) []pagePart {
	var parts []pagePart
	for i, one := range schema.OneOf {
		name := "Each further line"
		switch {
		case i == 0:
			name = "The first line"
		case len(schema.OneOf) > 2 && i == len(schema.OneOf)-1:
			name = "The last line"
		case len(schema.OneOf) > 2:
			name = "A line between"
		}
		parts = append(parts, pagePart{Name: name, Fields: p.fields(one, sent)})
	}
	return parts
}

// fields are the fields of a schema. Those that a client must send are marked, and those that an
// answer may not have.
func (p *painter) fields(schema *jsonschema.Schema, sent bool) []pageField {
	var fields []pageField
	for _, l := range outline(p.document.Components.Schemas, schema) {
		mark := markIf(l.Required, markRequired)
		if !sent {
			mark = markIf(!l.Required, markOptional)
		}
		fields = append(fields, pageField{
			Depth: min(l.Depth, depthShown), Name: l.Name, Type: l.Type, Mark: mark, Older: l.Older, Text: marked(l.Text),
		})
	}
	return fields
}

func markIf(is bool, mark string) string {
	if is {
		return mark
	}
	return ""
}

func requiredByName(o *Operation, name string) bool {
	return slices.ContainsFunc(o.Parameters, func(p Parameter) bool { return p.Name == name && p.Required })
}

// join puts texts behind each other as sentences.
func join(texts ...string) string {
	var told []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if !strings.HasSuffix(text, ".") {
			text += "."
		}
		told = append(told, strings.ToUpper(text[:1])+text[1:])
	}
	return strings.Join(told, " ")
}

// marked turns paragraphs, lists and `code` into HTML, and escapes everything else.
func marked(text string) template.HTML {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		switch {
		case block == "":
		case strings.HasPrefix(block, "- "):
			out.WriteString("<ul>")
			for item := range strings.SplitSeq("\n"+block, "\n- ") {
				if item != "" {
					out.WriteString("<li>" + inline(item) + "</li>")
				}
			}
			out.WriteString("</ul>")
		default:
			out.WriteString("<p>" + inline(block) + "</p>")
		}
	}
	return template.HTML(out.String())
}

func inline(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			out.WriteString("<code>" + html.EscapeString(part) + "</code>")
			continue
		}
		out.WriteString(html.EscapeString(part))
	}
	return out.String()
}

// curl is an example of a call in a shell.
func curl(o *Operation) string {
	var out strings.Builder
	out.WriteString("curl -sS")
	switch o.Method {
	case http.MethodGet:
	case http.MethodHead:
		out.WriteString(" -I")
	default:
		out.WriteString(" -X " + o.Method)
	}
	if o.Scope != "" {
		out.WriteString(` -H "Authorization: Bearer $TOKEN"`)
	}
	path := o.Path
	var query []string
	for _, p := range o.Parameters {
		escaped := strings.ReplaceAll(url.QueryEscape(p.Example), "+", "%20")
		switch {
		case p.In == InPath:
			path = strings.ReplaceAll(path, "{"+p.Name+"}", escaped)
		case p.In == InQuery && p.Required:
			query = append(query, p.Name+"="+escaped)
		}
	}
	target := "$PACKHORSE" + path
	if len(query) > 0 {
		target += "?" + strings.Join(query, "&")
	}
	if o.Body == nil || o.Body.Example == "" {
		fmt.Fprintf(&out, " \\\n  %q", target)
		return out.String()
	}
	if len(o.Body.Lines) > 0 {
		fmt.Fprintf(&out, " \\\n  -H 'Content-Type: %s' --data-binary @- \\\n  %q <<'END'\n%sEND", o.Body.MediaType(), target,
			o.Body.Example)
		return out.String()
	}
	fmt.Fprintf(&out, " \\\n  %q \\\n  -d '%s'", target, strings.ReplaceAll(o.Body.Example, "'", `'\''`))
	return out.String()
}
