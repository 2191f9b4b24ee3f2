// Package outbound makes the HTTP clients with which a host talks to others: to upstreams, to
// webhook receivers, to GitHub's API.
//
// Who may name a URL may not thereby reach what the host can reach. Start at [ParseGuard] and
// [Guard.Client]. A client of a guard connects to public addresses only, and to what the operator
// has allowed by name or by address; it looks at the address that is dialled, so that a resolver
// which changes its mind gains nothing. It follows redirects on the same origin only, uses no
// proxy, asks for no compression, and bounds what it waits for and how long the head of an answer
// is; the body is the caller's to bound. Everything that is refused is a [RefusedError], before any
// connection is made.
//
// A Guard is never changed after it was made and may be used concurrently.
package outbound

import (
	"fmt"
	"net/netip"
	"strings"
)

// Guard knows which addresses may be connected to. The zero value allows public ones only.
type Guard struct {
	names    map[string]bool // in lower case
	prefixes []netip.Prefix
}

// RefusedError says why nothing was sent. It holds no user name, no password and no path.
type RefusedError struct {
	Target   string // host, address or scheme that is refused
	Why      string
	Resolved bool // Why is about what the name Target resolves to, or that it does not
}

// Error names what is refused, and why.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("outbound: refused %q: %s", e.Target, e.Why)
}

// Told is the error for who has named the target. A name in our network is no different there from
// one that nobody has.
func (e *RefusedError) Told() string {
	if !e.Resolved {
		return e.Error()
	}
	return fmt.Sprintf("outbound: refused %q: it has no address that may be connected to%s", e.Target, allowHint)
}

// allowHint says how the operator allows what is not public.
const allowHint = " (--upstream-allow lists what may be reached all the same)"

// targetMax keeps texts short when what is refused is long.
const targetMax = 100

func refuse(target, why string) error {
	if len(target) > targetMax {
		target = target[:targetMax] + "..."
	}
	return &RefusedError{Target: target, Why: why}
}

// ParseGuard returns a guard that allows public addresses and what is listed: host names, IP
// addresses and networks as in "10.1.0.0/16". A name allows whatever it resolves to, for URLs with
// exactly this name; letters in either case. The error names what is none of these.
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

// allowsName tells whether the operator has allowed a host by name.
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
