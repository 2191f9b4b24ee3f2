// Package outbound makes the HTTP clients for outbound requests: to upstreams, to webhook
// receivers, to GitHub's API.
//
// Configuring a URL must not give access to hosts that only the server can reach (SSRF). Start at
// [ParseGuard] and [Guard.Client]. A client of a guard connects only to public addresses, and to
// names and addresses that the operator has allowed. It checks the address that it dials, so that
// DNS rebinding is useless. It follows redirects on the same origin only, uses no proxy, requests
// no compression, and bounds its waits and the size of the head of an answer; the caller bounds the
// body. A refusal is a [RefusedError] and comes before any connection.
//
// A Guard is immutable and may be used concurrently.
package outbound

import (
	"fmt"
	"net/netip"
	"strings"
)

// Guard decides which addresses may be connected to. The zero value allows only public ones.
type Guard struct {
	names    map[string]bool // in lower case
	prefixes []netip.Prefix
}

// RefusedError is the reason why nothing was sent. It contains no user name, no password and no
// path.
type RefusedError struct {
	Target   string // host, address or scheme that is refused
	Why      string
	Resolved bool // Why is about the addresses that Target resolves to, or about a failed resolution
}

// Error names the refused target and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("outbound: refused %q: %s", e.Target, e.Why)
}

// Told is the error for the owner of the URL. It does not distinguish a name in our network from a
// name that does not exist.
func (e *RefusedError) Told() string {
	if !e.Resolved {
		return e.Error()
	}
	return fmt.Sprintf("outbound: refused %q: it has no address that may be connected to%s", e.Target, allowHint)
}

// allowHint says how the operator allows private addresses.
const allowHint = " (--upstream-allow lists what may be reached all the same)"

// targetMax shortens the quoted target.
const targetMax = 100

func refuse(target, why string) error {
	if len(target) > targetMax {
		target = target[:targetMax] + "..."
	}
	return &RefusedError{Target: target, Why: why}
}

// ParseGuard returns a guard that allows public addresses and the listed ones: host names, IP
// addresses and networks as in "10.1.0.0/16". A name allows all addresses that it resolves to, for
// URLs with exactly this name, in upper or lower case. The error names an invalid element.
func ParseGuard(allow []string) (*Guard, error) {
	g := &Guard{names: make(map[string]bool)}
	for _, entry := range allow {
		entry = strings.TrimSpace(entry)
		prefix, err := netip.ParsePrefix(entry)
		if err == nil {
			g.prefixes = append(g.prefixes, prefix.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(entry); err == nil && addr.Zone() == "" {
			g.prefixes = append(g.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		if why := nameFault(entry); why != "" {
			return nil, fmt.Errorf("outbound: %q is no host name, IP address or network: %s", entry, why)
		}
		g.names[strings.ToLower(entry)] = true
	}
	return g, nil
}

// allowsName reports whether the operator has allowed a host by name.
func (g *Guard) allowsName(host string) bool { return g.names[strings.ToLower(host)] }

// CheckAddr is nil when an address may be connected to. Errors: [*RefusedError].
func (g *Guard) CheckAddr(addr netip.Addr) error {
	why := addressFault(addr)
	if why == "" {
		return nil
	}
	for _, prefix := range g.prefixes {
		if prefix.Contains(addr) {
			return nil
		}
	}
	return refuse(addr.String(), why+allowHint)
}
