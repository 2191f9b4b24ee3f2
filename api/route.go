package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/githttp"
	"packhorse/api/problem"
	"packhorse/engine"
)

// Handler answers one request with a valid token. The door of the route renders its error.
type Handler func(x exchange.Exchange, grant *auth.Grant) error

// Refuse renders an error as the answer, and returns the rendered problem.
type Refuse func(x exchange.Exchange, err error) problem.Problem

// Route is one row of the table: the requirements for the token, and the limits for the client.
type Route struct {
	Method string
	// Path is where the token alone names the repository; "" for none.
	Path string
	// Named is where the path names the repository, too: below /api/repos/{n}, possibly with one more
	// name in braces at its end, which may have slashes. "" for none.
	Named string
	Scope auth.Scope // that the token must have
	// Denied is the status at Path when it has not: 401 or 403, as docs/api.md says for each endpoint.
	// At Named it is 403.
	Denied  int
	Handler Handler

	Org bool // the token need not name a repository
	// The token names a repository to create, so that a fault of the name is worth reporting.
	Creates    bool
	BodyMax    int64 // in bytes; 0 for Limits.JSONBytes
	Patient    bool  // the body may be silent until the handler calls BodyFlows
	Computes   bool  // the first byte of the answer must be sent within Limits.AnswerWait
	CostsBytes int64 // memory that the request is expected to hold while it works; 0 when it is not worth counting
	WaitsBytes int64 // and while it waits for its client in the midst of a transfer; 0 for the same
}

// Git is the front door for git clients.
type Git struct {
	Serve  func(x exchange.Exchange, path exchange.GitPath, grant *auth.Grant) error
	Refuse Refuse
}

const (
	fetchBodyMax  = 16 << 20  // of a fetch request
	pushLinesMax  = 64 << 20  // of the commands of a push, beside its pack
	pushDiscarded = 1 << 30   // of a push that is too large, so that git gets to the reason
	transferCosts = 1 << 20   // memory of a clone beside the caches and the budgets below
	pushCosts     = 2 << 20   // memory of a push with small needs
	transferWaits = 256 << 10 // part of it that it holds while its client takes or sends nothing
)

// endpoint is a row of the table as it is served.
type endpoint struct {
	Route
	label string // in metrics and logs
	git   bool   // of a git client: the path names the repository
	open  bool   // no token is asked for
	// implied is HEAD of a path whose table has GET alone; a row for HEAD takes its place.
	implied bool
	// action is what requests do, in the audit log, unless they name an operation; "" for those that
	// leave no line there.
	action string
}

// writes reports whether the endpoint is for writing; a push also when it reads the refs first.
func (e *endpoint) writes() bool {
	return e.Scope&(auth.GitWrite|auth.RepoWrite) != 0 &&
		(e.git || e.Method != http.MethodGet && e.Method != http.MethodHead)
}

// methods are the methods of a path.
type methods struct {
	endpoints map[string]*endpoint
	allow     string // for the Allow header
	refuse    Refuse
}

func newMethods(refuse Refuse) *methods {
	return &methods{endpoints: make(map[string]*endpoint), refuse: refuse}
}

// add adds an endpoint, and HEAD beside GET: the same handler answers, and the body is left out.
func (m *methods) add(e *endpoint) error {
	if known := m.endpoints[e.Method]; known != nil && !known.implied {
		return fmt.Errorf("route %s %s: registered twice", e.Method, e.label)
	}
	m.endpoints[e.Method] = e
	if e.Method == http.MethodGet && m.endpoints[http.MethodHead] == nil {
		head := *e
		head.Method, head.implied = http.MethodHead, true
		m.endpoints[http.MethodHead] = &head
	}
	names := make([]string, 0, len(m.endpoints))
	for name := range m.endpoints {
		names = append(names, name)
	}
	slices.Sort(names)
	m.allow = strings.Join(names, ", ")
	return nil
}

// table finds endpoints.
type table struct {
	paths map[string]*methods
	named namedPaths
	git   func(x exchange.Exchange, path exchange.GitPath, grant *auth.Grant) error

	advertise, advertisePush, fetch, push, lfs *methods
}

func newTable(config *Config) (*table, error) {
	t := &table{paths: make(map[string]*methods), named: make(namedPaths), git: config.Git.Serve}
	for _, row := range config.Routes {
		if row.Denied != http.StatusUnauthorized && row.Denied != http.StatusForbidden || row.Scope == 0 ||
			row.Handler == nil {
			return nil, fmt.Errorf("route %s %s: a scope, 401 or 403, and a handler are required", row.Method, row.Path)
		}
		if row.BodyMax == 0 {
			row.BodyMax = config.Limits.JSONBytes
		}
		if err := t.addRow(config.Refuse, row); err != nil {
			return nil, err
		}
	}
	git := func(label string, does exchange.Operation, row Route, names ...string) *methods {
		row.Denied = http.StatusForbidden
		m := &methods{endpoints: make(map[string]*endpoint), refuse: config.Git.Refuse, allow: strings.Join(names, ", ")}
		for _, row.Method = range names {
			m.endpoints[row.Method] = &endpoint{Route: row, label: label, action: does.Action(), git: true}
		}
		return m
	}
	t.advertise = git("git/info/refs", exchange.LsRefs, Route{Scope: auth.GitRead}, http.MethodGet, http.MethodHead)
	t.advertisePush = git("git/info/refs", exchange.LsRefs, Route{Scope: auth.GitWrite}, http.MethodGet, http.MethodHead)
	t.fetch = git("git/git-upload-pack", exchange.Fetch, Route{
		Scope: auth.GitRead, BodyMax: fetchBodyMax, CostsBytes: transferCosts, WaitsBytes: transferWaits,
	}, http.MethodPost)
	t.push = git("git/git-receive-pack", exchange.Push, Route{
		Scope: auth.GitWrite, BodyMax: config.Limits.PushBytes + pushLinesMax + pushDiscarded, Patient: true,
		CostsBytes: pushCosts, WaitsBytes: transferWaits,
	}, http.MethodPost)
	t.lfs = git("git/info/lfs", "", Route{BodyMax: config.Limits.JSONBytes}, http.MethodGet, http.MethodPost,
		http.MethodPut, http.MethodDelete)
	for _, e := range t.lfs.endpoints {
		e.action, e.git, e.open = "gitLFS", false, true // without a token, since none would help
		e.Handler = githttp.RefuseLFS
	}
	return t, nil
}

// addRow puts a row at its paths.
func (t *table) addRow(refuse Refuse, row Route) error {
	for _, at := range row.at() {
		e := &endpoint{Route: at, label: at.Path, action: actionOf(at.Method, at.Path)}
		var err error
		if below, ok := strings.CutPrefix(at.Path, namedPrefix+"{n}"); ok {
			err = t.named.add(refuse, below, e)
		} else {
			err = t.add(refuse, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// at returns the row for each of its paths, with the Path and Denied that it has there.
func (r Route) at() (rows []Route) {
	if r.Path != "" {
		rows = append(rows, r)
	}
	if r.Named != "" {
		r.Path, r.Denied = r.Named, http.StatusForbidden
		rows = append(rows, r)
	}
	return rows
}

// add puts an endpoint at its path.
func (t *table) add(refuse Refuse, e *endpoint) error {
	m := t.paths[e.Path]
	if m == nil {
		m = newMethods(refuse)
		t.paths[e.Path] = m
	}
	return m.add(e)
}

var (
	errNoPath   = refuse(http.StatusNotFound, code.EndpointNotFound, "no such path")
	errNoMethod = refuse(http.StatusMethodNotAllowed, code.MethodNotAllowed, "method not allowed")
)

// find returns the endpoints of the path of x, and sets the parts of the path. Where the path names
// the repository, the token has been verified.
func (t *table) find(x *transfer) (*methods, error) {
	if x.named != nil {
		return t.named.find(x)
	}
	if m := t.paths[x.path]; m != nil {
		return m, nil
	}
	git, ok := exchange.ParseGitPath(x.path)
	if !ok || engine.CheckRepositoryName(git.Repo) != nil {
		return nil, errNoPath
	}
	x.git = git
	switch {
	case git.Service == exchange.LFS:
		return t.lfs, nil
	case git.Service == "git-upload-pack":
		return t.fetch, nil
	case git.Service == "git-receive-pack":
		return t.push, nil
	case x.Query().Get("service") == "git-receive-pack":
		return t.advertisePush, nil
	default:
		return t.advertise, nil
	}
}
