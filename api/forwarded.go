package api

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// proxies are the networks of trusted proxies.
type proxies []netip.Prefix

func (p proxies) trusted(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client returns the client of a request: the peer, or, if that is a trusted proxy, the last hop in
// X-Forwarded-For that is not one. Hops left of it were written by that client and are ignored, and
// so are those left of a hop that is not an address. Lines are the values of the header, in order.
func (p proxies) client(peer netip.Addr, lines [][]byte) netip.Addr {
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			if !p.trusted(peer) {
				return peer
			}
			comma := bytes.LastIndexByte(line, ',')
			hop, ok := parseHop(line[comma+1:])
			if !ok {
				return peer
			}
			peer = hop
			if more = comma >= 0; more {
				line = line[:comma]
			}
		}
	}
	return peer
}

// parseHop reads an address as proxies write it: alone, or with a port, IPv6 then in brackets.
func parseHop(text []byte) (netip.Addr, bool) {
	text = bytes.Trim(text, " \t")
	hop, err := netip.ParseAddr(string(text))
	if err != nil {
		with, err := netip.ParseAddrPort(string(text))
		if err != nil {
			if len(text) < 2 || text[0] != '[' || text[len(text)-1] != ']' {
				return netip.Addr{}, false
			}
			if hop, err = netip.ParseAddr(string(text[1 : len(text)-1])); err != nil || !hop.Is6() {
				return netip.Addr{}, false
			}
			with = netip.AddrPortFrom(hop, 0)
		}
		hop = with.Addr()
	}
	return hop.Unmap(), hop.Zone() == ""
}

// addressOf returns the address of a TCP peer; the zero one for any other.
func addressOf(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
