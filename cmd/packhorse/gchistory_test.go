package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestGCKeepsHistory maintains without a server: the history of an organization ends when its
// org.yaml says so, or the operator, and not because nobody has read that.
func TestGCKeepsHistory(t *testing.T) {
	t.Parallel()
	const warning = "no history is given up"
	for name, test := range map[string]struct {
		config string // of the organization
		args   []string
		kept   bool
		says   string
	}{
		"unknown":           {"keep_history: 0s\n", nil, true, warning},
		"of the operator":   {"keep_history: 30d\n", []string{"--grace", "0s"}, false, ""},
		"of org.yaml, none": {"keep_history: 0s\n", []string{"--orgs", "ORGS"}, false, ""},
		"of org.yaml, long": {"keep_history: 30d\n", []string{"--orgs", "ORGS", "--keep-history", "0s"}, true, ""},
		"long, at no grace": {"keep_history: 30d\n", []string{"--orgs", "ORGS", "--grace", "0s"}, true, ""},
		"no org.yaml":       {"", []string{"--orgs", "ORGS", "--keep-history", "0s"}, false, ""},
		"not understood":    {"keep_history: long\n", []string{"--orgs", "ORGS", "--keep-history", "0s"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := start(t, packhorsetest.Options{Dir: dir, Flags: []string{"--maintenance-off"}})
			token := create(t, server, "r")
			commit(t, server, token, 1, 1)
			commit(t, server, token, 2, 1)
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			orgs := filepath.Join(dir, "orgs")
			if test.config != "" {
				if err := os.WriteFile(filepath.Join(orgs, packhorsetest.Org, "org.yaml"), []byte(test.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"gc", "--data", filepath.Join(dir, "data")}
			for _, arg := range test.args {
				args = append(args, strings.Replace(arg, "ORGS", orgs, 1))
			}
			got := packhorse(t, nil, args...)
			if got.status != 0 || strings.Contains(got.errOut, warning) != (test.says != "") {
				t.Fatalf("%q: %+v", args, got)
			}
			server = start(t, packhorsetest.Options{Dir: dir, Flags: []string{"--maintenance-off"}})
			want := http.StatusOK
			if !test.kept {
				want = http.StatusGone
			}
			send(t.Context(), http.MethodGet, server.URL+"/api/v1/repos/file?path=f&at=seq:2", token, "", nil).mustBe(t, want)
		})
	}
}
