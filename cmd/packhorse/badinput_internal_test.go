package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"packhorse/cmd/packhorse/packhorsetest"
)

// wrong is a value that is wrong, and a part of the complaint about it. In both FILE is a file that
// is there, FOLDER an empty folder, FULL one that is not, and ABSENT a path of nothing.
type wrong struct{ value, says string }

// The working folder must not stand in for a path that is empty, as of a variable without a value.
var (
	noFile   = wrong{"", "it is empty: expected the path of a file"}
	noFolder = wrong{"", "it is empty: expected the path of a folder"}
)

// wrongValues has the wrong values of each kind of text. A new kind needs some.
var wrongValues = map[string][]wrong{
	"text":          nil,
	"address":       {{"8080", "expected HOST:PORT"}, {"127.0.0.1:http", "expected HOST:PORT"}, {":65536", "expected HOST:PORT"}},
	"url":           {{"git.example.com", "expected one as in https://"}, {"ftp://a", "expected one as in https://"}, {"http://[", "expected one"}},
	"file":          {{"ABSENT", "no such file"}, {"FOLDER", "expected a file"}, {"FILE/x", "not a directory"}, noFile},
	"new file":      {{"FOLDER", "expected a file"}, {"FILE/x", "not a directory"}, noFile},
	"absent file":   {{"FILE", "exists: expected a file that does not"}, {"ABSENT/x", "expected a folder"}, {"FILE/x", "not a directory"}, noFile},
	"audit log":     {{"FOLDER", "expected a file"}, {"FILE/x", "expected a file"}, {"ABSENT/x", "expected a folder"}, {"", "it is empty"}},
	"folder":        {{"ABSENT", "expected a folder"}, {"FILE", "expected a folder"}, noFolder},
	"own folder":    {{"ABSENT", "expected a folder"}, {"FILE", "expected a folder"}, noFolder},
	"any folder":    {{"FILE", "expected a folder"}, {"FILE/a/b", "expected a folder"}, noFolder},
	"new folder":    {{"FILE", "expected a folder"}, {"FILE/a/b", "expected a folder"}, noFolder},
	"absent folder": {{"FOLDER", "exists: expected a folder that does not"}, {"FILE", "exists"}, {"FILE/a/b", "expected a folder"}, noFolder},
	"empty folder":  {{"FULL", "is not empty"}, {"FILE", "expected a folder"}, {"FILE/a", "expected a folder"}, noFolder},
	"bucket":        {{"bucket", "want s3://BUCKET"}, {"s3://b?x=1", "want s3://BUCKET"}},
	"database":      {{"localhost:5432", "the URL of the database"}, {"postgres://h:port/d", "the URL of the database"}},
	"collector":     {{"127.0.0.1:4318", "is no URL of a collector: expected"}, {"ftp://a", "is no URL of a collector"}},
	"network":       {{"10.0.0.0/99", "neither a network"}, {"proxy", "neither a network"}},
	"origin":        {{"app.example.com", "expected one as in https://"}, {"https://a.example/", "expected https://a.example"}, {"*,https://a.example", "* alone"}},
	"reachable":     {{"10.0.0.0/99", "expected a host name"}, {"a b", "expected a host name"}},
	"number":        {{"app", "expected one as in"}, {"-1", "expected one as in"}},
	"name":          {{"a/b", "expected 1 to 100 of"}, {"a b", "expected 1 to 100 of"}},
	"repository":    {{"a b", "is not the name of a repository"}, {"../x", "is not the name of a repository"}},
	"token's":       {{"a b", "is not the name of a repository"}},
	"repository id": {{"7", "is not the ID of a repository"}},
	"op":            {{"bogus", "expected no-push"}},
	"ref policy":    {{"main", "is not PATTERN=OP,OP"}, {"main=bogus", "expected no-push"}},
	"path policy":   {{"a", "is not PATTERN=OP,OP"}, {"a=no-push", "expected no-write"}},
}

// validArgs are what a command needs beside the flag that is tried: a value for each argument, and
// for the flags that it requires.
var validArgs = map[string]string{
	"dev":               "--data ABSENT --listen 127.0.0.1:0",
	"serve":             "--data ABSENT --listen 127.0.0.1:0 --orgs FOLDER",
	"config check":      "--data ABSENT --listen 127.0.0.1:0 --orgs ABOVE",
	"status":            "--data FOLDER",
	"org generate":      "acme --key ABSENT --orgs FOLDER",
	"org add":           "acme --key FILE --orgs FOLDER",
	"org apply":         "FOLDER --keys postgres://127.0.0.1:1/d",
	"org list":          "--orgs FOLDER",
	"org show":          "acme --orgs FOLDER",
	"org export":        "ABSENT --keys postgres://127.0.0.1:1/d",
	"org remove":        "acme --orgs FOLDER",
	"token sign":        "--org acme --key FILE",
	"token inspect":     "a.b.c",
	"credential":        "get --url http://127.0.0.1:1 --key FILE --org acme",
	"repos list":        "SERVER",
	"repos show":        "a SERVER",
	"repos rename":      "a b SERVER",
	"repos set-default": "a main SERVER",
	"repos delete":      "a SERVER",
	"repos undelete":    "a SERVER",
	"import":            "FOLDER SERVER",
	"export":            "a ABSENT SERVER",
	"gc":                "--data FOLDER",
	"backup take":       "ABSENT --data FOLDER",
	"backup list":       "FOLDER",
	"backup check":      "FOLDER",
	"backup forget":     "FOLDER --keep-last 1",
	"restore":           "FOLDER --data ABSENT",
	"migrate":           "--data FOLDER --keys postgres://127.0.0.1:1/d --files s3://bucket",
	"fsck":              "--data FOLDER",
	"webhooks list":     "--data FOLDER",
	"webhooks retry":    "--data FOLDER",
	"cluster":           "--keys postgres://127.0.0.1:1/d",
	"healthcheck":       "--listen 127.0.0.1:1",
	"completion":        "bash",
	"man":               "ABSENT",
	"version":           "",
	"SERVER (shared)":   "--url http://127.0.0.1:1 --org acme --key FILE",
}

// workspace is a folder with the files and folders that values name.
type workspace struct {
	t     *testing.T
	dir   string
	paths *strings.Replacer
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	w := &workspace{t: t, dir: t.TempDir()}
	at := func(name string) string { return filepath.Join(w.dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("text\n"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.Mkdir(at("full"), 0o700), os.WriteFile(at("full/file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.paths = strings.NewReplacer("ABOVE", w.dir, "FILE", at("file"), "FOLDER", at("folder"), "FULL", at("full"), "ABSENT", at("absent"))
	return w
}

// tree is everything in the workspace.
func (w *workspace) tree() (all []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprint(path, " ", info.Mode())
		if info.Mode().IsRegular() {
			line += fmt.Sprint(" ", info.Size())
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// args returns what a command needs, without the flag or the argument that is tried.
func (w *workspace) args(path, without string, arguments []*kong.Positional) []string {
	words := strings.Fields(strings.ReplaceAll(validArgs[path], "SERVER", validArgs["SERVER (shared)"]))
	args, position := strings.Fields(path), 0
	for i := 0; i < len(words); i++ {
		word := w.paths.Replace(words[i])
		if strings.HasPrefix(word, "--") {
			if word != "--"+without {
				args = append(args, word, w.paths.Replace(words[i+1]))
			}
			i++
			continue
		}
		if position >= len(arguments) || arguments[position].Name != without {
			args = append(args, word)
		}
		position++
	}
	return args
}

// refused runs a command in this process and wants it to be refused as bad input: with status 2 and
// one line that has all of says, and with nothing changed.
func (w *workspace) refused(args []string, says ...string) {
	w.t.Helper()
	before := w.tree()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute) // of a server that starts
	defer cancel()
	status := run(ctx, args, streams{out: &out, errOut: &errOut})
	line := errOut.String()
	if status != exitUsage || out.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "packhorse: ") {
		w.t.Errorf("packhorse %q: status %d, out %q, and it says\n%s", args, status, out.String(), line)
	}
	for _, text := range says {
		if text = w.paths.Replace(text); !strings.Contains(line, text) {
			w.t.Errorf("packhorse %q: it says\n%swithout %q", args, line, text)
		}
	}
	if after := w.tree(); !slices.Equal(after, before) {
		w.t.Errorf("packhorse %q: there is\n%s\nand was\n%s", args, strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// wrongFor returns the wrong values of a flag or an argument. It fails for one that could take a
// wrong value which nothing would find.
func wrongFor(t *testing.T, v *kong.Value, isFlag bool) []wrong {
	t.Helper()
	const least = "expected "
	switch v.Target.Interface().(type) {
	case bool:
		return []wrong{{"maybe", "bool value must be"}}
	case byteSize:
		rows := []wrong{{"much", "is not a size: expected"}, {"-1", "is not a size: expected"}, {"1TB", "is not a size: expected"}}
		if v.Tag.Has("min") {
			rows = append(rows, wrong{"0", "is too little: " + least + v.Tag.Get("min")})
		}
		return rows
	case time.Duration, *time.Duration:
		rows := []wrong{{"soon", "is not a time span: expected"}, {"7", "is not a time span"}, {"-1h", "is too short: " + least}}
		if v.Tag.Has("min") {
			rows = append(rows, wrong{"0s", "is too short: " + least + v.Tag.Get("min")})
		}
		return rows
	case int:
		rows := []wrong{{"many", "int but got"}, {"-1", "is too little: " + least}}
		if v.Tag.Has("min") {
			rows = append(rows, wrong{"0", "is too little: " + least + v.Tag.Get("min")})
		}
		return rows
	case float64:
		return []wrong{{"many", "float but got"}, {"-0.1", "is not a share: expected"}, {"2", "is not a share: expected"}, {"NaN", "is not a share: expected"}}
	case uint64:
		return []wrong{{"many", "uint but got"}, {"-1", "uint but got"}}
	}
	if v.Target.Type().String() == "slog.Level" {
		return []wrong{{"loud", "expected debug, info, warn or error"}}
	}
	if v.Enum != "" {
		return []wrong{{"bogus", "must be one of"}}
	}
	kind := v.Tag.Get("is")
	_, known := valueKinds[kind]
	if isText := v.Target.Kind() == reflect.String || v.Target.Type() == reflect.TypeFor[[]string](); !known || !isText {
		t.Errorf("%s (a flag: %t) of type %s has no kind in the tag `is`, by which a wrong value is found", v.Name, isFlag,
			v.Target.Type())
		return nil
	}
	rows, known := wrongValues[kind]
	if !known {
		t.Errorf("no wrong value is known of the kind %q", kind)
	}
	return rows
}

// TestWrongValues gives each flag and each argument of each command a wrong value: the first
// command that has a flag gets all of them, on the command line and in a configuration file.
func TestWrongValues(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool) // flags by name and type
	for _, shape := range commandShapes() {
		if len(shape.children) > 0 {
			continue
		}
		if _, known := validArgs[shape.path]; !known {
			t.Errorf("validArgs does not have %q", shape.path)
			continue
		}
		first := make(map[*kong.Flag]bool)
		for _, flag := range shape.flags {
			key := fmt.Sprint(flag.Name, flag.Target.Type(), flag.Tag.Get("is"), flag.Tag.Get("min"))
			first[flag], seen[key] = !seen[key], true
		}
		t.Run(shape.path, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t)
			for _, flag := range shape.flags {
				if flag.Name == "help" {
					continue
				}
				rows := wrongFor(t, flag.Value, true)
				if !first[flag] {
					rows = rows[:min(1, len(rows))]
				}
				for _, row := range rows {
					value := w.paths.Replace(row.value)
					args := w.args(shape.path, flag.Name, shape.args)
					w.refused(append(args, "--"+flag.Name+"="+value), "--"+flag.Name, row.says)
					if flag.Name == "config" || !first[flag] {
						continue
					}
					config := filepath.Join(t.TempDir(), "c.yaml")
					text := fmt.Sprintf("# settings\n%s: %q\n", flag.Name, value)
					if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					w.refused(append(args, "--config", config), flag.Name, config+":2", row.says)
				}
			}
			for _, argument := range shape.args {
				for _, row := range wrongFor(t, argument, false) {
					args := w.args(shape.path, argument.Name, shape.args)
					at := len(strings.Fields(shape.path)) + slices.Index(shape.args, argument)
					w.refused(slices.Insert(args, at, w.paths.Replace(row.value)), argument.Name, row.says)
				}
			}
			if strings.Contains(validArgs[shape.path], "--") || len(shape.args) > 0 {
				w.refused(append(w.args(shape.path, "", shape.args), "--no-such-flag"), "unknown flag --no-such-flag")
			}
		})
	}
}

// TestWrongSurroundings starts commands with flags that are right, where what they name is wrong.
func TestWrongSurroundings(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().String()
	for name, test := range map[string]struct {
		args string
		says []string
	}{
		"a taken port":         {"serve --data ABSENT --orgs FOLDER --listen " + port, []string{"--listen: " + port, "choose another one"}},
		"a taken port, dev":    {"dev --data ABSENT --listen " + port, []string{"--listen: " + port, "choose another one"}},
		"a taken port, TLS":    {"serve --data ABSENT --orgs FOLDER --tls-cert CERT --tls-key KEY --listen " + port, []string{"--listen: " + port}},
		"a taken private one":  {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --admin-listen " + port, []string{"--admin-listen: " + port}},
		"a locked folder, dev": {"dev --data LOCKED --listen 127.0.0.1:0", []string{"LOCKED is in use by another packhorse"}},
		"a taken private port": {"dev --data ABSENT --listen 127.0.0.1:0 --admin-listen " + port, []string{"--admin-listen: " + port}},
		"another machine":      {"serve --data ABSENT --orgs FOLDER --listen 192.0.2.1:80", []string{"--listen", "expected an address of this machine"}},
		"half of TLS":          {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --tls-cert FILE", []string{"--tls-cert and --tls-key go together"}},
		"no certificate":       {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --tls-cert FILE --tls-key FILE", []string{"--tls-cert and --tls-key: ", "FILE"}},
		"no secret key":        {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --secret-key FILE", []string{"--secret-key: FILE must hold 32 random bytes"}},
		"no secret key, dev":   {"dev --data ABSENT --listen 127.0.0.1:0 --secret-key FILE", []string{"--secret-key: FILE must hold 32 random bytes"}},
		"a missing secret key": {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --secret-key FOLDER/x", []string{"--secret-key", "no such file"}},
		"no organizations":     {"serve --data ABSENT --listen 127.0.0.1:0", []string{"missing flags: --orgs"}},
		"half of the stores":   {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --files s3://bucket", []string{"--keys and --files go together"}},
		"half of them, dev":    {"dev --data ABSENT --listen 127.0.0.1:0 --files s3://bucket", []string{"--keys and --files go together"}},
		"half of the app":      {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --github-app-id 7", []string{"--github-app"}},
		"no key of the app":    {"serve --data ABSENT --orgs FOLDER --listen 127.0.0.1:0 --github-app-id 7 --github-app-key FILE", []string{"--github-app-key"}},
		"a locked folder":      {"serve --data LOCKED --orgs FOLDER --listen 127.0.0.1:0", []string{"LOCKED is in use by another packhorse"}},
		"a locked folder, gc":  {"gc --data LOCKED", []string{"LOCKED is in use by another packhorse"}},
		"a folder of nothing":  {"fsck --data FOLDER", []string{"--data: FOLDER contains no store"}},
		"no token":             {"token inspect a.b.c", []string{"<token>", "malformed", "HEADER.CLAIMS.SIGNATURE"}},
		"no private key":       {"token --org acme --key FILE", []string{"--key", "FILE"}},
		"no public key":        {"org add acme --key FILE --orgs FOLDER", []string{"--key", "FILE"}},
		"two places":           {"org add acme --key FILE --orgs FOLDER --keys postgres://127.0.0.1:1/d", []string{"--orgs", "--keys"}},
		"no place":             {"org list", []string{"--orgs", "--keys"}},
		"two places to make":   {"org generate acme --key ABSENT --orgs FOLDER --keys postgres://127.0.0.1:1/d", []string{"--orgs", "--keys"}},
		"an organization":      {"org generate folder --key ABSENT --orgs ABOVE", []string{"organization folder exists", "org add"}},
		"alone":                {"cluster", []string{"--keys"}},
		"plain HTTP":           {"repos list --url http://git.example.com --org acme --key FILE", []string{"--url", "without encryption"}},
		"no key of the API":    {"repos list SERVER", []string{"--key"}},
		"a source of nothing":  {"import @ABSENT SERVER", []string{"ABSENT"}},
		"nothing to keep":      {"backup forget FOLDER", []string{"--keep-last"}},
		"no backup":            {"backup list FOLDER", []string{"FOLDER holds no backup"}},
		"nothing to restore":   {"restore FOLDER --data ABSENT", []string{"FOLDER holds no backup"}},
		"a backup in its data": {"backup take FOLDER/b --data FOLDER", []string{"lies in the folder"}},
		"a backup of nothing":  {"backup take ABSENT --data FOLDER", []string{"--data: FOLDER contains no store"}},
		"an unknown command":   {"merge", []string{"unexpected argument merge"}},
		"no command":           {"", []string{"expected one of"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t)
			if strings.Contains(test.args, "CERT") {
				cert, key := filepath.Join(w.dir, "cert"), filepath.Join(w.dir, "key")
				if err := packhorsetest.WriteCertificate(cert, key); err != nil {
					t.Fatal(err)
				}
				test.args = strings.NewReplacer("CERT", cert, "KEY", key).Replace(test.args)
			}
			locked := filepath.Join(w.dir, "locked")
			if strings.Contains(test.args, "LOCKED") {
				var cli commandLine
				if err := os.Mkdir(locked, 0o700); err != nil {
					t.Fatal(err)
				}
				if _, err := parse(&cli, []string{"gc", "--data", locked}, streams{io.Discard, io.Discard}); err != nil {
					t.Fatal(err)
				}
				open, err := openStore(t.Context(), locked, cli.GC.storeFlags, outside{}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = open.close(context.Background()) })
			}
			replace := func(text string) string { return w.paths.Replace(strings.ReplaceAll(text, "LOCKED", locked)) }
			args := strings.Fields(strings.ReplaceAll(test.args, "SERVER", validArgs["SERVER (shared)"]))
			for i := range args {
				args[i] = replace(args[i])
			}
			for i := range test.says {
				test.says[i] = replace(test.says[i])
			}
			w.refused(args, test.says...)
		})
	}
}

// TestWrongConfiguration gives files that are no configuration. Each complaint has the file, the
// line and, where there is one, the key.
func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, says string }{
		"unknown key":         {"org: a\nkye: 1\n", `:2: no flag is named "kye"; did you mean key?`},
		"underscore":          {"# TLS\n\ntls_cert: c.pem\n", `:3: no flag is named "tls_cert"; did you mean tls-cert?`},
		"transposed":          {"memroy: 1GiB\n", `:1: no flag is named "memroy"; did you mean memory?`},
		"nothing like it":     {"colour: red\n", `:1: no flag is named "colour"; see`},
		"itself":              {"config: a.yaml\n", `:1: no flag is named "config"`},
		"twice":               {"org: a\n\norg: b\n", `:3: key "org" is given twice, first in line 1`},
		"list for a value":    {"org: [a, b]\n", ":1: org takes one value"},
		"mapping for a list":  {"subject: x\nop: {a: b}\n", ":2: op: neither a value nor a list"},
		"list of lists":       {"op: [[a]]\n", ":1: op: expected a list of values"},
		"a list":              {"- org\n", ":1: expected lines of the form KEY: VALUE"},
		"a word":              {"org\n", ":1: expected lines of the form KEY: VALUE"},
		"no YAML":             {"org: a\nkey: 'b\n", "not YAML"},
		"tabs":                {"org: a\n\tkey: b\n", ":2: not YAML"},
		"a value of no sense": {"org: a\nttl: soon\n", `:2: ttl: "soon" is not a time span`},
		"a value too small":   {"org: a\nkey: C.YAML\nttl: 0s\n", "--ttl: 0s is too short: expected 1s or more (from "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t)
			path := filepath.Join(w.dir, "c.yaml")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(test.text, "C.YAML", path)), 0o600); err != nil {
				t.Fatal(err)
			}
			w.refused([]string{"token", "--config", path}, path+":", test.says)
		})
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		config := configFile{path: "c.yaml"}
		if wrong := config.parse([]byte(text), nil); len(wrong) > 0 {
			t.Errorf("%q: %v", text, wrong)
		}
	}
}

// TestWrongEnvironment gives variables that are wrong, and such that give no flag.
func TestWrongEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PACKHORSE_MEMROY": "1", "PACKHORSE_PORT_8080_TCP": "tcp://10.0.0.1:8080", "PACKHORSE_SERVICE_HOST": "10.0.0.1",
		"PACKHORSE_ORGS": "/absent", "PACKHORSE_UNLIKE_ANYTHING": "1", "PACKHORSE": "http://127.0.0.1:8080",
		"PACKHORSE_TTL": "0s",
	} {
		t.Setenv(name, value)
	}
	var out, errOut bytes.Buffer
	status := run(t.Context(), []string{"version"}, streams{out: &out, errOut: &errOut})
	var warnings []string
	for line := range strings.Lines(errOut.String()) {
		warnings = append(warnings, line)
	}
	want := []string{
		"packhorse: warning: the environment variable PACKHORSE_MEMROY gives no flag; did you mean PACKHORSE_MEMORY?\n",
		"packhorse: warning: the environment variable PACKHORSE_UNLIKE_ANYTHING gives no flag\n",
	}
	slices.Sort(warnings)
	if status != exitOK || !slices.Equal(warnings, want) {
		t.Errorf("status %d, %q, want %q", status, warnings, want)
	}
	w := newWorkspace(t)
	w.refused(w.args("token sign", "ttl", nil), "--ttl: 0s is too short", "(from the environment variable PACKHORSE_TTL)")
	t.Setenv("PACKHORSE_TTL", "soon")
	w.refused(w.args("token sign", "ttl", nil), `"soon" is not a time span`, "PACKHORSE_TTL")
}

// TestDidYouMean finds what was meant, and does not guess wildly.
func TestDidYouMean(t *testing.T) {
	t.Parallel()
	names := []string{"as", "id", "json", "key", "keys", "memory", "min-free", "org", "orgs", "tls-cert", "tls-key"}
	for word, want := range map[string]string{
		"MEMROY": "memory", "memory-": "memory", "tls_kee": "tls-key", "minfree": "min-free", "kye": "key", "jsno": "json",
		"xyz": "", "": "", "listen": "", "storage-root": "",
	} {
		got := didYouMean(word, names, func(name string) string { return name })
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// TestCheckFilePipe checks a pipe, such as a shell makes of <(command), without opening it: nobody
// writes to this one, and what is taken from it is gone.
func TestCheckFilePipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(checkFile(pipe), checkNewFile(pipe), checkSecret(pipe)); err != nil {
		t.Error(err)
	}
}

// TestListenError says what is wrong with an address, and how to mend it.
func TestListenError(t *testing.T) {
	t.Parallel()
	for failure, says := range map[syscall.Errno]string{
		syscall.EADDRINUSE:    "--listen: :80: address already in use; choose another one",
		syscall.EACCES:        "may not listen on a port below 1024: choose another one, or grant the right CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "expected an address of this machine that is free",
	} {
		err := listenError("--listen", ":80", &net.OpError{Op: "listen", Net: "tcp", Err: failure})
		if !isBadInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %s", failure, err, says)
		}
	}
}
