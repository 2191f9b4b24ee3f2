package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine"
)

// TestStatusNotReady asks servers that are not ready, that are of another version, and that make no
// sense.
func TestStatusNotReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		status int
		out    string
		says   string
	}{
		"not ready": {
			answer: `{"ready":false,"readiness":"draining","writes_refused":"full","damage_count":1}`, status: exitFailed,
			out: "ready:         draining\n", says: "the server is not ready",
		},
		"refuses writes": {
			answer: `{"ready":true,"readiness":"ready, but","writes_refused":"writes are paused","audit_records_lost":1,"duties":[]}`,
			out:    "writes:        writes are paused\n",
		},
		"newer":    {answer: `{"ready":true,"readiness":"ready","mood":"good"}`, out: "ready:         ready\n"},
		"nonsense": {answer: `ready`, status: exitFailed, says: "the answer of the server"},
		"nothing":  {status: exitFailed, says: "the answer of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serveTasks(t, map[string]task{
				statusTask: func(_ context.Context, _ *engine.Host, _ json.RawMessage, out io.Writer) error {
					_, err := io.WriteString(out, test.answer+"\n")
					return err
				},
			})
			var out, errOut bytes.Buffer
			status := run(t.Context(), []string{"status", "--data", filepath.Dir(socket)}, streams{out: &out, errOut: &errOut})
			if status != test.status || !strings.Contains(out.String(), test.out) ||
				!strings.Contains(errOut.String(), test.says) {
				t.Errorf("status %d, %s%s", status, out.String(), errOut.String())
			}
		})
	}
}
