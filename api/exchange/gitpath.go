package exchange

import "strings"

// Variant selects the namespace and purpose of a git remote of a repository.
type Variant uint8

// The variants.
const (
	Main      Variant = iota // /<name>.git, or /<name>
	Ephemeral                // /<name>+ephemeral.git: the ephemeral namespace as if it were the repository
	Import                   // /<name>+import.git: history import, push only
	Past                     // /<name>+at.<sequence>.git: the repository as it was, fetch only
)

// GitPath is the meaning of a path that a git client asks for.
type GitPath struct {
	Repo    string // name, as in the repo claim of tokens
	Variant Variant
	// Moment is what stands for <sequence> in the path of a [Past]; it may be no number.
	Moment string
	// The path after "<name>.git/" or "<name>/": "info/refs", "git-upload-pack", "git-receive-pack",
	// or [LFS].
	Service string
}

// LFS is the service of every path that clients of git LFS ask for.
const LFS = "info/lfs"

// ParseGitPath splits a decoded path into the repository and the service. It fails for another
// service than the three of smart HTTP and LFS. It does not check the repository's name.
func ParseGitPath(path string) (GitPath, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return GitPath{}, false
	}
	name, service, ok := cutService(rest)
	if !ok {
		return GitPath{}, false
	}
	parsed := GitPath{Repo: name, Service: service}
	if base, ok := strings.CutSuffix(name, "+ephemeral"); ok {
		parsed.Repo, parsed.Variant = base, Ephemeral
	} else if base, ok := strings.CutSuffix(name, "+import"); ok {
		parsed.Repo, parsed.Variant = base, Import
	} else if base, moment, ok := strings.Cut(name, "+at."); ok {
		parsed.Repo, parsed.Variant, parsed.Moment = base, Past, moment
	}
	return parsed, true
}

// cutService splits a path without its first slash at the end of the repository's name. A name has
// no segment that ends in .git, so whatever follows ".git/" is the service; without it the path
// must end in one.
func cutService(rest string) (name, service string, ok bool) {
	name, service, dotted := strings.Cut(rest, ".git/")
	for _, known := range []string{"info/refs", "git-upload-pack", "git-receive-pack"} {
		if dotted {
			ok = service == known
		} else {
			name, ok = strings.CutSuffix(rest, "/"+known)
		}
		if ok {
			return name, known, true
		}
	}
	if dotted {
		return name, LFS, strings.HasPrefix(service, LFS+"/")
	}
	name, _, ok = strings.Cut(rest, "/"+LFS+"/")
	return name, LFS, ok
}
