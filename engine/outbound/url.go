package outbound

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// urlMax is the longest URL, in bytes.
const urlMax = 2048

// CheckURL returns the URL in raw when a client of this guard would send a request to it, as far as
// that is known without a resolver: http or https, a host in its plain form, no user, no fragment.
// It refuses forms that browsers would correct, since the next parser may correct them in another
// way: numbers that are not a dotted quad, backslashes, spaces, percent signs and foreign letters
// in the host, a dot at its end.
//
// Errors: [*RefusedError].
func (g *Guard) CheckURL(raw string) (*url.URL, error) {
	switch {
	case len(raw) > urlMax:
		return nil, refuse("URL", "longer than "+strconv.Itoa(urlMax)+" bytes")
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == '\\' || r >= 0x7f }):
		return nil, refuse("URL", "a space, a backslash, a control character or a letter that is not ASCII")
	case strings.Contains(raw, "#"):
		return nil, refuse("URL", "a fragment")
	}
	u, err := url.Parse(raw)
	if err != nil { // its text would quote the URL with its secrets
		return nil, refuse("URL", "not a URL")
	}
	return u, g.checkParsed(u)
}

// checkParsed is CheckURL for a URL that was parsed elsewhere, as that of a redirect.
func (g *Guard) checkParsed(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse(u.Scheme, "neither http nor https")
	case u.Opaque != "" || u.Host == "":
		return refuse(u.Scheme, "a URL without a host")
	case u.User != nil:
		return refuse(u.Hostname(), "a user name or password in the URL")
	case u.Fragment != "":
		return refuse(u.Hostname(), "a fragment")
	}
	if strings.HasPrefix(u.Host, "[") {
		return g.checkBracketed(u)
	}
	host, port, found := strings.Cut(u.Host, ":")
	if found && !validPort(port) {
		return refuse(u.Host, "not a host and a port")
	}
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return g.CheckAddr(addr)
	}
	if why := nameFault(host); why != "" {
		return refuse(host, why)
	}
	if g.allowsName(host) {
		return nil
	}
	if name := strings.ToLower(host); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return refuse(host, "a name of this machine"+allowHint)
	}
	return nil
}

// checkBracketed checks the host of a URL that begins with a bracket.
func (g *Guard) checkBracketed(u *url.URL) error {
	addr, err := netip.ParseAddr(u.Hostname())
	switch rest := u.Host[strings.LastIndexByte(u.Host, ']')+1:]; {
	case err != nil || !addr.Is6():
		return refuse(u.Hostname(), "not an IPv6 address")
	case rest != "" && !validPort(strings.TrimPrefix(rest, ":")):
		return refuse(u.Host, "not a port")
	}
	return g.CheckAddr(addr)
}

// validPort reports whether text is a port in its plain form.
func validPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0 && strconv.FormatUint(port, 10) == text
}

// The longest host name and label, in bytes: RFC 1035.
const (
	nameMax  = 253
	labelMax = 63
)

// nameFault says why a host is no name in its plain form, or "". An IPv4 address in any form is
// none.
func nameFault(host string) string {
	if host == "" || len(host) > nameMax {
		return "not a host name"
	}
	if strings.HasSuffix(host, ".") {
		return "a host name that ends in a dot"
	}
	label := ""
	for label = range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > labelMax || label[0] == '-' || label[len(label)-1] == '-' {
			return "not a host name"
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isNameLetter(r) }) {
			return "a host name with something other than ASCII letters, digits and hyphens"
		}
	}
	if isNumber(label) {
		return "a number that is no IPv4 address in its usual form"
	}
	return ""
}

func isNameLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// isNumber reports whether resolvers may take the last label of a name for a number, and with it
// the whole name for an IPv4 address.
func isNumber(label string) bool {
	if digits, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
