package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/exchange"
)

// answerMax bounds what a tool returns, in bytes of the API's answer. A client that speaks for a
// model has no use for more.
const answerMax = 1 << 20

// toolResult is the answer to a call of a tool.
type toolResult struct {
	complete
	Content    []content      `json:"content"`
	Structured jsontext.Value `json:"structuredContent,omitzero"`
	IsError    bool           `json:"isError,omitzero"`
}

// content is a part of a result.
type content struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitzero"`
	Resource *resource `json:"resource,omitzero"`
}

// resource is a file within a result.
type resource struct {
	URI       string  `json:"uri"`
	MediaType string  `json:"mimeType"`
	Text      *string `json:"text,omitzero"`
	Blob      *string `json:"blob,omitzero"` // in base64
}

func textContent(format string, args ...any) content {
	s := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	return content{Type: "text", Text: &s}
}

// run runs a tool. Its error means that the request has ended.
func (d *Door) run(x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	err := given.check(t.fields, "")
	var r *toolResult
	switch {
	case err != nil:
	case t.run != nil:
		r, err = t.run(d, x, t, given)
	default:
		r, err = d.runJSON(x, t, given)
	}
	if wrong, ok := errors.AsType[*argumentError](err); ok {
		return refusal(wrong.answer()), nil
	}
	return r, err
}

// runJSON runs a tool whose arguments are those of one call.
func (d *Door) runJSON(x exchange.Exchange, t *tool, given arguments) (*toolResult, error) {
	call := Call{Method: t.method, Path: t.path, Header: given.headers(t.fields), AnswerMax: answerMax}
	if t.method == http.MethodGet {
		call.Query = given.query(t.fields)
	} else {
		body, err := encode(given.body(t.fields))
		if err != nil {
			return nil, err
		}
		call.Body, call.Header["Content-Type"] = body, "application/json"
	}
	return d.callJSON(x, t, call)
}

// callJSON makes a call, and returns its answer as it is.
func (d *Door) callJSON(x exchange.Exchange, t *tool, call Call) (*toolResult, error) {
	answer, err := d.caller.Call(x, call)
	if err != nil {
		return nil, err
	}
	if answer.Status >= http.StatusBadRequest {
		return refusal(answer), nil
	}
	body := strings.TrimSpace(string(whole(answer.Body, answer.Truncated)))
	if answer.Truncated {
		hint := t.less
		if hint == "" {
			hint = "less"
		}
		return &toolResult{Content: []content{
			textContent("%s", body), textContent("The answer was cut here, after %d bytes. Ask for %s.", len(body), hint),
		}}, nil
	}
	return &toolResult{Content: []content{textContent("%s", body)}, Structured: object(body)}, nil
}

// object returns JSON as a structured result, which is an object, or nothing.
func object(body string) jsontext.Value {
	if value := jsontext.Value(body); value.Kind() == '{' && value.IsValid() {
		return value
	}
	return nil
}

// refusal is the result of a call that the API has refused.
func refusal(a *Answer) *toolResult {
	body := strings.TrimSpace(string(whole(a.Body, a.Truncated)))
	r := &toolResult{IsError: true, Content: []content{textContent("%s", refusalText(a, body))}}
	if !a.Truncated {
		r.Structured = object(body)
	}
	return r
}

func refusalText(a *Answer, body string) string {
	said := fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))
	if body != "" {
		said += ": " + body
	}
	if after := a.Header.Get("Retry-After"); after != "" {
		said += " (try again after " + after + " seconds)"
	}
	return said
}

// whole returns bytes without a character at their end of which a part was cut off.
func whole(b []byte, cut bool) []byte {
	if cut {
		b = b[:len(b)-exchange.Unfinished(b)]
	}
	return b
}

// newResource is the content of a file: as text if it is UTF-8, without NUL.
func newResource(path, ref string, body []byte) *resource {
	u := url.URL{Scheme: "packhorse", Path: "/" + strings.TrimLeft(path, "/")}
	if ref != "" {
		u.RawQuery = url.Values{"ref": {ref}}.Encode()
	}
	r := &resource{URI: u.String()}
	if isText(body) {
		s := string(body)
		r.MediaType, r.Text = "text/plain", &s
		return r
	}
	s := base64.StdEncoding.EncodeToString(body)
	r.MediaType, r.Blob = "application/octet-stream", &s
	return r
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }
