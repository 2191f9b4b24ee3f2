package api

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
)

var someProxies = proxies{
	netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
}

func lines(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}

// The client is the rightmost hop that is no trusted proxy.
func TestForwardedClient(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		peer  string
		lines [][]byte
		want  string
	}{
		"no proxy":                      {"192.0.2.1", lines("198.51.100.1"), "192.0.2.1"},
		"a proxy that says nothing":     {"127.0.0.1", nil, "127.0.0.1"},
		"one proxy":                     {"127.0.0.1", lines("198.51.100.1"), "198.51.100.1"},
		"what the client wrote":         {"127.0.0.1", lines("203.0.113.9, 198.51.100.1"), "198.51.100.1"},
		"a trusted name by the client":  {"127.0.0.1", lines("10.1.1.1, 198.51.100.1"), "198.51.100.1"},
		"two proxies":                   {"127.0.0.1", lines("203.0.113.9, 198.51.100.1, 10.0.0.7"), "198.51.100.1"},
		"two proxies, two headers":      {"127.0.0.1", lines("203.0.113.9", "198.51.100.1", "10.0.0.7"), "198.51.100.1"},
		"a proxy that is not trusted":   {"127.0.0.1", lines("198.51.100.1, 192.0.2.8"), "192.0.2.8"},
		"only proxies":                  {"127.0.0.1", lines("10.0.0.8, 10.0.0.7"), "10.0.0.8"},
		"with a port":                   {"127.0.0.1", lines("198.51.100.1:4711"), "198.51.100.1"},
		"IPv6":                          {"fd00::1", lines("2001:db8::1"), "2001:db8::1"},
		"IPv6 in brackets":              {"fd00::1", lines("[2001:db8::1]"), "2001:db8::1"},
		"IPv6 with a port":              {"fd00::1", lines("[2001:db8::1]:80"), "2001:db8::1"},
		"IPv4 as IPv6":                  {"127.0.0.1", lines("::ffff:198.51.100.1"), "198.51.100.1"},
		"a trusted one written as IPv6": {"127.0.0.1", lines("198.51.100.1,::ffff:10.0.0.7"), "198.51.100.1"},
		"no address":                    {"127.0.0.1", lines("198.51.100.1, unknown"), "127.0.0.1"},
		"no address behind a proxy":     {"127.0.0.1", lines("198.51.100.1, _hidden, 10.0.0.7"), "10.0.0.7"},
		"empty":                         {"127.0.0.1", lines(""), "127.0.0.1"},
		"an empty hop":                  {"127.0.0.1", lines("198.51.100.1, "), "127.0.0.1"},
		"a zone":                        {"127.0.0.1", lines("fe80::1%eth0"), "127.0.0.1"},
		"IPv4 in brackets":              {"127.0.0.1", lines("[198.51.100.1]"), "127.0.0.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := someProxies.client(netip.MustParseAddr(test.peer), test.lines); got.String() != test.want {
				t.Errorf("client %s, want %s", got, test.want)
			}
		})
	}
}

// FuzzForwarded states that a client cannot choose its address: hops that it writes in front of the
// proxy's change nothing.
func FuzzForwarded(f *testing.F) {
	f.Add("203.0.113.9, 10.0.0.1", "198.51.100.1")
	f.Add("[::1]:80,,unknown", "2001:db8::1")
	f.Fuzz(func(t *testing.T, written, peer string) {
		from, err := netip.ParseAddr(peer)
		if err != nil || from.Zone() != "" || someProxies.trusted(from.Unmap()) {
			t.Skip()
		}
		proxy := netip.MustParseAddr("127.0.0.1")
		for _, added := range [][][]byte{{[]byte(written + ", " + peer)}, {[]byte(written), []byte(peer)}} {
			if got := someProxies.client(proxy, added); got != from.Unmap() {
				t.Errorf("%q makes the client %s of it, want %s", bytes.Join(added, []byte("; ")), got, from)
			}
		}
		got := someProxies.client(proxy, slices.Clip(lines(written)))
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Errorf("%q: client %v", written, got)
		}
	})
}
