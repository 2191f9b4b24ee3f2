package exchange

import "strings"

// Variant is the face of a repository that a git remote shows.
type Variant uint8

// The variants.
const (
	Main      Variant = iota // /<name>.git
	Ephemeral                // /<name>+ephemeral.git: the ephemeral namespace as if it were the repository
	Import                   // /<name>+import.git: history import, push only
)

// GitPath is the meaning of a path that a git client asks for.
type GitPath struct {
	Repo    string // name, as in the repo claim of tokens
	Variant Variant
	Service string // what follows "<name>.git/": "info/refs", "git-upload-pack", "git-receive-pack"
}

// ParseGitPath splits a decoded path into the repository and the service asked for. It fails for another service than the three of
// smart HTTP. Whether the repository's name may be one is not looked at.
func ParseGitPath(path string) (GitPath, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return GitPath{}, false
	}
	name, service, ok := strings.Cut(rest, ".git/")
	if !ok {
		return GitPath{}, false
	}
	switch service {
	case "info/refs", "git-upload-pack", "git-receive-pack":
	default:
		return GitPath{}, false
	}
	parsed := GitPath{Repo: name, Service: service}
	if base, ok := strings.CutSuffix(name, "+ephemeral"); ok {
		parsed.Repo, parsed.Variant = base, Ephemeral
	} else if base, ok := strings.CutSuffix(name, "+import"); ok {
		parsed.Repo, parsed.Variant = base, Import
	}
	return parsed, true
}
