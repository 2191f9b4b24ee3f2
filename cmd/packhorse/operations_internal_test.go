package main

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"packhorse/api/auth"
)

// operationsPage is the page that lists every flag, and monitoringPage that of the metrics.
const (
	operationsPage = "../../docs/operations.md"
	monitoringPage = "../../docs/monitoring.md"
)

var (
	flagText    = regexp.MustCompile("--([a-z][a-z0-9-]*)")
	gitFlag     = regexp.MustCompile("(?m)^git [a-z]+ --[a-z]+|`git [^`]*`")
	commandText = regexp.MustCompile("`packhorse( [a-z -]+)?`")
	metricRow   = regexp.MustCompile("(?m)^\\| `packhorse_([a-z_]+)` \\| ([a-z]+) \\|")
)

// documented returns, by command and flag, the defaults in the tables of the page. A table belongs
// to the commands that its heading names, or the paragraph below that begins with "For". The name
// of the binary alone stands for the flags of all commands.
func documented(page string) map[string]map[string]string {
	told := make(map[string]map[string]string)
	var commands []string
	naming := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		heading := strings.HasPrefix(line, "#")
		if heading {
			commands = nil
		}
		naming = heading || strings.HasPrefix(line, "For `packhorse") || naming && line != ""
		if naming {
			for _, found := range commandText.FindAllStringSubmatch(line, -1) {
				commands = append(commands, strings.TrimSpace(found[1]))
			}
		}
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `--") || len(cells) != 3 {
			continue
		}
		for _, command := range commands {
			if told[command] == nil {
				told[command] = make(map[string]string)
			}
			told[command][flagText.FindStringSubmatch(cells[0])[1]] = strings.Trim(cells[1], "`")
		}
	}
	return told
}

// defaultOf is the default of a flag as the page writes it.
func defaultOf(flag *kong.Flag) string {
	switch {
	case flag.Name == "memory": // --help shows that of this machine
		return memoryDefault.String()
	case flag.IsBool():
		if flag.Default == "true" {
			return "on"
		}
		return "off"
	case flag.Required:
		return "required"
	case flag.HasDefault:
		return flag.Default
	}
	return "none"
}

// commandsOf returns the flags of each command at and below a node, but for --help.
func commandsOf(node *kong.Node, path string) map[string][]*kong.Flag {
	isHelp := func(f *kong.Flag) bool { return f.Name == "help" }
	found := map[string][]*kong.Flag{path: slices.DeleteFunc(slices.Clone(node.Flags), isHelp)}
	for _, child := range node.Children {
		if child.Type == kong.CommandNode {
			maps.Copy(found, commandsOf(child, strings.TrimSpace(path+" "+child.Name)))
		}
	}
	return found
}

// readPage returns the text of a page.
func readPage(t *testing.T, path string) string {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The page has every flag of every command with its default, and no other.
func TestOperationsFlags(t *testing.T) {
	t.Parallel()
	told := documented(readPage(t, operationsPage))
	var cli commandLine
	commands := commandsOf(newParser(&cli, streams{out: io.Discard, errOut: io.Discard}).Model.Node, "")
	for command, flags := range commands {
		known := make(map[string]bool)
		for _, flag := range flags {
			known[flag.Name] = true
			if got, ok := told[command][flag.Name]; !ok {
				t.Errorf("packhorse %s: no row for --%s", command, flag.Name)
			} else if want := defaultOf(flag); got != want {
				t.Errorf("packhorse %s: the default of --%s is %q, and the page says %q", command, flag.Name, want, got)
			}
		}
		for name := range told[command] {
			if !known[name] {
				t.Errorf("packhorse %s: a row for --%s, which is no flag", command, name)
			}
		}
	}
	for command := range told {
		if _, ok := commands[command]; !ok {
			t.Errorf("the page tells of packhorse %s, which is no command", command)
		}
	}
}

// The page has every metric of shared stores with its type, and no other, in a table of its own.
func TestMonitoringSharedMetrics(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(readPage(t, monitoringPage), "\n### Metrics of shared stores\n")
	if !found {
		t.Fatal("the page has no metrics of shared stores")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	told := make(map[string]string)
	for _, row := range metricRow.FindAllStringSubmatch(section, -1) {
		told[row[1]] = row[2]
	}
	shown := make(map[string]string)
	shared := &store{shared: &sharedStores{times: newSharedTimes()}}
	for _, durations := range shared.sharedDurations() {
		shown[durations.Name()] = "histogram"
	}
	for _, figure := range shared.sharedFigures() {
		shown[figure.Name] = "gauge"
		if figure.Counter {
			shown[figure.Name] = "counter"
		}
	}
	if !maps.Equal(told, shown) {
		t.Errorf("the page tells of %v, and a server shows %v", told, shown)
	}
}

// Pages for operators name no flag that does not exist.
func TestPagesNameFlags(t *testing.T) {
	t.Parallel()
	var cli commandLine
	known := make(map[string]bool)
	for _, flags := range commandsOf(newParser(&cli, streams{out: io.Discard, errOut: io.Discard}).Model.Node, "") {
		for _, flag := range flags {
			known[flag.Name] = true
		}
	}
	for _, path := range []string{
		operationsPage, monitoringPage, "../../docs/servers.md", "../../docs/deployment.md", "../../docs/webhooks.md", "../../docs/upstreams.md",
		"../../docs/backup.md", "../../docs/limits.md", "../../docs/security.md",
	} {
		page := gitFlag.ReplaceAllString(readPage(t, path), "")
		for _, found := range flagText.FindAllStringSubmatch(page, -1) {
			if name := found[1]; !known[name] {
				t.Errorf("%s names --%s, which is no flag", path, name)
			}
		}
	}
}

// The org.yaml on the page is valid and has every field.
func TestOperationsOrgConfig(t *testing.T) {
	t.Parallel()
	_, example, _ := strings.Cut(readPage(t, operationsPage), "\n## Organizations\n")
	_, example, found := strings.Cut(example, "```yaml\n")
	example, _, ended := strings.Cut(example, "```\n")
	if !found || !ended {
		t.Fatal("no example")
	}
	config, err := auth.ParseOrgConfig([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []any{*config, config.Limits, config.Webhooks[0]} {
		for field := range reflect.TypeOf(of).Fields() {
			name := field.Tag.Get("yaml")
			if name != "-" && !strings.Contains(example, name+":") {
				t.Errorf("no field %s", name)
			}
		}
	}
}

var (
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	typedCommand = regexp.MustCompile(`(?m)^\$ packhorse (.*)$`)
)

// Every command line of ours that a page shows is one of ours, also where TestPages cannot run it.
func TestPagesCommands(t *testing.T) {
	t.Parallel()
	pages := []string{"../../README.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range pages {
		for _, block := range consoleBlock.FindAllStringSubmatch(readPage(t, path), -1) {
			lines := strings.ReplaceAll(block[1], "\\\n", " ")
			for _, command := range typedCommand.FindAllStringSubmatch(lines, -1) {
				count++
				words := strings.Fields(strings.ReplaceAll(command[1], "'", ""))
				for i, word := range words { // in place of files that the reader has
					switch {
					case word == "/etc/packhorse/config.yaml":
						words[i] = "../../docs/deploy/config.yaml"
					case word == "orgs" || strings.HasPrefix(word, "/var/lib/") || strings.HasPrefix(word, "/mnt/"):
						words[i] = t.TempDir()
					}
				}
				parses(t, path, words)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d commands: the test looks at the wrong place", count)
	}
}
