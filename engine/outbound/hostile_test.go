package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/engine/outbound"
)

// hostile are URLs that must not be requested. PORT is that of a listener on the loopback
// interface; SECRET must not appear in errors.
var hostile = map[string]struct{ url, why string }{
	"loopback":                {"http://127.0.0.1:PORT/", "loopback"},
	"loopback, another":       {"http://127.8.9.10:PORT/", "loopback"},
	"decimal":                 {"http://2130706433:PORT/", "usual form"},
	"octal":                   {"http://0177.0.0.1:PORT/", "usual form"},
	"octal, whole":            {"http://017700000001:PORT/", "usual form"},
	"hexadecimal":             {"http://0x7f000001:PORT/", "usual form"},
	"hexadecimal, dotted":     {"http://0x7f.0x0.0x0.0x1:PORT/", "usual form"},
	"hexadecimal, upper case": {"http://0X7F.1:PORT/", "usual form"},
	"hexadecimal, empty":      {"http://127.0.0.0x:PORT/", "usual form"},
	"two parts":               {"http://127.1:PORT/", "usual form"},
	"three parts":             {"http://127.0.1:PORT/", "usual form"},
	"five parts":              {"http://127.0.0.0.1:PORT/", "usual form"},
	"too large a part":        {"http://127.0.0.257:PORT/", "usual form"},
	"zero":                    {"http://0:PORT/", "usual form"},
	"unspecified":             {"http://0.0.0.0:PORT/", "unspecified"},
	"unspecified, IPv6":       {"http://[::]:PORT/", "unspecified"},
	"loopback, IPv6":          {"http://[::1]:PORT/", "loopback"},
	"loopback, long":          {"http://[0:0:0:0:0:0:0:1]:PORT/", "loopback"},
	"mapped":                  {"http://[::ffff:127.0.0.1]:PORT/", "inside an IPv6"},
	"mapped, hexadecimal":     {"http://[::ffff:7f00:1]:PORT/", "inside an IPv6"},
	"mapped, public":          {"http://[::ffff:8.8.8.8]:PORT/", "inside an IPv6"},
	"compatible":              {"http://[::127.0.0.1]:PORT/", "inside an IPv6"},
	"NAT64":                   {"http://[64:ff9b::7f00:1]:PORT/", "NAT64"},
	"NAT64, local":            {"http://[64:ff9b:1::7f00:1]:PORT/", "NAT64"},
	"6to4":                    {"http://[2002:7f00:1::]:PORT/", "6to4"},
	"Teredo":                  {"http://[2001:0:7f00:1::80ff:fffe]:PORT/", "Teredo"},
	"zone":                    {"http://[fe80::1%25lo]:PORT/", "zone"},
	"zone of loopback":        {"http://[::1%25lo]:PORT/", "zone"},
	"link-local":              {"http://[fe80::1]:PORT/", "link-local"},
	"unique local":            {"http://[fd00:ec2::254]:PORT/latest/meta-data/", "private"},
	"multicast":               {"http://224.0.0.1:PORT/", "multicast"},
	"broadcast":               {"http://255.255.255.255:PORT/", "reserved"},
	"private, 10":             {"http://10.0.0.1:PORT/", "private"},
	"private, 172":            {"http://172.31.255.255:PORT/", "private"},
	"private, 192":            {"http://192.168.1.1:PORT/", "private"},
	"carrier":                 {"http://100.64.0.1:PORT/", "carrier"},
	"metadata":                {"http://169.254.169.254/latest/meta-data/", "link-local"},
	"metadata, Alibaba":       {"http://100.100.100.200/", "carrier"},
	"metadata, Azure":         {"http://168.63.129.16/", "metadata"},
	"metadata by name":        {"http://metadata.google.internal/computeMetadata/v1/", "link-local"},
	"bracketed IPv4":          {"http://[127.0.0.1]:PORT/", "not a URL"},
	"bare IPv6":               {"http://::1/", "not a URL"},
	"localhost":               {"http://localhost:PORT/", "this machine"},
	"localhost, mixed case":   {"http://LocalHost:PORT/", "this machine"},
	"under localhost":         {"http://a.localhost:PORT/", "this machine"},
	"localhost with a dot":    {"http://localhost.:PORT/", "ends in a dot"},
	"address with a dot":      {"http://127.0.0.1.:PORT/", "ends in a dot"},
	"name with a dot":         {"https://private.test./", "ends in a dot"},
	"name of a private one":   {"http://private.test:PORT/", "private"},
	"name of a mapped one":    {"http://mapped.test:PORT/", "loopback"},
	"name, public first":      {"http://both.test:PORT/", "loopback"},
	"name, private first":     {"http://htob.test:PORT/", "loopback"},
	"name of a zone":          {"http://zone.test:PORT/", "zone"},
	"user":                    {"http://SECRET@public.test/", "user name or password"},
	"password":                {"http://user:SECRET@public.test/", "user name or password"},
	"host as user":            {"http://public.test@127.0.0.1:PORT/", "user name or password"},
	"host as user, encoded":   {"http://public.test%2f@127.0.0.1:PORT/", "user name or password"},
	"two at signs":            {"http://a@public.test@127.0.0.1:PORT/", "user name or password"},
	"empty user":              {"http://@127.0.0.1:PORT/", "user name or password"},
	"backslash":               {`http://public.test\@127.0.0.1:PORT/`, "backslash"},
	"backslashes for slashes": {`http:\\127.0.0.1:PORT\`, "backslash"},
	"fragment":                {"http://public.test/#@127.0.0.1:PORT/", "fragment"},
	"fragment in the host":    {"http://127.0.0.1:PORT#public.test/", "fragment"},
	"tab":                     {"http://127.0.0.1\t:PORT/", "control character"},
	"line feed":               {"http://127.0.0.1:PORT/\r\nX-Evil: 1", "control character"},
	"space in front":          {" http://127.0.0.1:PORT/", "space"},
	"wide digits":             {"http://１２７.0.0.1:PORT/", "not ASCII"},
	"circled letters":         {"http://ⓛocalhost:PORT/", "not ASCII"},
	"ideographic dots":        {"http://127。0。0。1:PORT/", "not ASCII"},
	"percent-encoded name":    {"http://%6cocalhost:PORT/", "not a URL"},
	"percent-encoded letter":  {"http://b%C3%BCcher.test/", "other than ASCII"},
	"percent-encoded dot":     {"http://127%2e0.0.1:PORT/", "not a URL"},
	"port with a sign":        {"http://127.0.0.1:+PORT/", "not a URL"},
	"port too large":          {"http://public.test:65536/", "port"},
	"port zero":               {"http://public.test:0/", "port"},
	"port zeros":              {"http://public.test:0000080/", "port"},
	"two ports":               {"http://127.0.0.1:PORT:80/", "not a URL"},
	"no port":                 {"http://127.0.0.1:/", "port"},
	"file":                    {"file:///etc/passwd", "neither http nor https"},
	"gopher":                  {"gopher://127.0.0.1:PORT/_", "neither http nor https"},
	"ftp":                     {"ftp://127.0.0.1:PORT/", "neither http nor https"},
	"git":                     {"git://127.0.0.1:PORT/", "neither http nor https"},
	"ssh":                     {"ssh://127.0.0.1:PORT/", "neither http nor https"},
	"ext":                     {"ext::sh", "neither http nor https"},
	"data":                    {"data:text/plain,x", "neither http nor https"},
	"unix":                    {"unix:///var/run/docker.sock", "neither http nor https"},
	"no scheme":               {"//127.0.0.1:PORT/", "neither http nor https"},
	"no scheme, no slashes":   {"127.0.0.1/", "neither http nor https"},
	"opaque":                  {"http:127.0.0.1:PORT/", "without a host"},
	"no host":                 {"http:///127.0.0.1:PORT/", "without a host"},
	"one slash":               {"http:/127.0.0.1:PORT/", "without a host"},
	"long":                    {"http://public.test/" + strings.Repeat("a", 2048), "longer than"},
	"long label":              {"http://" + strings.Repeat("a", 64) + ".test/", "not a host name"},
	"nothing":                 {"", "neither http nor https"},
}

// names are the names of the resolver of these tests.
var names = map[string][]string{
	"public.test":              {"93.184.216.34"},
	"private.test":             {"10.0.0.1"},
	"mapped.test":              {"::ffff:127.0.0.1"},
	"both.test":                {"93.184.216.34", "127.0.0.1"},
	"htob.test":                {"127.0.0.1", "93.184.216.34"},
	"zone.test":                {"2606:4700::1%lo"},
	"metadata.google.internal": {"169.254.169.254"},
	"local.test":               {"127.0.0.1"},
}

func resolve(_ context.Context, host string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, text := range names[strings.ToLower(host)] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if addrs == nil {
		return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
	}
	return addrs, nil
}

// counters count forbidden events.
type counters struct{ dialled, served atomic.Int64 }

// listener returns a server on the loopback interface and its port, and a client that counts.
func listener(t *testing.T, handler http.Handler) (*httptest.Server, string, *counters) {
	t.Helper()
	var seen counters
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.served.Add(1)
		if handler != nil {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return server, port, &seen
}

func (c *counters) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.dialled.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func TestHostileURLs(t *testing.T) {
	t.Parallel()
	_, port, seen := listener(t, nil)
	guard := parse(t)
	client := guard.Client(outbound.Options{Resolve: resolve, Dial: seen.dial})
	if len(hostile) < 40 {
		t.Errorf("only %d URLs", len(hostile))
	}
	for name, test := range hostile {
		raw := strings.ReplaceAll(test.url, "PORT", port)
		// Once with a check of the URL, as every caller should do, and once without it.
		_, checked := guard.CheckURL(raw)
		if checked != nil {
			refused(t, name+", checked", checked, test.why)
		}
		u, err := url.Parse(raw)
		if err != nil {
			if checked == nil {
				t.Errorf("%s: what is no URL was not refused", name)
			}
			continue
		}
		response, err := client.Do(&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: %q was asked", name, raw)
			continue
		}
		// Else the standard library has refused it, in words of its own.
		if checked == nil || u.Scheme == "http" && u.Host != "" {
			refused(t, name, err, "")
		}
		if checked == nil {
			refused(t, name, err, test.why)
		}
	}
	if seen.dialled.Load() != 0 || seen.served.Load() != 0 {
		t.Errorf("%d addresses were dialled and %d requests served", seen.dialled.Load(), seen.served.Load())
	}
}

// refused fails the test unless err is a refusal with these words and without secrets.
func refused(t *testing.T, name string, err error, why string) {
	t.Helper()
	refusal, ok := errors.AsType[*outbound.RefusedError](err)
	if !ok {
		t.Errorf("%s: no refusal: %v", name, err)
		return
	}
	if !strings.Contains(refusal.Why, why) || strings.Contains(refusal.Error(), "SECRET") || len(refusal.Error()) > 400 {
		t.Errorf("%s: %v, want %q", name, refusal, why)
	}
}

func TestHostileRedirects(t *testing.T) {
	t.Parallel()
	_, elsewhere, other := listener(t, nil)
	var port string
	tests := map[string]struct{ location, why string }{
		"another port":        {"http://local.test:" + elsewhere + "/", "another origin"},
		"another name of it":  {"http://127.0.0.1:PORT/", "loopback"},
		"another host":        {"http://public.test/", "another origin"},
		"a private address":   {"http://10.0.0.1/", "private"},
		"metadata":            {"//169.254.169.254/", "link-local"},
		"another scheme":      {"https://local.test:PORT/", "another origin"},
		"a scheme of files":   {"file:///etc/passwd", "neither http nor https"},
		"a password":          {"http://u:SECRET@local.test:PORT/end", "user name or password"},
		"round and round":     {"/round", "redirects"},
		"a name below it":     {"http://a.local.test:PORT/", "another origin"},
		"a name that extends": {"http://local.test.evil.test:PORT/", "another origin"},
		"octal":               {"http://0177.0.0.1:PORT/", "usual form"},
	}
	_, port, seen := listener(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", strings.ReplaceAll(r.URL.Query().Get("to"), "PORT", port))
		if r.URL.Path == "/round" {
			w.Header().Set("Location", "/round")
		}
		w.WriteHeader(http.StatusFound)
	}))
	client := parse(t, "local.test").Client(outbound.Options{Resolve: resolve, Dial: seen.dial})
	for name, test := range tests {
		before := seen.served.Load()
		_, err := get(t, client, "http://local.test:"+port+"/?to="+url.QueryEscape(test.location))
		refused(t, name, err, test.why)
		if got := seen.served.Load() - before; got != 1 && name != "round and round" || got > 4 {
			t.Errorf("%s: %d requests served", name, got)
		}
	}
	if other.served.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestRedirectOnOneOrigin(t *testing.T) {
	t.Parallel()
	_, port, seen := listener(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
			return
		}
		_, _ = fmt.Fprint(w, r.URL.Path, r.Header.Get("Authorization"))
	}))
	client := parse(t, "local.test").Client(outbound.Options{Resolve: resolve, Dial: seen.dial})
	if body, err := get(t, client, "http://local.test:"+port+"/old"); err != nil || body != "/new" {
		t.Errorf("%q, %v", body, err)
	}
	client = parse(t, "local.test").Client(outbound.Options{Resolve: resolve, Dial: seen.dial, RedirectsMax: -1})
	_, err := get(t, client, "http://local.test:"+port+"/old")
	refused(t, "none", err, "more than 0 redirects")
}

// TestAllowed covers the targets that an allow list permits, and others.
func TestAllowed(t *testing.T) {
	t.Parallel()
	_, port, seen := listener(t, nil)
	tests := map[string]struct {
		allow []string
		url   string
		why   string // "" when it is allowed
	}{
		"host":                    {[]string{"local.test"}, "http://local.test:PORT/", ""},
		"host, upper case":        {[]string{"LOCAL.test"}, "http://Local.Test:PORT/", ""},
		"host, by its address":    {[]string{"local.test"}, "http://127.0.0.1:PORT/", "loopback"},
		"host, both ways":         {[]string{"both.test"}, "http://htob.test:PORT/", "loopback"},
		"network":                 {[]string{"127.0.0.0/8"}, "http://127.0.0.1:PORT/", ""},
		"network, by name":        {[]string{"127.0.0.0/8"}, "http://local.test:PORT/", ""},
		"network, mapped":         {[]string{"127.0.0.0/8"}, "http://[::ffff:127.0.0.1]:PORT/", "inside an IPv6"},
		"network, in odd forms":   {[]string{"127.0.0.0/8"}, "http://127.1:PORT/", "usual form"},
		"address":                 {[]string{"127.0.0.1"}, "http://127.0.0.1:PORT/", ""},
		"another address":         {[]string{"127.0.0.2"}, "http://127.0.0.1:PORT/", "loopback"},
		"a name below":            {[]string{"test"}, "http://local.test:PORT/", "loopback"},
		"localhost, not its name": {[]string{"127.0.0.1"}, "http://localhost:PORT/", "this machine"},
	}
	for name, test := range tests {
		client := parse(t, test.allow...).Client(outbound.Options{Resolve: resolve, Dial: seen.dial})
		before := seen.served.Load()
		_, err := get(t, client, strings.ReplaceAll(test.url, "PORT", port))
		served := seen.served.Load() - before
		if test.why != "" {
			refused(t, name, err, test.why)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (served == 1) != (test.why == "") {
			t.Errorf("%s: %d requests served", name, served)
		}
		client.CloseIdleConnections()
	}
}

// TestRebinding is a name that is public when it is looked at and private when it is connected to.
func TestRebinding(t *testing.T) {
	t.Parallel()
	_, port, seen := listener(t, nil)
	var mu sync.Mutex
	asked := 0
	rebinding := func(context.Context, string) ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if asked == 1 {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	var dialled []string
	client := parse(t).
		Client(outbound.Options{Resolve: rebinding, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialled = append(dialled, address)
			return nil, errors.New("unreachable")
		}})
	_, err := get(t, client, "http://rebinding.test:"+port+"/")
	if _, ok := errors.AsType[*outbound.RefusedError](err); err == nil || ok {
		t.Errorf("the public address: %v", err)
	}
	_, err = get(t, client, "http://rebinding.test:"+port+"/")
	refused(t, "rebound", err, "loopback")
	mu.Lock()
	defer mu.Unlock()
	if len(dialled) != 1 || dialled[0] != "93.184.216.34:"+port || seen.served.Load() != 0 {
		t.Errorf("dialled %q, served %d", dialled, seen.served.Load())
	}
}
