package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// GitHub is the only provider that is accessed with tokens of an app instead of a stored
// credential.
const GitHub = "github"

// providers are the known hosts: the default base URL of each, and the user name for a credential
// without one.
var providers = map[string]struct{ base, user string }{
	GitHub:      {"https://github.com", "x-access-token"},
	"gitlab":    {"https://gitlab.com", "oauth2"},
	"bitbucket": {"https://bitbucket.org", "x-token-auth"},
	"gitea":     {"https://gitea.com", "git"},
	"forgejo":   {"https://codeberg.org", "git"},
	"codeberg":  {"https://codeberg.org", "git"},
	sourcehut:   {"https://git.sr.ht", "git"},
}

const sourcehut = "sr.ht"

// Known reports whether a provider is one of those in docs/api.md, "Upstreams".
func Known(provider string) bool {
	_, ok := providers[provider]
	return ok
}

// Origin is the repository that one of ours is synced with. It is stored with the repository and
// does not change: it keeps the base URL of its creation, so that a credential is only ever sent to
// the host that it was given for.
type Origin struct {
	Provider string `json:"provider"`
	Owner    string `json:"owner"`
	Name     string `json:"name"`
	// Base is the URL in front of owner and name, without a slash at its end.
	Base string `json:"base"`
	// DefaultBranch is the requested default branch; it overrides the upstream's HEAD.
	DefaultBranch string `json:"default_branch,omitempty"`
	// FollowHead takes the upstream's HEAD as the default branch, also where the upstream has one of
	// the usual name.
	FollowHead bool `json:"follow_head,omitempty"`
	// Public fetches without credentials, and never pushes.
	Public bool `json:"public,omitempty"`
}

// ErrOrigin says that the data of an upstream is invalid.
var ErrOrigin = errors.New("upstream: invalid upstream")

// OriginError is [ErrOrigin] with the field of base_repo that is at fault.
type OriginError struct{ Field, Why string }

// Error names the field.
func (e *OriginError) Error() string { return fmt.Sprintf("base_repo.%s: %s", e.Field, e.Why) }

// Is reports whether target is [ErrOrigin].
func (e *OriginError) Is(target error) bool { return target == ErrOrigin }

// Complete checks an origin that a request describes, and gives it its base URL: that of host, a
// host name with or without a port, or one of bases by provider, or the provider's own. Errors:
// [ErrOrigin].
func (o *Origin) Complete(host string, bases map[string]string) error {
	known, ok := providers[o.Provider]
	if !ok {
		return &OriginError{"provider", fmt.Sprintf("%.40q is not known", o.Provider)}
	}
	if o.Public && o.Provider != GitHub {
		return &OriginError{"auth.auth_type", fmt.Sprintf("not for provider %q", o.Provider)}
	}
	o.Base = known.base
	if base, ok := bases[o.Provider]; ok {
		o.Base = strings.TrimRight(base, "/")
	}
	if host != "" {
		if o.Provider == GitHub {
			return &OriginError{"upstream_host", fmt.Sprintf("not for provider %q", o.Provider)}
		}
		if u, err := url.Parse("https://" + host); err != nil || u.Host != host {
			return &OriginError{"upstream_host", fmt.Sprintf("expected a host, or host:port, got %.100q", host)}
		}
		o.Base = "https://" + host
	}
	if o.Provider == sourcehut && o.Owner != "" && !strings.HasPrefix(o.Owner, "~") {
		o.Owner = "~" + o.Owner
	}
	o.Name = strings.TrimSuffix(o.Name, ".git")
	if why := pathFault(o.Owner, ownerDepthMax); why != "" {
		return &OriginError{"owner", why}
	}
	if why := pathFault(o.Name, 1); why != "" {
		return &OriginError{"name", why}
	}
	return nil
}

// Bounds of owners and names. Groups of GitLab are nested, to 20 at most.
const (
	ownerDepthMax  = 21
	segmentSizeMax = 255
)

// pathFault says why text is not a path of a URL with one to depth segments, or "".
func pathFault(text string, depth int) string {
	if text == "" {
		return "is required"
	}
	segments := strings.Split(text, "/")
	if len(segments) > depth {
		return fmt.Sprintf("has more than %d segments", depth)
	}
	for _, segment := range segments {
		if segment == "" || segment == "." || segment == ".." || len(segment) > segmentSizeMax ||
			strings.Trim(segment, segmentLetters) != "" {
			return fmt.Sprintf("%.100q: expected letters, digits, '.', '_', '-' and '~'", segment)
		}
	}
	return ""
}

const segmentLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~"

// URL is where git finds the repository.
func (o *Origin) URL() string {
	path := o.Base + "/" + o.Owner + "/" + o.Name
	if o.Provider == sourcehut {
		return path
	}
	return path + ".git"
}

// User is the user name for a credential without one.
func (o *Origin) User() string { return providers[o.Provider].user }
