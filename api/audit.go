package api

import (
	"cmp"
	"net/netip"
	"strings"
	"sync"
	"time"

	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/contract"
	"packhorse/api/rest"
)

// actions are the ids of operations by method and path, the same for both paths of a call.
var actions = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	for _, o := range contract.All() {
		all[o.Method+" "+o.Path] = cmp.Or(o.Twin, o.ID)
	}
	return all
})

// actionOf is what a route does, in the audit log. A route that package contract does not describe
// is named by its method and its path.
func actionOf(method, path string) string {
	return cmp.Or(actions()[method+" "+path], strings.ToLower(method)+" "+path)
}

// audited writes the record of a request that has ended. Only the user agent is taken from its
// headers. An answer that needs no token, of health, metrics and documents, has none.
func (s *Server) audited(x *transfer) {
	if s.audit == nil {
		return
	}
	action := cmp.Or(x.action, x.operation.Action())
	switch {
	case action != "":
	case x.endpoint == nil:
		action = audit.Unrouted
	case x.endpoint.action == "":
		return
	default:
		action = x.endpoint.action
	}
	r := audit.Record{
		Time: x.started, Via: audit.HTTP, RequestID: x.id, Repository: cmp.Or(x.git.Repo, x.parts["n"]), Action: action,
		Address: addressText(x.client), UserAgent: bounded(x.Header("User-Agent")),
		Status: cmp.Or(x.refusedAs, x.answer.status), Error: x.code, Cut: x.answer.err != nil,
		ReceivedBytes: x.body.read, SentBytes: x.answer.sent,
	}
	if x.grant == nil {
		r.TokenHash = auth.TokenHash(x.Header("Authorization"))
	} else {
		identify(&r, x.grant, x.endpoint)
	}
	x.changes.End(&r)
	s.audit.Write(&r)
}

// auditedInner writes the record of a call within a request.
func (s *Server) auditedInner(x *inner, started time.Time) {
	if s.audit == nil {
		return
	}
	r := audit.Record{
		Time: started, Via: audit.MCP, RequestID: x.request.id, Action: x.endpoint.action,
		Address: addressText(x.request.client), UserAgent: bounded(x.request.Header("User-Agent")),
		Status: cmp.Or(x.refusedAs, x.answer.status), Error: x.code,
		ReceivedBytes: x.body.Size(), SentBytes: int64(x.out.body.Len()),
	}
	identify(&r, x.request.grant, x.endpoint)
	x.changes.End(&r)
	s.audit.Write(&r)
}

// suppose notes, for the audit log alone, what a request would do whose token was refused, by the
// shortest name of a repository that its path can begin with.
func (s *Server) suppose(x *transfer) {
	if s.audit == nil {
		return
	}
	if m, err := s.table.named.find(x); err == nil && m.endpoints[x.method] != nil {
		x.action = m.endpoints[x.method].action
	}
}

// identify tells in a record who acts, at an endpoint, nil for none. The repository that a path
// names is told in place of the token's.
func identify(r *audit.Record, grant *auth.Grant, e *endpoint) {
	r.Organization = grant.Org
	wholeOrg := e != nil && e.Org && grant.Repo == rest.OrgClaim
	if r.Repository == "" && !wholeOrg {
		r.Repository = grant.Repo
	}
	r.Subject, r.KeyID, r.TokenHash = grant.Subject, grant.KeyID, grant.TokenHash
}

// addressText is "" for the client of a listener that has no addresses.
func addressText(address netip.Addr) string {
	if !address.IsValid() {
		return ""
	}
	return address.String()
}
