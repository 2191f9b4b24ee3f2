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

// ParseGitPath splits a decoded path into the repository and the service asked for. It fails for a path that names no
// repository by its grammar, or another service than the three of smart HTTP.
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
	parsed := GitPath{Service: service}
	if base, ok := strings.CutSuffix(name, "+ephemeral"); ok {
		name, parsed.Variant = base, Ephemeral
	} else if base, ok := strings.CutSuffix(name, "+import"); ok {
		name, parsed.Variant = base, Import
	}
	parsed.Repo = name
	return parsed, ValidRepoName(name)
}

// ValidRepoName tells whether name is one to eight segments of [A-Za-z0-9._-], joined by "/", 200 bytes at most, no segment "." or
// ".." or ending in ".git" or ".lock". "org" is reserved for tokens of a whole organization.
func ValidRepoName(name string) bool {
	if name == "" || len(name) > 200 || name == "org" || strings.Count(name, "/") > 7 {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." ||
			strings.HasSuffix(segment, ".git") || strings.HasSuffix(segment, ".lock") {
			return false
		}
		for i := range len(segment) {
			c := segment[i]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
				return false
			}
		}
	}
	return true
}
