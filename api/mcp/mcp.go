// Package mcp is the door for programs that speak the Model Context Protocol: docs/api.md, "MCP".
//
// Start at [New]. A tool names a call of the API, and a [Caller] runs that call with the checks of
// its route. The door only translates: arguments to a request, an answer to content. Every message
// is one POST with one answer in JSON, and nothing is kept between two of them, so that any server
// may answer any message. The map, by file:
//
//	mcp        the door, the transport over HTTP, and versions of the protocol
//	message    messages of JSON-RPC
//	tools      the table of tools
//	arguments  arguments of tools: their schemas, and requests made of them
//	commit     the tools whose request is a stream of lines
//	result     answers as content
//	files      the tools that read files
//
// The official SDK is the client of the tests. The door does not use it: it handles messages in
// goroutines of its own, in which a panic about one message would end the process
// (docs/invariants.md 52), it runs all calls of a batch at once, and it takes the last of several
// members of one name.
package mcp

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
)

// Caller runs calls of the API.
type Caller interface {
	// Offers reports whether a token may make a call at all: whether the server has its route, and the
	// token its scope and, where one is needed, a repository.
	Offers(grant *auth.Grant, method, path string) bool
	// Call runs a call within the request of x and returns its answer, also when it is a refusal. It
	// fails only if x has ended, with the cause.
	Call(x exchange.Exchange, call Call) (*Answer, error)
}

// Call is a request to the API.
type Call struct {
	Method, Path string
	Query        url.Values
	Header       map[string]string // by canonical names
	Body         []byte
	AnswerMax    int // in bytes; the rest of the answer's body is not made
}

// Answer is the answer of the API.
type Answer struct {
	Status    int
	Header    http.Header
	Body      []byte
	Size      int64 // of the whole body, -1 if it is not known
	Truncated bool  // Body is a beginning
}

// Door answers clients. Its methods may be called concurrently.
type Door struct {
	caller  Caller
	bodyMax int64
	server  implementation
}

// New returns a door to the calls of caller. bodyMax bounds a message in bytes. version is that of
// the server, for clients to show.
func New(caller Caller, bodyMax int64, version string) *Door {
	return &Door{
		caller: caller, bodyMax: bodyMax,
		server: implementation{Name: "packhorse", Title: "Packhorse git host", Version: version},
	}
}

// implementation names a program.
type implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

const instructions = "These tools read and write one git repository, which the token names, without a clone. " +
	"A ref is a branch, a tag or a commit id. To change files, read them, then call commit with the new contents and with " +
	"expected_target_sha, the tip that you have read, so that no other change is lost."

// Versions of the protocol, the newest first. From stateless on a message says all that is needed
// to answer it; before, a client initializes first.
const (
	stateless = "2026-07-28"
	stateful  = "2025-11-25"
	oldest    = "2025-06-18"
)

var versions = []string{stateless, stateful, oldest}

// Serve answers a POST with one message.
func (d *Door) Serve(x exchange.Exchange, grant *auth.Grant) error {
	if err := checkOrigin(x.Header("Origin"), x.Header("Host")); err != nil {
		return err
	}
	if !exchange.IsMediaType(x.Header("Content-Type"), "application/json") {
		return &exchange.Error{
			Status: http.StatusUnsupportedMediaType, Code: code.UnsupportedMediaType,
			Message: "Content-Type: expected application/json",
		}
	}
	body, err := exchange.ReadBody(x, d.bodyMax)
	if err != nil {
		return err
	}
	m, fault := parse(body)
	if fault != nil {
		return respond(x, http.StatusBadRequest, nil, nil, fault)
	}
	if status, fault := checkVersion(x, m); fault != nil {
		return respond(x, status, m.ID, nil, fault)
	}
	if m.isNotification() { // nothing depends on one: a client that cancels a call closes its connection
		x.Respond(http.StatusAccepted, "", nil)
		return nil
	}
	result, fault, err := d.handle(x, grant, m)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if fault != nil && fault.Code == codeNoMethod && m.version >= stateless {
		status = http.StatusNotFound
	}
	return respond(x, status, m.ID, result, fault)
}

// checkOrigin refuses a request that a browser sends for a page of another host. A request without
// an origin is from no browser.
func checkOrigin(origin, host string) error {
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err == nil && u.Host != "" {
		port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
		if port != "" && strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port)) {
			return nil
		}
	}
	return &exchange.Error{
		Status:  http.StatusForbidden,
		Code:    code.OriginDenied,
		Message: fmt.Sprintf("Origin: %.100q is not the host that the request is for", origin),
	}
}

// checkVersion finds the version of the protocol that a message is in, and checks what that version
// asks of headers.
func checkVersion(x exchange.Request, m *message) (status int, fault *rpcError) {
	const header = "Mcp-Protocol-Version"
	told, inside := x.Header(header), m.Meta.Version
	if told == "" && inside == "" {
		return 0, nil // a message of a client that initializes, or has just done so
	}
	mismatch := func(format string, args ...any) (int, *rpcError) {
		return http.StatusBadRequest, &rpcError{Code: codeHeader, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case told == "":
		return mismatch("the header %s is missing", header)
	case inside != "" && inside != told:
		return mismatch("the header %s is %.40q, and %s in the message %.40q", header, told, metaVersion, inside)
	case !slices.Contains(versions, told):
		return http.StatusBadRequest, &rpcError{
			Code: codeVersion, Message: fmt.Sprintf("the protocol version %.40q is not supported", told),
			Data: map[string]any{"supported": versions, "requested": strings.ToValidUTF8(told[:min(len(told), 40)], "\uFFFD")},
		}
	}
	m.version = told
	if told < stateless || m.isNotification() {
		return 0, nil
	}
	switch {
	case inside == "":
		return http.StatusBadRequest, invalid("_meta: %q is missing", metaVersion)
	case m.Meta.Capabilities.Kind() != '{':
		return http.StatusBadRequest, invalid("_meta: %q is missing, or not an object", metaCapabilities)
	case x.Header("Mcp-Method") != m.Method:
		return mismatch("the header Mcp-Method is %.40q, and the method %.40q", x.Header("Mcp-Method"), m.Method)
	case m.Method == methodCall && x.Header("Mcp-Name") != m.toolCall().name:
		return mismatch("the header Mcp-Name is %.40q, and the tool %.40q", x.Header("Mcp-Name"), m.toolCall().name)
	}
	return 0, nil
}

// initialized is the answer to initialize.
type initialized struct {
	Version      string         `json:"protocolVersion"`
	Capabilities capabilities   `json:"capabilities"`
	Server       implementation `json:"serverInfo"`
	Instructions string         `json:"instructions"`
}

type capabilities struct {
	Tools struct{} `json:"tools"`
}

// discovered is the answer to server/discover.
type discovered struct {
	complete
	cacheable
	Versions     []string     `json:"supportedVersions"`
	Capabilities capabilities `json:"capabilities"`
	Instructions string       `json:"instructions"`
}

// listed is the answer to tools/list.
type listed struct {
	complete
	cacheable
	Tools []description `json:"tools"`
}

// complete is part of all results since [stateless].
type complete struct {
	Type string         `json:"resultType,omitempty"`
	Meta map[string]any `json:"_meta,omitempty"`
}

// cacheable says that a result is for this token, and not for later.
type cacheable struct {
	Milliseconds int    `json:"ttlMs"`
	Scope        string `json:"cacheScope"`
}

func (d *Door) complete(m *message) complete {
	if m.version < stateless {
		return complete{}
	}
	return complete{Type: "complete", Meta: map[string]any{"io.modelcontextprotocol/serverInfo": d.server}}
}

// handle runs a method. A fault is an answer; an error means that there is none.
func (d *Door) handle(x exchange.Exchange, grant *auth.Grant, m *message) (result any, fault *rpcError, err error) {
	switch m.Method {
	case "initialize":
		if m.version >= stateless {
			break
		}
		version, fault := m.askedVersion()
		if fault != nil {
			return nil, fault, nil
		}
		if version >= stateless || !slices.Contains(versions, version) {
			version = stateful
		}
		return initialized{Version: version, Server: d.server, Instructions: instructions}, nil, nil
	case "ping":
		if m.version < stateless {
			return struct{}{}, nil, nil
		}
	case "server/discover":
		if m.version >= stateless {
			return discovered{
				complete: d.complete(m), cacheable: cacheable{Scope: "private"}, Versions: versions, Instructions: instructions,
			}, nil, nil
		}
	case "tools/list":
		if m.hasCursor() {
			return nil, invalid("cursor: none was given out, since the list is one page"), nil
		}
		return listed{complete: d.complete(m), cacheable: cacheable{Scope: "private"}, Tools: d.offered(grant)}, nil, nil
	case methodCall:
		call := m.toolCall()
		if call.fault != nil {
			return nil, call.fault, nil
		}
		t := find(call.name)
		if t == nil {
			return nil, invalid("unknown tool %.100q", call.name), nil
		}
		r, err := d.run(x, t, call.given)
		if err != nil {
			return nil, nil, err
		}
		r.complete = d.complete(m)
		return r, nil, nil
	}
	return nil, &rpcError{Code: codeNoMethod, Message: fmt.Sprintf("the method %.100q is not supported", m.Method)}, nil
}

// offered describes the tools for which a token has the scopes.
func (d *Door) offered(grant *auth.Grant) []description {
	all := make([]description, 0, len(tools))
	for i := range tools {
		if t := &tools[i]; d.caller.Offers(grant, t.method, t.path) {
			all = append(all, t.describe())
		}
	}
	return all
}
