package main

import (
	"io"
	"strings"
	"testing"
)

// The quick start names the address, the folder and the settings of a client that packhorse dev has
// and prints by default.
func TestQuickstartDefaults(t *testing.T) {
	t.Parallel()
	var cli commandLine
	flags := make(map[string]string)
	for _, flag := range commandsOf(newParser(&cli, streams{out: io.Discard, errOut: io.Discard}).Model.Node, "")["dev"] {
		flags[flag.Name] = flag.Default
	}
	const url, authority = "http://127.0.0.1:8080", "127.0.0.1:8080"
	if flags["listen"] != authority || flags["data"] != "packhorse-data" {
		t.Errorf("packhorse dev serves %q on %q", flags["data"], flags["listen"])
	}
	page := readPage(t, "../../docs/quickstart.md")
	for _, want := range []string{"$ packhorse dev\n", "$ export PACKHORSE=" + url + "\n", "`packhorse-data`"} {
		if !strings.Contains(page, want) {
			t.Errorf("the quick start does not have %q", want)
		}
	}
	var printed strings.Builder
	if err := devLines.Execute(&printed, map[string]string{
		"URL": url, "Authority": authority, "Program": "packhorse", "Org": devOrg, "Key": flags["data"] + "/" + devKey,
	}); err != nil {
		t.Fatal(err)
	}
	_, settings, _ := strings.Cut(printed.String(), "@pierre/storage:\n")
	settings, _, _ = strings.Cut(settings, "\n    })\n")
	if page := readPage(t, "../../docs/quickstart/javascript.md"); settings == "" || !strings.Contains(page, settings) {
		t.Errorf("docs/quickstart/javascript.md does not have these settings:\n%s", settings)
	}
}
