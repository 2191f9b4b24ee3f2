package api_test

import (
	"net/http"
	"strings"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/odb/span"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceParent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// The trace of a request is in its context and in its line of the log; what the standard tells to
// ignore is.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	f := serve(t, map[string]api.Handler{"GET /x": func(x exchange.Exchange, _ *auth.Grant) error {
		var sent []string
		span.Carry(x.Context(), func(name, value string) { sent = append(sent, name+" "+value) })
		x.Respond(http.StatusOK, "text/plain", []byte(strings.Join(sent, "\n")))
		return nil
	}}, nil)
	tests := map[string]struct{ headers, want string }{
		"none":     {"", ""},
		"one":      {"traceparent: " + traceParent + "\n", "Traceparent " + traceParent},
		"state":    {"tracestate: a=1\nTraceParent: " + traceParent + "\nTraceState: b=2\n", "Traceparent " + traceParent + "\nTracestate a=1,b=2"},
		"two":      {"traceparent: " + traceParent + "\ntraceparent: " + traceParent + "\n", ""},
		"no hex":   {"traceparent: 00-" + strings.Repeat("z", 32) + traceParent[35:] + "\n", ""},
		"no span":  {"traceparent: 00-" + traceID + "-0000000000000000-01\ntracestate: a=1\n", ""},
		"no state": {"traceparent: " + traceParent + "\ntracestate: =\n", "Traceparent " + traceParent},
	}
	for name, test := range tests {
		c := f.dial(t)
		agent := "test/" + strings.ReplaceAll(name, " ", "-")
		c.send("GET /x HTTP/1.1\nHost: x\nUser-Agent: " + agent + "\nAuthorization: " + token("r", "git:read") + "\n" + test.headers + "\n")
		got := c.receive(http.MethodGet)
		if got.StatusCode != http.StatusOK || got.body != test.want {
			t.Errorf("%s: %d %q, want %q", name, got.StatusCode, got.body, test.want)
		}
		if id := got.Header.Get("X-Request-Id"); id == "" || strings.Contains(id, traceID) {
			t.Errorf("%s: the request is %q", name, id)
		}
		for line := range strings.Lines(f.log.String()) {
			if strings.Contains(line, "user_agent="+agent+" ") && strings.Contains(line, " trace_id="+traceID) != (test.want != "") {
				t.Errorf("%s: logged %s", name, line)
			}
		}
		if !strings.Contains(f.log.String(), "user_agent="+agent+" ") {
			t.Errorf("%s: not logged", name)
		}
	}
}
