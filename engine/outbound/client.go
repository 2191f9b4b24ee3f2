package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"

	"packhorse/odb/span"
)

// Options are the limits of a client. The zero value is one that suits most.
type Options struct {
	DialTimeout    time.Duration // to resolve and to connect; 10 s
	TLSTimeout     time.Duration // 10 s
	HeaderTimeout  time.Duration // from the end of a request to the head of its answer; 60 s, and no limit when negative
	IdleTimeout    time.Duration // time that an unused connection is kept; 60 s
	HeaderBytesMax int64         // of an answer's head; 64 KiB
	RedirectsMax   int           // on the same origin; 3, and none when negative
	ConnsMax       int           // to one host at a time; 8

	TLS *tls.Config // nil trusts the system's roots, or those in SSL_CERT_FILE

	// Resolve and Dial replace the system's resolver and network if not nil. Dial gets addresses
	// that the guard has allowed, never names.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client returns a client that connects only to addresses that the guard allows. It tells servers
// of the trace in the context of a request, if there is one (package span).
//
// It does not limit the size of an answer or its total time; the caller does, with a limited reader
// and a context. Its errors are [*url.Error]s, which quote the URL and wrap an error of one short
// line, a [*RefusedError] if the guard refused. Close its idle connections when it is not needed
// any more.
func (g *Guard) Client(o Options) *http.Client {
	d := &dialer{guard: g, resolve: o.Resolve, dial: o.Dial, timeout: cmp.Or(o.DialTimeout, 10*time.Second)}
	if d.resolve == nil {
		d.resolve = lookup
	}
	if d.dial == nil {
		d.dial = (&net.Dialer{}).DialContext
	}
	transport := &http.Transport{
		Proxy:                  nil, // one from the environment would resolve and dial in our place
		DialContext:            d.DialContext,
		TLSClientConfig:        o.TLS,
		TLSHandshakeTimeout:    cmp.Or(o.TLSTimeout, 10*time.Second),
		ResponseHeaderTimeout:  max(cmp.Or(o.HeaderTimeout, time.Minute), 0),
		IdleConnTimeout:        cmp.Or(o.IdleTimeout, time.Minute),
		MaxResponseHeaderBytes: cmp.Or(o.HeaderBytesMax, 64<<10),
		MaxConnsPerHost:        cmp.Or(o.ConnsMax, 8),
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    2,
		DisableCompression:     true, // a body that inflates would pass every limit on its bytes
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         64 << 10,
	}
	most := cmp.Or(o.RedirectsMax, 3)
	return &http.Client{
		Transport: &guarded{g, transport},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			return g.checkRedirect(next.URL, via[0].URL, len(via), most)
		},
	}
}

// checkRedirect refuses a redirect that leaves the first origin, or exceeds the number of
// redirects.
func (g *Guard) checkRedirect(next, first *url.URL, count, most int) error {
	if count > most {
		return refuse(first.Hostname(), fmt.Sprintf("more than %d redirects", max(most, 0)))
	}
	if err := g.checkParsed(next); err != nil {
		return err
	}
	if !SameOrigin(next, first) {
		return refuse(next.Hostname(), "a redirect to another origin")
	}
	return nil
}

// SameOrigin reports whether two URLs have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// guarded checks every request before the transport sends it.
type guarded struct {
	guard     *Guard
	transport *http.Transport
}

// RoundTrip sends a request if the guard allows its target. Errors: [*RefusedError], and those of
// the transport.
func (t *guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	if _, err := t.guard.CheckURL(request.URL.String()); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // as every RoundTripper has to; nothing was read from it
		}
		return nil, err
	}
	ctx, s := span.BeginKind(request.Context(), request.Method, span.Client)
	if span.From(ctx).IsValid() {
		request = request.Clone(ctx) // a RoundTripper must not change what it is given
		span.Carry(ctx, request.Header.Set)
	}
	response, err := t.transport.RoundTrip(request)
	if s != nil { // it ends with the head of the answer
		s.Text("http.request.method", request.Method)
		s.Text("server.address", request.URL.Hostname())
		if err == nil {
			s.Count("http.response.status_code", int64(response.StatusCode))
		}
		s.End(err)
	}
	if err != nil {
		return nil, &sendError{err}
	}
	if _, err := response.Location(); err != nil && !errors.Is(err, http.ErrNoLocation) {
		_ = response.Body.Close() // the client would quote all of the header
		return nil, refuse(request.URL.Hostname(), "a redirect to what is no URL")
	}
	return response, nil
}

// sendError is an error of the transport, with a text of bounded length: those of net/http quote
// the bytes that the far side has sent instead of an answer.
type sendError struct{ err error }

// sendTextMax bounds such a text, in bytes.
const sendTextMax = 400

// Error is the text of the transport's error, on one line.
func (e *sendError) Error() string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(e.err.Error(), "?"))
	if len(text) > sendTextMax {
		text = strings.ToValidUTF8(text[:sendTextMax], "") + "..."
	}
	return text
}

// Unwrap returns the error of the transport.
func (e *sendError) Unwrap() error { return e.err }

// Timeout is for [url.Error.Timeout].
func (e *sendError) Timeout() bool {
	timeout, ok := errors.AsType[net.Error](e.err)
	return ok && timeout.Timeout()
}

// CloseIdleConnections implements [http.Client.CloseIdleConnections].
func (t *guarded) CloseIdleConnections() { t.transport.CloseIdleConnections() }
