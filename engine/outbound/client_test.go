package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"packhorse/engine/outbound"
)

func parse(t *testing.T, allow ...string) *outbound.Guard {
	t.Helper()
	guard, err := outbound.ParseGuard(allow)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func check(t *testing.T, guard *outbound.Guard, raw string) *url.URL {
	t.Helper()
	u, err := guard.CheckURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// get returns the body of an answer.
func get(t *testing.T, client *http.Client, raw string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	return string(body), errors.Join(err, response.Body.Close())
}

// TestOtherAddress is a host of two addresses, the first of which cannot be reached.
func TestOtherAddress(t *testing.T) {
	t.Parallel()
	server, port, seen := listener(t, nil)
	client := parse(t).Client(outbound.Options{
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:4700::1111")}, nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "[2606:4700::1111]:"+port {
				return nil, errors.New("unreachable")
			}
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		},
	})
	if _, err := get(t, client, "http://two.test:"+port+"/"); err != nil || seen.served.Load() != 1 {
		t.Errorf("%v, %d requests served", err, seen.served.Load())
	}
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	client := parse(t).Client(outbound.Options{Resolve: func(context.Context, string) ([]netip.Addr, error) {
		return nil, nil
	}})
	if _, err := get(t, client, "http://none.test/"); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("error %v", err)
	}
	client = parse(t).Client(outbound.Options{Resolve: resolve})
	_, err := get(t, client, "http://unknown.test/")
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		t.Errorf("error %v", err)
	}
}

// TestNoProxy is a proxy in the environment, which would connect in the client's place.
func TestNoProxy(t *testing.T) {
	server, port, seen := listener(t, nil)
	t.Setenv("HTTP_PROXY", server.URL)
	t.Setenv("http_proxy", server.URL)
	client := parse(t).
		Client(outbound.Options{Resolve: resolve, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, errors.New("dialled " + address)
		}})
	_, err := get(t, client, "http://public.test:"+port+"/")
	if err == nil || !strings.Contains(err.Error(), "dialled 93.184.216.34:"+port) || seen.served.Load() != 0 {
		t.Errorf("error %v, %d requests served", err, seen.served.Load())
	}
}

// TestAnswers covers the heads and bodies of answers that the far side may send.
func TestAnswers(t *testing.T) {
	t.Parallel()
	_, port, seen := listener(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			for range 100 {
				w.Header().Add("X-Long", strings.Repeat("x", 1<<10))
			}
		case "/encoding":
			_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
		}
	}))
	client := parse(t, "local.test").Client(outbound.Options{Resolve: resolve, Dial: seen.dial})
	if _, err := get(t, client, "http://local.test:"+port+"/head"); err == nil {
		t.Error("a head of 100 KiB was read")
	}
	if body, err := get(t, client, "http://local.test:"+port+"/encoding"); err != nil || body != "" {
		t.Errorf("encodings %q were asked for, %v", body, err)
	}
}

// TestErrorsAreShort is a far side that answers in another language, at length.
func TestErrorsAreShort(t *testing.T) {
	t.Parallel()
	const long = 60_000
	for name, answer := range map[string]string{
		"no HTTP":   strings.Repeat("\x01", long) + "\r\n\r\n",
		"no status": "HTTP/1.1 " + strings.Repeat("\xff", long) + "\r\n\r\n",
		"no header": "HTTP/1.1 200 OK\r\n" + strings.Repeat("\x02", long) + "\r\n\r\n",
		"no location": "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://a:b" + strings.Repeat("\xfe", long) +
			"/\r\n\r\n",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadAtLeast(conn, make([]byte, 4<<10), 1)
			_, _ = io.WriteString(conn, answer)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
		client := parse(t, "127.0.0.1").Client(outbound.Options{})
		_, err = get(t, client, "http://"+listener.Addr().String()+"/")
		client.CloseIdleConnections()
		if err == nil || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\x01\n") {
			t.Errorf("%s: an error of %d bytes: %.100v", name, len(fmt.Sprint(err)), err)
		}
		_ = listener.Close()
		<-ended
	}
}
