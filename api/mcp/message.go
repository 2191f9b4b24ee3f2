package mcp

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/exchange"
)

// Codes of errors: those of JSON-RPC 2.0, and two of the protocol.
const (
	codeSyntax   = -32700
	codeRequest  = -32600
	codeNoMethod = -32601
	codeParams   = -32602
	codeHeader   = -32020
	codeVersion  = -32022
)

// rpcError is an error as an answer.
type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

func invalid(format string, args ...any) *rpcError {
	return &rpcError{Code: codeParams, Message: fmt.Sprintf(format, args...)}
}

// message is a request or a notification.
type message struct {
	ID     jsontext.Value // a string or an integer; nil in a notification
	Method string
	Params jsontext.Value // an object, or nil
	Meta   meta           // of Params

	version string    // of the protocol; "" before it is agreed on
	call    *toolCall // see toolCall; nil: not read yet
}

// toolCall is the params of a call, or what is wrong with them.
type toolCall struct {
	name  string
	given arguments
	fault *rpcError
}

// meta is what a message says about its sender.
type meta struct {
	Version      string         `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities jsontext.Value `json:"io.modelcontextprotocol/clientCapabilities"`
}

const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"

	methodCall = "tools/call"

	idBytesMax = 256
)

func (m *message) isNotification() bool { return m.ID == nil }

// parse reads one message. It is strict where a mistake could stay hidden: a name that occurs
// twice, text behind the message, bytes that are not UTF-8. Several messages in an array, which the
// versions of the protocol that are served do not have, are refused.
func parse(body []byte) (*message, *rpcError) {
	if err := exchange.CheckShape(body); err != nil {
		return nil, &rpcError{Code: codeSyntax, Message: err.Error()}
	}
	var told struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Method  string         `json:"method"`
		Params  jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		if _, ok := errors.AsType[*json.SemanticError](err); ok {
			return nil, &rpcError{Code: codeRequest, Message: "expected one JSON object, a message of JSON-RPC: " + wrong(err)}
		}
		return nil, &rpcError{Code: codeSyntax, Message: wrong(err)}
	}
	m := &message{ID: told.ID, Method: told.Method, Params: told.Params}
	refused := func(text string) (*message, *rpcError) {
		return nil, &rpcError{Code: codeRequest, Message: text}
	}
	switch {
	case told.Version != "2.0":
		return refused(`jsonrpc: expected "2.0"`)
	case m.ID != nil && m.ID.Kind() != '"' && !isInteger(m.ID):
		return refused("id: expected a string or an integer")
	case len(m.ID) > idBytesMax:
		return refused(fmt.Sprintf("id: expected at most %d bytes", idBytesMax))
	case m.Method == "":
		return refused("method: expected a name; answers are not expected, since nothing was asked")
	case m.Params.Kind() == 'n':
		m.Params = nil
	case m.Params != nil && m.Params.Kind() != '{':
		return refused("params: expected an object")
	}
	var params struct {
		Meta meta `json:"_meta"`
	}
	if m.Params != nil {
		if err := json.Unmarshal(m.Params, &params); err != nil {
			return nil, invalid("_meta: %s", wrong(err))
		}
	}
	m.Meta = params.Meta
	return m, nil
}

func isInteger(v jsontext.Value) bool {
	_, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil
}

// wrong is the text of an error of a decoder, with the place.
func wrong(err error) string {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Sprintf("%.200q is given twice", e.JSONPointer)
		}
		return fmt.Sprintf("malformed JSON at byte %d: %v", e.ByteOffset, e.Err)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Sprintf("%.200q has another type than expected, or is not known", e.JSONPointer)
	}
	return "malformed JSON"
}

// askedVersion reads the params of initialize.
func (m *message) askedVersion() (string, *rpcError) {
	var params struct {
		Version string `json:"protocolVersion"`
	}
	if m.Params == nil {
		return "", invalid("protocolVersion is required")
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		return "", invalid("%s", wrong(err))
	}
	if params.Version == "" {
		return "", invalid("protocolVersion is required")
	}
	return params.Version, nil
}

func (m *message) hasCursor() bool {
	var params struct {
		Cursor jsontext.Value `json:"cursor"`
	}
	return m.Params != nil && json.Unmarshal(m.Params, &params) == nil && params.Cursor != nil &&
		params.Cursor.Kind() != 'n'
}

// toolCall returns the params of a call, which it reads once.
func (m *message) toolCall() *toolCall {
	if m.call == nil {
		m.call = m.readCall()
	}
	return m.call
}

func (m *message) readCall() *toolCall {
	var params struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	}
	if m.Params == nil {
		return &toolCall{fault: invalid("name is required")}
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		return &toolCall{fault: invalid("%s", wrong(err))}
	}
	if params.Name == "" {
		return &toolCall{fault: invalid("name is required")}
	}
	c := &toolCall{name: params.Name}
	if params.Arguments == nil || params.Arguments.Kind() == 'n' {
		return c
	}
	if err := json.Unmarshal(params.Arguments, &c.given); err != nil {
		return &toolCall{fault: invalid("arguments: expected an object")}
	}
	return c
}

// respond answers with a result, or with a fault in place of it.
func respond(x exchange.Exchange, status int, id jsontext.Value, result any, fault *rpcError) error {
	if id == nil {
		id = jsontext.Value("null")
	}
	told := struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Result  any            `json:"result,omitzero"`
		Error   *rpcError      `json:"error,omitzero"`
	}{Version: "2.0", ID: id, Result: result, Error: fault}
	body, err := json.Marshal(told, json.Deterministic(true))
	if err != nil {
		return err
	}
	x.SetHeader("Cache-Control", "no-store")
	x.Respond(status, "application/json", body)
	return nil
}
