package auth

import (
	"maps"
	"slices"
	"strings"
	"time"

	"packhorse/engine/pathpolicy"
	"packhorse/refs"
)

// Scope is a set of permissions.
type Scope uint8

// The permissions of tokens.
const (
	GitRead   Scope = 1 << iota // git:read
	GitWrite                    // git:write, which includes git:read
	RepoWrite                   // repo:write
	OrgRead                     // org:read
)

var scopeNames = map[string]Scope{
	"git:read":   GitRead,
	"git:write":  GitWrite | GitRead,
	"repo:write": RepoWrite,
	"org:read":   OrgRead,
}

// Grant is the permissions of a verified token. It is shared between requests: read only.
type Grant struct {
	Org     string            // the organization that signed the token
	Subject string            // free text, recorded as the actor of a change
	Repo    string            // the repository's name; "org" or "" in tokens of the whole organization
	Scopes  Scope             // scopes that are not known are left out
	Policy  refs.Policy       // the permitted operations for each ref
	Paths   pathpolicy.Policy // the paths that may not change
	// Unenforced is a claim of the token with a policy that the server does not enforce, so that all
	// writes are refused; "" without one.
	Unenforced string
	KeyID      string    // the registered key that verified the token
	TokenHash  string    // see [TokenHash]
	Expires    time.Time // the token's exp

	key *key // the identity of the key; another key of the same id does not count
}

// Allows reports whether the grant has every permission of scope.
func (g *Grant) Allows(scope Scope) bool { return g.Scopes&scope == scope }

// String names the scopes as tokens do. Writing names git:write alone, with or without the reading
// that it includes.
func (s Scope) String() string {
	if s&GitWrite != 0 {
		s |= GitRead
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(scopeNames)) {
		if s&scopeNames[name] == scopeNames[name] && (name != "git:read" || s&GitWrite == 0) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}
