package api

import (
	"net/http"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
)

// namedPaths are the paths below /api/repos/{n}, by the segments behind {n}. A path that ends in a
// name in braces is kept by the segments in front of it.
type namedPaths map[string]*namedPath

type namedPath struct {
	exact *methods // nil for none
	// open are the endpoints with one more name, "" for none, behind these segments.
	open *methods
	name string
}

// add puts an endpoint at a path, which begins behind {n}: "" or "/tags" or "/tags/{name}".
func (p namedPaths) add(refuse Refuse, path string, e *endpoint) error {
	path, name, isOpen := strings.Cut(path, "/{")
	at := p[path]
	if at == nil {
		at = &namedPath{}
		p[path] = at
	}
	m := &at.exact
	if isOpen {
		m, at.name = &at.open, strings.TrimSuffix(name, "}")
	}
	if *m == nil {
		*m = newMethods(refuse)
	}
	return (*m).add(e)
}

// isGitPath reports whether a path below [namedPrefix] is one of git clients: a repository may be
// called api/repos/x. No name of a repository has a segment that ends in .git, and a tag whose name
// has one is only deleted here.
func isGitPath(x *transfer) bool {
	for _, segment := range x.named {
		if strings.Contains(segment, "/") {
			return false
		}
	}
	_, ok := exchange.ParseGitPath(x.path)
	return ok && strings.Contains(x.path, ".git/") && x.method != http.MethodDelete
}

// find returns the endpoints of a path, and sets its parts. A proxy may have decoded the slashes
// of a name, so that several places may be its end: a path that begins with the repository of the
// token means that one, and any other the shortest name that leaves an endpoint behind it.
func (p namedPaths) find(x *transfer) (*methods, error) {
	var found *methods
	claimed := ""
	if x.grant != nil {
		claimed = x.grant.Repo
	}
	for end := 1; end <= len(x.named); end++ {
		repo := strings.Join(x.named[:end], "/")
		isClaimed := repo == claimed
		if engine.CheckRepositoryName(repo) != nil || found != nil && !isClaimed {
			continue
		}
		m, parts := p.behind(x.named[end:])
		if m != nil {
			parts["n"] = repo
			found, x.parts = m, parts
		}
		if isClaimed {
			found = m
			break
		}
	}
	if found == nil {
		return nil, errNoPath
	}
	return found, nil
}

// behind returns the endpoints of the segments behind the repository's name, nil for none.
func (p namedPaths) behind(segments []string) (*methods, map[string]string) {
	path := ""
	for i := range len(segments) + 1 {
		if at := p[path]; at != nil {
			rest := segments[i:]
			switch {
			case len(rest) == 0 && at.exact != nil:
				return at.exact, make(map[string]string)
			case len(rest) > 0 && at.open != nil:
				return at.open, map[string]string{at.name: strings.Join(rest, "/")}
			}
		}
		if i < len(segments) {
			path += "/" + segments[i]
		}
	}
	return nil, nil
}
