package outbound_test

import (
	"net/netip"
	"strings"
	"testing"

	"packhorse/engine/outbound"
)

func TestParseGuard(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "10.0.0.0/33", "a b", "http://host", "host:80", "0x7f.1", "host.", "-a", "a..b", "[::1]", "fe80::1%eth0",
		"ü.example",
	} {
		if _, err := outbound.ParseGuard([]string{"good.example", bad}); err == nil ||
			!strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: error %v does not name it", bad, err)
		}
	}
	if _, err := outbound.ParseGuard([]string{
		"a", " git.example.com ", "10.0.0.0/8", "::1", "fd00::/8", "127.0.0.1", "a_b.example",
	}); err != nil {
		t.Error(err)
	}
}

func TestCheckAddr(t *testing.T) {
	t.Parallel()
	public := parse(t)
	guard := parse(t, "10.1.0.0/16", "fd00:1::/32", "127.0.0.1")
	tests := []struct {
		addr            string
		public, allowed bool
	}{
		{"1.1.1.1", true, true},
		{"8.8.8.8", true, true},
		{"172.32.0.1", true, true},
		{"100.128.0.1", true, true},
		{"2606:4700::1111", true, true},
		{"2a00:1450::1", true, true},
		{"10.1.2.3", false, true},
		{"fd00:1::1", false, true},
		{"127.0.0.1", false, true},
		{"127.0.0.2", false, false},
		{"::ffff:127.0.0.1", false, false},
		{"::ffff:8.8.8.8", false, false},
		{"10.2.0.1", false, false},
		{"172.16.0.1", false, false},
		{"192.168.0.1", false, false},
		{"192.0.0.192", false, false},
		{"100.100.100.200", false, false},
		{"169.254.169.254", false, false},
		{"168.63.129.16", false, false},
		{"0.0.0.0", false, false},
		{"0.1.2.3", false, false},
		{"224.0.0.1", false, false},
		{"255.255.255.255", false, false},
		{"198.18.0.1", false, false},
		{"::", false, false},
		{"::1", false, false},
		{"::7f00:1", false, false},
		{"64:ff9b::7f00:1", false, false},
		{"64:ff9b:1::1", false, false},
		{"100::1", false, false},
		{"2001:0:7f00:1::1", false, false},
		{"2001:db8::1", false, false},
		{"2002:7f00:1::1", false, false},
		{"3fff::1", false, false},
		{"4000::1", false, false},
		{"fd00:ec2::254", false, false},
		{"fe80::1", false, false},
		{"fec0::1", false, false},
		{"ff02::1", false, false},
		{"2606:4700::1%eth0", false, false},
	}
	for _, test := range tests {
		addr := netip.MustParseAddr(test.addr)
		if err := public.CheckAddr(addr); (err == nil) != test.public {
			t.Errorf("%s: %v", addr, err)
		}
		if err := guard.CheckAddr(addr); (err == nil) != test.allowed {
			t.Errorf("%s, with an allow list: %v", addr, err)
		}
	}
	if err := public.CheckAddr(netip.Addr{}); err == nil {
		t.Error("no address is allowed")
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	guard := parse(t, "Intern.Example", "127.0.0.1", "localhost")
	for _, good := range []string{
		"https://github.com/git/git.git", "http://example.com:8080/x?service=y", "https://1.1.1.1/",
		"https://[2606:4700::1111]:443/",
		"http://127.0.0.1:1/", "http://intern.example/", "http://localhost/", "https://xn--bcher-kva.example/",
		"https://a_b.example/%20",
		"https://1password.com/", "https://0xdeadbeef.example/",
	} {
		u, err := guard.CheckURL(good)
		if err != nil || u.String() != good {
			t.Errorf("%s: %v, %v", good, u, err)
		}
	}
	for _, test := range []struct{ a, b string }{
		{"https://a.example/", "https://a.example:443/x"}, {"http://A.example", "http://a.example:80/"},
	} {
		if !outbound.SameOrigin(check(t, guard, test.a), check(t, guard, test.b)) {
			t.Errorf("%s and %s are of the same origin", test.a, test.b)
		}
	}
	for _, other := range []string{
		"http://a.example/", "https://a.example:8443/", "https://b.example/", "https://a.example.b/",
	} {
		if outbound.SameOrigin(check(t, guard, "https://a.example/"), check(t, guard, other)) {
			t.Errorf("%s is another origin", other)
		}
	}
}
