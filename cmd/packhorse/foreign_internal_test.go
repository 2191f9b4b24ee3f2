package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestForeignFolder holds what may be in a data folder before the first start against a folder of
// somebody else, which dev and serve refuse and leave as it is.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content []string // folders end with a slash
		want    string   // the file that the refusal names; "" for none
	}{
		"empty":               {},
		"files":               {[]string{"README.md", "src/"}, "README.md"},
		"a file with escapes": {[]string{"a\x1b[2J"}, `a\x1b[2J`},
		"hidden and others":   {[]string{".git/", "Makefile"}, "Makefile"},
		"hidden":              {[]string{".bash_history", ".aws/"}, ""},
		"of a file system":    {[]string{"lost+found/"}, ""},
		"configuration":       {[]string{"config.yaml"}, ""},
		"named by a flag":     {[]string{"secret.bin", "tls/"}, ""},
		"a store and others":  {[]string{"keys/", "README.md"}, ""},
		"shared stores":       {[]string{"README.md", "spool/"}, ""},
		"a former dev":        {[]string{"README.md", "dev.key"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t)
			dir := filepath.Join(w.dir, "data")
			for _, entry := range append(c.content, "") {
				var err error
				if path := filepath.Join(dir, entry); strings.HasSuffix(entry, "/") || entry == "" {
					err = os.MkdirAll(path, 0o700)
				} else if err = os.MkdirAll(dir, 0o700); err == nil {
					err = os.WriteFile(path, nil, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			err := checkForeign(dir, filepath.Join(dir, "secret.bin"), "", filepath.Join(dir, "tls", "key.pem"))
			if (err != nil) != (c.want != "") {
				t.Fatal(err)
			}
			if c.want == "" {
				return
			}
			before := w.tree()
			for _, args := range [][]string{
				{"dev", "--data", dir, "--listen", "127.0.0.1:0"},
				{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--orgs", filepath.Join(w.dir, "folder")},
				{"config", "check", "--data", dir, "--listen", "127.0.0.1:0", "--orgs", filepath.Join(w.dir, "folder")},
			} {
				var out, errOut strings.Builder
				status := run(t.Context(), args, streams{out: &out, errOut: &errOut})
				want := "--data: " + dir + " holds other files, such as \"" + c.want + "\", and nothing of packhorse"
				if status != exitUsage || !strings.Contains(errOut.String(), want) {
					t.Errorf("%s: %d %q, want %q", args[0], status, errOut.String(), want)
				}
			}
			if after := w.tree(); !slices.Equal(after, before) {
				t.Errorf("changed: %q, before %q", after, before)
			}
		})
	}
	if err := checkForeign(filepath.Join(t.TempDir(), "absent")); err != nil {
		t.Error(err)
	}
}
