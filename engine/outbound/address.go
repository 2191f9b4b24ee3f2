package outbound

import "net/netip"

// special are the networks that are not the public Internet, from IANA's registries of
// special-purpose addresses; the first that contains an address is the reason of the refusal.
// Networks that embed an IPv4 address in an IPv6 one are refused in any case.
var special = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "an address shared behind a carrier's NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata address"}, // Azure's, in public space
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},         // most clouds' metadata
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "an address for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address inside an IPv6 one"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address inside an IPv6 one"},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address behind NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address behind NAT64"},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address inside a Teredo one"},
	{netip.MustParsePrefix("2001::/23"), "an address for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address inside a 6to4 one"},
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// unicast is what of IPv6 is given out to the public at all.
var unicast = netip.MustParsePrefix("2000::/3")

// addressFault says why an address is not one of the public Internet, or "".
func addressFault(addr netip.Addr) string {
	if !addr.IsValid() {
		return "no IP address"
	}
	if addr.Zone() != "" {
		return "an address with a zone"
	}
	for _, network := range special {
		if network.prefix.Contains(addr) {
			return network.why
		}
	}
	if addr.Is6() && !unicast.Contains(addr) {
		return "no public unicast address"
	}
	return ""
}
