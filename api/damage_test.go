package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/odb"
)

// TestDamageIsCountedAndNamed reads damaged bytes before an answer, in the midst of one, and where
// the answer reports it in a form of its own: each is counted, logged with the repository, and
// never looks like a success to the client. A store that is cut off is never the client's mistake.
func TestDamageIsCountedAndNamed(t *testing.T) {
	t.Parallel()
	damage := fmt.Errorf("read: %w", &odb.CorruptError{File: "1234.segment", Why: "checksum"})
	stream := func(err error) api.Handler {
		return func(x exchange.Exchange, _ *auth.Grant) error {
			x.StreamSized(200, "text/plain", int64(len(half)+1), func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, half)
				return err
			})
			return nil
		}
	}
	tests := map[string]struct {
		handler api.Handler
		status  int
		cut     bool
		counted bool
		logged  bool
	}{
		"before the answer": {func(exchange.Exchange, *auth.Grant) error { return damage }, 500, false, true, true},
		"in the answer":     {stream(damage), 200, true, true, true},
		"as a report": {func(x exchange.Exchange, _ *auth.Grant) error {
			x.Failed(damage)
			x.Respond(200, "text/plain", []byte("unpack internal error"))
			return nil
		}, 200, false, true, true},
		"a file that ends early": {
			func(exchange.Exchange, *auth.Grant) error { return io.ErrUnexpectedEOF }, 500, false, false, true,
		},
		"a file that ends in the answer": {stream(io.ErrUnexpectedEOF), 200, true, false, true},
		"a body that ends early": {
			func(exchange.Exchange, *auth.Grant) error { return exchange.ErrEndedEarly }, 400, false, false, false,
		},
		"an answer that nobody takes now": {stream(exchange.ErrGone), 200, true, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, map[string]api.Handler{"GET /x": test.handler}, nil)
			c := f.dial(t)
			c.send("GET /x HTTP/1.1\nHost: x\nAuthorization: " + token("team/r", "git:read") + "\n\n")
			if a := c.receive(http.MethodGet); a.StatusCode != test.status || (a.cut != nil) != test.cut {
				t.Errorf("status %d, %v; want %d, cut %t", a.StatusCode, a.cut, test.status, test.cut)
			}
			c = f.dial(t)
			c.send("GET /metrics HTTP/1.1\nHost: x\n\n")
			count := "packhorse_corrupt_answers_total 0\n"
			if test.counted {
				count = "packhorse_corrupt_answers_total 1\n"
			}
			if a := c.receive(http.MethodGet); !strings.Contains(a.body, count) {
				t.Errorf("the metrics lack %q", count)
			}
			var line string
			for said := range strings.Lines(f.log.String()) {
				if strings.Contains(said, "level=ERROR") {
					line += said
				}
			}
			for _, want := range []string{"request_id=", "org=acme", "repo=team/r", "error="} {
				if strings.Contains(line, want) != test.logged {
					t.Errorf("logged %q; want %q: %t", line, want, test.logged)
				}
			}
			if test.counted && !strings.Contains(line, "1234.segment") || strings.Count(line, "\n") > 1 {
				t.Errorf("logged %q", line)
			}
		})
	}
}

// TestReadyWithDamage asks a server that has read damaged bytes.
func TestReadyWithDamage(t *testing.T) {
	t.Parallel()
	f := serve(t, nil, func(c *api.Config) {
		c.Damage = func() int { return 3 }
		c.Writable = func() error { return errors.New("the disk is full") }
	})
	status, text := readiness(f)
	if status != http.StatusOK || !strings.HasPrefix(text, "ready, but nothing can be written: ") ||
		!strings.Contains(text, "; 3 stored things were found damaged") ||
		!bytes.HasSuffix([]byte(text), []byte("\n")) {
		t.Errorf("%d %q", status, text)
	}
}
