package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestCompletionBash asks a bash what it would complete, as readline does.
func TestCompletionBash(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("skipped: bash is not installed")
	}
	script := packhorse(t, nil, "completion", "bash")
	if script.status != 0 {
		t.Fatalf("%+v", script)
	}
	tests := []struct {
		words []string // the last one is completed
		want  []string // among others, unless all is set
		not   string
		all   bool
	}{
		{words: []string{"re"}, want: []string{"repos", "restore"}, all: true},
		{words: []string{""}, want: []string{"serve", "backup", "import", "version"}, not: "take"},
		{words: []string{"backup", ""}, want: []string{"check", "forget", "list", "take"}, all: true},
		{words: []string{"backup", "take", "--pr"}, want: []string{"--prune"}, all: true},
		{words: []string{"serve", "--log-l"}, want: []string{"--log-level"}, all: true},
		{words: []string{"serve", "--log-format", "j"}, want: []string{"json"}, all: true},
		{words: []string{"serve", "--log-format", "=", "t"}, want: []string{"text"}, all: true},
		{words: []string{"--config", "backup", "orga"}, all: true},
		{words: []string{"token", "--org", "serve", "--sc"}, want: []string{"--scope"}, all: true},
		{words: []string{"token", "--key", ""}, all: true}, // the names of files are bash's own
		{words: []string{"completion", ""}, want: []string{"bash", "fish", "zsh"}, all: true},
		{words: []string{"version", "--"}, want: []string{"--config", "--help"}, all: true},
	}
	var calls strings.Builder
	for _, test := range tests {
		words := append([]string{"packhorse"}, test.words...)
		fmt.Fprintf(&calls, "COMP_WORDS=(%s) COMP_CWORD=%d\n_packhorse\necho \"${COMPREPLY[*]}\"\n",
			"'"+strings.Join(words, "' '")+"'", len(words)-1)
	}
	path := write(t, "packhorse.bash", script.out)
	out, err := exec.Command("bash", "--norc", "-eu", "-c", "source "+path+"\n"+calls.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for i, test := range tests {
		got := strings.Fields(lines[i])
		slices.Sort(got)
		if test.all && !slices.Equal(got, test.want) || slices.Contains(got, test.not) {
			t.Errorf("%q: completed by %q, want %q", test.words, got, test.want)
		}
		for _, word := range test.want {
			if !slices.Contains(got, word) {
				t.Errorf("%q: completed by %q, without %s", test.words, got, word)
			}
		}
	}
}

// Shells that are installed take the scripts; that of each has every command.
func TestCompletionShells(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := packhorse(t, nil, "completion", shell)
		for _, word := range []string{"serve", "backup", "forget", "healthcheck", "import"} {
			if got.status != 0 || !strings.Contains(got.out, word) {
				t.Errorf("%s: no %s: status %d, %s", shell, word, got.status, got.errOut)
			}
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		if out, err := exec.Command(shell, "-n", write(t, "script", got.out)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}

// The manual has a page for each command, and groff has nothing against them.
func TestMan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	if got := packhorse(t, nil, "man", dir); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "packhorse-serve.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{".TH PACKHORSE\\-SERVE 1 ", `\fB\-\-listen\fR=\fIADDR\fR`, "Default: 1GiB.", "Variable: PACKHORSE_LISTEN."} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page of serve has no %s", text)
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("skipped: groff is not installed")
	}
	out, err := exec.Command("groff", append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	plain, secure := start(t, packhorsetest.Options{}), start(t, packhorsetest.Options{TLS: true})
	address := func(s *packhorsetest.Server) string {
		_, address, _ := strings.Cut(s.URL, "://")
		return address
	}
	_, port, _ := strings.Cut(address(plain), ":")
	draining := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			http.Error(w, "draining", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(draining.Close)
	tests := map[string]struct {
		env    []string
		args   []string
		status int
		told   string
	}{
		"ready":             {args: []string{"--listen", address(plain)}, told: "ready\n"},
		"all addresses":     {args: []string{"--listen", "0.0.0.0:" + port}, told: "ready\n"},
		"of the container":  {env: []string{"PACKHORSE_LISTEN=:" + port}, told: "ready\n"},
		"HTTPS":             {args: []string{"--listen", address(secure), "--tls-cert", secure.CACert}, told: "ready\n"},
		"not to be trusted": {args: []string{"--listen", address(plain), "--tls-cert", secure.CACert}, status: 1},
		"draining":          {args: []string{"--listen", draining.Listener.Addr().String()}, status: 1, told: "503: draining"},
		"nobody":            {args: []string{"--listen", "127.0.0.1:1"}, status: 1, told: "refused"},
		"no address":        {args: []string{"--listen", "here"}, status: 2, told: "--listen: "},
	}
	for name, test := range tests {
		got := packhorse(t, test.env, append([]string{"healthcheck"}, test.args...)...)
		if got.status != test.status || !strings.Contains(got.out+got.errOut, test.told) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
