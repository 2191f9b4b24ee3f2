// Package githttp speaks git's smart HTTP protocol: gitprotocol-http(5), gitprotocol-v2(5) and
// gitprotocol-pack(5).
//
// Start at [Door.Serve], which answers one request to a git remote. advertise.go answers info/refs
// in every protocol version; command.go parses protocol v2 commands, and lsrefs.go, fetch.go and
// objectinfo.go answer them; legacy.go is the fetch of versions 0 and 1; push.go is
// git-receive-pack, firstpush.go what is different when the repository is missing, and report.go
// its report. Package api has verified the token and split the path; package engine provides the
// data. Only framing, capabilities and the conventions of git clients are handled here.
//
// A client learns of an error in one of three ways: by an HTTP status, if its request was not a git
// request; by an ERR line or the error band, where git would report it so; and by a cut connection,
// if an answer has begun that cannot be completed.
package githttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/refs"
)

// Config is the configuration of a door.
type Config struct {
	Host *engine.Host
	// Agent is the agent capability, "packhorse/1.0".
	Agent string
	// PackBytesMax bounds the pack of one push.
	PackBytesMax int64
	// DiscardBytesMax bounds how much of a refused push is read, so that git gets to the reason; 1 GiB
	// when 0.
	DiscardBytesMax int64
	// Recheck checks, just before a push commits, that its grant is still valid; nil means that it is.
	Recheck func(*auth.Grant) error
	// OrgConfig returns the configuration of an organization, if it has one; nil means that none has.
	OrgConfig func(org string) (*auth.OrgConfig, bool)
	// KeepAlive is the longest silence of the server while a pack is worked on; 5 s, as in git.
	KeepAlive time.Duration
}

// Door answers git clients. Its methods may be called concurrently.
type Door struct {
	host         *engine.Host
	agent        string
	packBytesMax int64
	// discardBytesMax is Config.DiscardBytesMax.
	discardBytesMax int64
	recheck         func(*auth.Grant) error
	orgConfig       func(org string) (*auth.OrgConfig, bool)
	keepAlive       time.Duration
	listings        listings
}

// New returns a door to the host's repositories.
func New(c Config) *Door {
	d := &Door{
		host: c.Host, agent: c.Agent, recheck: c.Recheck, orgConfig: c.OrgConfig,
		packBytesMax:    cmp.Or(c.PackBytesMax, 16<<30),
		discardBytesMax: cmp.Or(c.DiscardBytesMax, discardMax),
		keepAlive:       cmp.Or(c.KeepAlive, 5*time.Second),
		listings:        newListings(),
	}
	if d.recheck == nil {
		d.recheck = func(*auth.Grant) error { return nil }
	}
	if d.orgConfig == nil {
		d.orgConfig = func(string) (*auth.OrgConfig, bool) { return nil, false }
	}
	return d
}

// The two services of smart HTTP.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// session is one request after its token, path and method were found to agree.
type session struct {
	*Door
	x     exchange.Exchange
	grant *auth.Grant
	repo  *engine.Repository
	// creation is how a push creates the missing repository; nil when repo is there.
	creation *engine.CreateRequest
	space    refs.Namespace
	service  string
	path     exchange.GitPath
	imports  bool
	version  int
}

// Serve answers a request to the remote that path names. An invalid HTTP request gets an HTTP
// status; errors for which the git protocol has a form are sent in that form.
func (d *Door) Serve(x exchange.Exchange, path exchange.GitPath, grant *auth.Grant) error {
	service, refusal := serviceOf(x, path)
	if refusal != nil {
		return refusal
	}
	version := versionOf(x.Header("Git-Protocol"), service)
	open := d.host.Recall
	if path.Variant == exchange.Past || path.Service == "info/refs" && version == 2 { // it reads nothing else
		open = d.host.Repository
	}
	repo, err := open(x.Context(), grant.Org, path.Repo)
	var creation *engine.CreateRequest
	if errors.Is(err, engine.ErrNotFound) && service == receivePack {
		creation, err = d.creation(x, path, grant)
	}
	if err != nil {
		return err
	}
	if path.Variant == exchange.Past {
		if repo, err = past(x, repo, path.Moment); err != nil {
			return err
		}
	}
	s := &session{
		Door: d, x: x, grant: grant, repo: repo, creation: creation, service: service,
		imports: path.Variant == exchange.Import,
		version: version, path: path,
	}
	if path.Variant == exchange.Ephemeral {
		s.space = refs.Ephemeral
	}
	x.SetHeader("Cache-Control", "no-cache, max-age=0, must-revalidate")
	x.SetHeader("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	x.SetHeader("Pragma", "no-cache")
	switch {
	case path.Service == "info/refs":
		return s.advertise()
	case service == receivePack:
		return s.receive()
	case s.version == 2:
		return s.command()
	default:
		return s.legacyFetch()
	}
}

// Refuse answers an error of Serve, or of an earlier step, in the form that git clients display
// best: a status and a line of text.
func Refuse(x exchange.Exchange, err error) problem.Problem {
	p := problem.From(err)
	if p.Status == http.StatusUnauthorized {
		x.SetHeader("WWW-Authenticate", `Basic realm="packhorse"`)
	}
	x.Respond(p.Status, "text/plain; charset=utf-8", []byte(p.Message+"\n"))
	return p
}

// serviceOf returns the service that a request is for. The server has checked its method, and the
// token's repository and scope.
func serviceOf(x exchange.Exchange, path exchange.GitPath) (string, error) {
	service := path.Service
	if service == "info/refs" {
		service = x.Query().Get("service")
		if service != uploadPack && service != receivePack {
			return "", refuse(http.StatusForbidden, code.GitProtocolError,
				"only git-upload-pack and git-receive-pack are served here, over smart HTTP")
		}
	} else if got, want := x.Header("Content-Type"), "application/x-"+service+"-request"; got != want {
		return "", refuse(http.StatusUnsupportedMediaType, code.UnsupportedMediaType,
			fmt.Sprintf("Content-Type is %q, not %q", got, want))
	}
	switch {
	case path.Variant == exchange.Import && service == uploadPack:
		return "", refuse(http.StatusForbidden, code.PushOnly, "the import remote is for pushing only")
	case path.Variant == exchange.Past && service == receivePack:
		return "", refuse(http.StatusForbidden, code.ReadOnly,
			"the remote of a moment (+at."+path.Moment+") is read-only")
	}
	return service, nil
}

// past returns the repository as it was at a moment.
func past(x exchange.Exchange, repo *engine.Repository, text string) (*engine.Repository, error) {
	moment, err := engine.ParseMoment("", "seq:"+text)
	if err != nil {
		return nil, refuse(http.StatusNotFound, code.EndpointNotFound,
			fmt.Sprintf("+at.%.40s: expected a position in the journal, as in +at.17", text))
	}
	then, err := repo.At(x.Context(), moment)
	if errors.Is(err, engine.ErrInvalid) { // git takes the path for a mistake
		err = refuse(http.StatusNotFound, problem.From(err).Code, err.Error())
	}
	return then, err
}

// versionOf is the protocol version of the request, if the service supports it: pushes support 0
// and 1 only.
func versionOf(header, service string) int {
	version := 0
	for word := range strings.SplitSeq(header, ":") {
		switch word {
		case "version=1":
			version = max(version, 1)
		case "version=2":
			version = 2
		}
	}
	if service == receivePack && version == 2 {
		return 0
	}
	return version
}

// refuse returns an error caused by the client, with an HTTP status.
func refuse(status int, as code.Code, message string) error {
	return &exchange.Error{Status: status, Code: as, Message: message}
}

// malformed returns the error for a violation of the protocol.
func malformed(format string, args ...any) error {
	return refuse(http.StatusBadRequest, code.GitProtocolError, fmt.Sprintf(format, args...))
}
