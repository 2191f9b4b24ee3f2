package mcp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/mcp"
)

// recorder answers all calls and keeps them.
type recorder struct{ calls []mcp.Call }

func (r *recorder) Offers(*auth.Grant, string, string) bool { return true }

func (r *recorder) Call(_ exchange.Exchange, call mcp.Call) (*mcp.Answer, error) {
	r.calls = append(r.calls, call)
	return &mcp.Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte(`{"a":1}` + "\n"), Size: 8}, nil
}

// FuzzMessage holds a message of any bytes to this: the answer is nothing, or one message of
// JSON-RPC with either a result or an error and with the ID of the request; and the calls of the
// API that it leads to are a few, each with a body of JSON, in which no guard is that was not among
// the arguments under that name.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","arguments":{"limit":3,"path":"a"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_files","arguments":{"paths":["a","b"]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a","offset":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"commit","arguments":{"target_branch":"m",` +
			`"commit_message":"x","author":{"name":"A","email":"b"},"expected_target_sha":"","files":[{"path":"f","text":"x"},` +
			`{"path":"g","base64":"AA==","mode":"100755"},{"path":"h","delete":true}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grep","arguments":{"pattern":"x","before":1}}}`,
		`[1]`, `{`, ``,
	} {
		f.Add([]byte(seed), "", "")
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`),
		"2026-07-28", "server/discover")
	f.Fuzz(func(t *testing.T, body []byte, version, method string) {
		r := &recorder{}
		x := exchangetest.New(http.MethodPost, "/mcp", bytes.NewReader(body))
		x.RequestHeaders = http.Header{
			"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {version}, "Mcp-Method": {method},
		}
		if err := mcp.New(r, 1<<20, "1").Serve(x, &auth.Grant{}); err != nil {
			t.Fatal(err)
		}
		answer, err := x.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status == http.StatusAccepted && len(answer.Body) == 0 {
			return
		}
		var told struct {
			JSONRPC string
			ID      any
			Result  map[string]any
			Error   *struct{ Code int }
		}
		if err := json.Unmarshal(answer.Body, &told); err != nil || told.JSONRPC != "2.0" ||
			(told.Result == nil) == (told.Error == nil) {
			t.Fatalf("%v: %s", err, answer.Body)
		}
		var asked struct{ ID any }
		if told.Result != nil && (json.Unmarshal(body, &asked) != nil || asked.ID != told.ID) {
			t.Errorf("the ID is %v, and the answer's %v", asked.ID, told.ID)
		}
		if len(r.calls) > 100 {
			t.Errorf("%d calls", len(r.calls))
		}
		for _, call := range r.calls {
			if !strings.HasPrefix(call.Path, "/api/v1/") || call.AnswerMax < 1 || call.AnswerMax > 1<<20 {
				t.Errorf("the call %+v", call)
			}
			for line := range bytes.Lines(call.Body) {
				if !json.Valid(line) {
					t.Errorf("a line of the body is %q", line)
				}
			}
			if bytes.Contains(call.Body, []byte(`"expected_`)) && !bytes.Contains(body, []byte("expected")) &&
				!bytes.Contains(body, []byte(`\u`)) {
				t.Errorf("a guard from nowhere: %s", call.Body)
			}
		}
	})
}
