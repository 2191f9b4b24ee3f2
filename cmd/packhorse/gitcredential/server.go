package gitcredential

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"packhorse/api/exchange"
	"packhorse/engine"
)

// ErrNoPath says that git did not send the path of the remote, so that its repository is unknown.
var ErrNoPath = errors.New("git does not say which repository it wants")

// Server is the base URL of a server that a helper has tokens for.
type Server struct {
	text     string
	protocol string
	host     string // lower case, without brackets
	port     string
	prefix   string // path that every repository lies below: "" or "/a/b"
}

// ParseServer reads an http or https URL without user, query and fragment. A path in it is one that
// all repositories of the server lie below.
//
// Everybody on the way can read a token that is sent over HTTP: such a URL is an error unless its
// host is the loopback, or plain is true.
func ParseServer(text string, plain bool) (Server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Server{}, errors.New("malformed URL") // err quotes it, perhaps with a password
	}
	s := Server{text: strings.TrimRight(text, "/"), protocol: u.Scheme, prefix: strings.TrimRight(u.Path, "/")}
	s.host, s.port = hostPort(u)
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || s.host == "":
		return Server{}, fmt.Errorf("%q is not an http or https URL with a host", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return Server{}, fmt.Errorf("%q has a user, a query or a fragment", u.Redacted())
	case u.Scheme == "http" && !plain && !isLoopback(s.host):
		return Server{}, fmt.Errorf("%q would send tokens without encryption", text)
	}
	return s, nil
}

// String is the URL as it was given, less slashes at its end.
func (s Server) String() string { return s.text }

// Repository returns the name of the repository that a request is for, and false if the request is
// not for this server: then nothing may be answered. Protocol, host and port must be the same; the
// case of the host does not matter, nor does a default port.
//
// Errors, of requests that are for this server: [ErrNoPath], and others for a path that is no
// remote of a repository.
func (s Server) Repository(r Request) (name string, ours bool, err error) {
	u, err := url.Parse(r.Protocol + "://" + r.Host)
	if err != nil || r.Protocol != s.protocol || u.Host != r.Host || u.User != nil {
		return "", false, nil //nolint:nilerr // what is not a host is not this one
	}
	if host, port := hostPort(u); host != s.host || port != s.port {
		return "", false, nil
	}
	if r.Path == "" {
		return "", true, ErrNoPath
	}
	path, below := strings.CutPrefix("/"+r.Path, s.prefix+"/")
	if !below {
		return "", false, nil
	}
	// As git does, from the URL of a remote to the first path that it requests.
	parsed, ok := exchange.ParseGitPath("/" + strings.TrimRight(path, "/") + "/info/refs")
	if !ok {
		return "", true, fmt.Errorf("%.200q is not the path of a repository", r.Path)
	}
	if err := engine.CheckRepositoryName(parsed.Repo); err != nil {
		return "", true, err
	}
	return parsed.Repo, true, nil
}

// hostPort returns the host of a URL in lower case and its port, which may be the default one.
func hostPort(u *url.URL) (host, port string) {
	port = u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()), port
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
