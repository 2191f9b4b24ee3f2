package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// checkConfig runs config check in this process. It returns its status, what it prints, and its
// complaints, without the name in front of each.
func (w *workspace) checkConfig(args ...string) (status int, out string, said []string) {
	w.t.Helper()
	before := w.tree()
	var stdout, stderr bytes.Buffer
	for i := range args {
		args[i] = w.paths.Replace(args[i])
	}
	status = run(w.t.Context(), append([]string{"config", "check"}, args...), streams{out: &stdout, errOut: &stderr})
	for line := range strings.Lines(stderr.String()) {
		said = append(said, strings.TrimSuffix(strings.TrimPrefix(line, "packhorse: "), "\n"))
	}
	if after := w.tree(); !slices.Equal(after, before) {
		w.t.Errorf("there is\n%s\nand was\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	return status, stdout.String(), said
}

// mustSay wants each text in the complaint of its place, and no other.
func (w *workspace) mustSay(said []string, want ...string) {
	w.t.Helper()
	same := len(said) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = strings.Contains(said[i], w.paths.Replace(want[i]))
	}
	if !same {
		w.t.Errorf("it says\n%s\nwant\n%s", strings.Join(said, "\n"), w.paths.Replace(strings.Join(want, "\n")))
	}
}

func (w *workspace) put(name, text string, mode os.FileMode) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
}

// TestConfigCheckAll gives a configuration that is wrong in many ways, on the command line, in the
// environment and in a file, and wants all of them, a line each.
func TestConfigCheckAll(t *testing.T) {
	w := newWorkspace(t)
	w.put("c.yaml", w.paths.Replace(`memroy: 1GiB
listen: 8080
tls-cert: FILE
tls-key: [a, b]
log-format: xml
admin-listen: 127.0.0.1:http
drain: soon
drain: 3s
trusted-proxies: [10.0.0.0/8, proxy]
connections: 10
connections-per-address: 20
secret-key: FILE
github-app-id: 7
`), 0o600)
	for name, value := range map[string]string{
		"PACKHORSE_MEMORY": "much", "PACKHORSE_IDLE_WAIT": "0s", "PACKHORSE_CONSOLE": "perhaps", "PACKHORSE_MEMROY": "1",
	} {
		t.Setenv(name, value)
	}
	status, out, said := w.checkConfig("--config", "ABOVE/c.yaml", "--orgs", "FILE", "--json-max", "0", "--object-max=40GiB")
	if status != exitUsage || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	slices.Sort(said)
	w.mustSay(said,
		`--admin-listen: "127.0.0.1:http" is not an address: expected HOST:PORT, as in 127.0.0.1:8080 or :8080 (from ABOVE/c.yaml:6)`,
		"--console: ", // from the environment
		`--drain: "soon" is not a time span: expected a number and a unit, as in 90s, 36h or 30d (from ABOVE/c.yaml:7)`,
		"--github-app-id and --github-app-key go together",
		"--idle-wait: 0s is too short: expected 1ms or more (from the environment variable PACKHORSE_IDLE_WAIT)",
		"--json-max: 0 is too little: expected 1KiB or more",
		`--listen: "8080" is not an address: expected HOST:PORT, as in 127.0.0.1:8080 or :8080 (from ABOVE/c.yaml:2)`,
		`--log-format: must be one of text, json, but is "xml" (from ABOVE/c.yaml:5)`,
		`--memory: "much" is not a size`,
		"--orgs: ",
		"--secret-key: FILE must hold 32 random bytes",
		"--tls-key: takes one value, and no list (from ABOVE/c.yaml:4)",
		`--trusted-proxies: `,
		`configuration file ABOVE/c.yaml:1: no flag is named "memroy"; did you mean memory?`,
		`configuration file ABOVE/c.yaml:8: key "drain" is given twice, first in line 7`,
		"missing flags: --data=DIR",
		"warning: --connections-per-address: 20 is more than --connections, 10",
		"warning: --object-max: no push brings an object of 40GiB, which is more than --inflated-max, 20GiB",
		"warning: the environment variable PACKHORSE_MEMROY gives no flag; did you mean PACKHORSE_MEMORY?",
	)
}

// TestConfigCheckSurroundings looks at what the flags name.
func TestConfigCheckSurroundings(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().String()
	w := newWorkspace(t)
	w.put("orgs/acme/org.yaml", "limit: 1\n", 0o600)
	w.put("orgs/alpha/org.yaml", "limits: {requests_per_second: -1}\n", 0o600)
	w.put("orgs/beta/k.pem", "no key", 0o600)
	w.put("orgs/gamma/README", "", 0o600)
	w.put("half/RESTORING", "", 0o600)
	w.put("blocks/blocks/x", "", 0o600)
	w.put("secret", strings.Repeat("x", 32), 0o644)
	w.put("short", "", 0o600)
	if err := os.Chmod(filepath.Join(w.dir, "secret"), 0o644); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	good := []string{"--data", "ABSENT", "--listen", "127.0.0.1:0", "--min-free", "1KiB"}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"good":             {args: []string{"--orgs", "FULL"}, want: []string{"warning: --orgs: FULL has no organization yet"}},
		"nothing":          {want: []string{"missing flags: --orgs=DIR"}},
		"broken":           {args: []string{"--orgs", "ABOVE/orgs"}, want: []string{"--orgs: ABOVE/orgs/acme/org.yaml: line 1: unknown key \"limit\": the keys there are webhooks, ", "--orgs: ABOVE/orgs/alpha/org.yaml: limits.requests_per_second: want a number from 0.001 to 1000000", "--orgs: ABOVE/orgs/beta/k.pem: "}},
		"taken":            {args: []string{"--orgs", "ABOVE/orgs/gamma", "--listen", port, "--admin-listen", port}, want: []string{"--listen: " + port, "--admin-listen: " + port, "warning: --orgs"}},
		"the same twice":   {args: []string{"--orgs", "ABOVE/orgs/gamma", "--listen", "127.0.0.1:PORT", "--admin-listen", "127.0.0.1:PORT"}, want: []string{"--admin-listen: ", "warning: --orgs"}},
		"half restored":    {args: []string{"--orgs", "ABOVE/orgs/gamma", "--data", "ABOVE/half"}, want: []string{"ABOVE/half contains a partly restored backup", "warning: --orgs"}},
		"of other servers": {args: []string{"--orgs", "ABOVE/orgs/gamma", "--data", "ABOVE/blocks"}, want: []string{"--data: ABOVE/blocks is the data folder of a server with --keys", "warning: --orgs"}},
		"half of TLS":      {args: []string{"--orgs", "ABOVE/orgs/gamma", "--tls-cert", "FILE"}, want: []string{"--tls-cert and --tls-key go together", "warning: --orgs"}},
		"no TLS":           {args: []string{"--orgs", "ABOVE/orgs/gamma", "--tls-cert", "FILE", "--tls-key", "FILE"}, want: []string{"--tls-cert and --tls-key: FILE and FILE: ", "warning: --orgs"}},
		"half of a store":  {args: []string{"--orgs", "ABOVE/orgs/gamma", "--files", "s3://bucket"}, want: []string{"--keys and --files go together", "warning: --orgs"}},
		"loose":            {args: []string{"--orgs", "ABOVE/orgs/gamma", "--secret-key", "ABOVE/secret"}, want: []string{"warning: --orgs", "warning: --secret-key: other users of this machine can read ABOVE/secret"}},
		"no room":          {args: []string{"--orgs", "ABOVE/orgs/gamma", "--min-free", "1000000GiB"}, want: []string{"warning: --orgs", "warning: --min-free: writes are refused below"}},
		"little memory":    {args: []string{"--orgs", "ABOVE/orgs/gamma", "--memory", "16MiB", "--ingest-memory", "17MiB"}, want: []string{"warning: --orgs", "warning: --ingest-memory: 17MiB for one pack is more than --memory, 16MiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &workspace{t: t, dir: w.dir, paths: w.paths}
			free, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, freePort, _ := net.SplitHostPort(free.Addr().String())
			if err := free.Close(); err != nil {
				t.Fatal(err)
			}
			args := append(slices.Clone(good), test.args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "PORT", freePort)
			}
			status, out, said := w.checkConfig(args...)
			w.mustSay(said, test.want...)
			wrong := slices.ContainsFunc(test.want, func(text string) bool { return !strings.HasPrefix(text, "warning: ") })
			if want := map[bool]int{true: exitUsage, false: exitOK}[wrong]; status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			if want := map[bool]string{true: "", false: "the configuration is good\n"}[wrong]; out != want {
				t.Errorf("it prints %q, want %q", out, want)
			}
		})
	}
}

// TestConfigCheckEnd looks at certificates by their ends.
func TestConfigCheckEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	now := time.Now()
	if err := packhorsetest.WriteCertificate(cert, key); err != nil { // good for a day
		t.Fatal(err)
	}
	c := configCheckCommand{serveCommand: serveCommand{TLSCert: cert, TLSKey: key}}
	for after, want := range map[time.Duration]string{
		-20 * 24 * time.Hour: "", 0: "--tls-cert: " + cert + " ends on ", 48 * time.Hour: "--tls-cert: " + cert + " ended on ",
	} {
		var found findings
		c.lookAtTLS(now.Add(after), &found)
		got := strings.Join(append(found.wrong, found.odd...), "; ")
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") || (after > 0) != (len(found.wrong) > 0) {
			t.Errorf("%s later: %+v, want %q", after, found, want)
		}
	}
}
