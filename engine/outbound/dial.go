package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// dialer resolves, checks and connects. It dials the checked IP addresses, so that no second
// resolution follows the check.
type dialer struct {
	guard   *Guard
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration
}

// addressesMax bounds the addresses of one name that are checked.
const addressesMax = 16

// DialContext connects to a host and port.
//
// One forbidden address among those of a name refuses the name as a whole: no honest name has both
// kinds. Errors: [*RefusedError], and those of the resolver and the network.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, refuse("address", "no host and port")
	}
	addrs, err := d.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	for i, addr := range addrs {
		// Each address has its share of the time that is left, so that the first one, silent, does not
		// take all of it.
		share := time.Until(deadline) / time.Duration(len(addrs)-i)
		var conn net.Conn
		if conn, err = d.dialOne(ctx, share, network, net.JoinHostPort(addr.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("outbound: connect to %q: %w", host, err)
}

func (d *dialer) dialOne(ctx context.Context, limit time.Duration, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return d.dial(ctx, network, address)
}

// addresses returns the addresses of a host, at least one and all of them allowed.
func (d *dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, d.guard.CheckAddr(addr)
	}
	if why := nameFault(host); why != "" {
		return nil, refuse(host, why)
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		if failed, ok := errors.AsType[*net.DNSError](err); ok {
			told := *failed
			told.Server = "" // an address of ours
			err = &told
		}
		return nil, fmt.Errorf("outbound: resolve %q: %w", host, err)
	}
	addrs = addrs[:min(len(addrs), addressesMax)]
	for i, addr := range addrs {
		addrs[i] = addr.Unmap() // which is how resolvers write IPv4 addresses
		if d.guard.allowsName(host) {
			continue
		}
		if err := d.guard.CheckAddr(addrs[i]); err != nil {
			// The address is left out: the owner of the URL need not learn the address of the host
			// in our network.
			refused, _ := errors.AsType[*RefusedError](err)
			return nil, &RefusedError{Target: host, Why: "it resolves to " + refused.Why, Resolved: true}
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("outbound: resolve %q: no address", host)
	}
	return addrs, nil
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
