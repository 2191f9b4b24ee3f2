package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// prefixBytesMax is the largest size of a prefix: with the rest of a key it stays below the 1,024
// bytes that a key may have.
const prefixBytesMax = 512

// Location says where a store is.
type Location struct {
	Bucket string
	// Prefix begins all keys of the store; empty, or segments of [A-Za-z0-9._-] with slashes between
	// them.
	Prefix string
	// Endpoint is the URL of the service; empty is that of Amazon in the region.
	Endpoint string
	// Region may be empty: then it is the one that the environment names, and us-east-1 with an
	// endpoint.
	Region string
	// PathStyle puts the bucket into the path of a URL instead of its host name.
	PathStyle bool
}

// isPlain reports whether requests go to the service without TLS.
func (l *Location) isPlain() bool { return strings.HasPrefix(l.Endpoint, "http://") }

// errLocation means that a string is not the location of a store.
var errLocation = errors.New("want s3://BUCKET[/PREFIX][?endpoint=URL][&region=NAME][&path-style=true]")

// ParseLocation returns the location that s names:
//
//	s3://BUCKET/PREFIX?endpoint=https://s3.example.com&region=eu-1&path-style=true
//
// Everything behind the bucket may be left out. An error is one line, which says what is wrong with
// s and what was expected.
func ParseLocation(s string) (Location, error) {
	refuse := func(format string, args ...any) (Location, error) {
		return Location{}, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errLocation)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return refuse("%.200q is no bucket", s)
	}
	l := Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if !isSegment(l.Bucket) || len(l.Bucket) < 3 || len(l.Bucket) > 63 {
		return refuse("%.200q is no name of a bucket", l.Bucket)
	}
	if !isPrefix(l.Prefix) {
		return refuse("%.200q is no prefix: up to %d bytes of A-Z a-z 0-9 . _ - between slashes", l.Prefix, prefixBytesMax)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return refuse("%.200q is no list of settings", u.RawQuery)
	}
	for name, values := range query {
		value := values[0]
		switch {
		case len(values) > 1:
			return refuse("%s is set twice", name)
		case name == "endpoint" && isEndpoint(value):
			l.Endpoint = strings.TrimSuffix(value, "/")
		case name == "region" && isSegment(value):
			l.Region = value
		case name == "path-style" && (value == "true" || value == "false"):
			l.PathStyle = value == "true"
		default:
			return refuse("%.50s=%.200s is no setting of a bucket", name, value)
		}
	}
	return l, nil
}

// String returns the bucket and the prefix, without the settings.
func (l Location) String() string {
	if l.Prefix == "" {
		return "s3://" + l.Bucket
	}
	return "s3://" + l.Bucket + "/" + l.Prefix
}

// isEndpoint reports whether s is a URL that requests can be sent to.
func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == "" && u.Opaque == ""
}

// isPrefix reports whether s can begin keys.
func isPrefix(s string) bool {
	if s == "" {
		return true
	}
	for segment := range strings.SplitSeq(s, "/") {
		if !isSegment(segment) || segment == "." || segment == ".." {
			return false
		}
	}
	return len(s) <= prefixBytesMax
}

// isSegment reports whether s consists of characters that no store and no signature has to escape.
func isSegment(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}
