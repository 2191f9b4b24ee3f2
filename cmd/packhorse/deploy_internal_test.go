package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// root is the folder of the sources.
const root = "../.."

// parses fails the test unless a command line is one of ours. The flags that it lacks come from an
// environment or a configuration file elsewhere.
func parses(t *testing.T, where string, args []string) {
	t.Helper()
	var cli commandLine
	_, err := newParser(&cli, streams{out: io.Discard, errOut: io.Discard}).Parse(args)
	if err != nil && !strings.HasPrefix(err.Error(), "missing flags: ") {
		t.Errorf("%s: packhorse %s: %v", where, strings.Join(args, " "), err)
	}
}

// knowsVariables fails the test if a text names a variable of packhorse that is none of a flag.
func knowsVariables(t *testing.T, where, text string) {
	t.Helper()
	known := make(map[string]bool)
	for _, shape := range commandShapes() {
		for _, flag := range shape.flags {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
	}
	for _, name := range regexp.MustCompile(`\bPACKHORSE_[A-Z_]+`).FindAllString(text, -1) {
		if !known[name] {
			t.Errorf("%s names %s, which is the variable of no flag", where, name)
		}
	}
}

// The image starts commands that exist, and is built by the commands of the Makefile.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := readPage(t, filepath.Join(root, "Dockerfile"))
	knowsVariables(t, "Dockerfile", text)
	var commands [][]string
	for _, found := range regexp.MustCompile(`(?m)^(?:HEALTHCHECK .*)?(CMD|ENTRYPOINT) (\[.*\])$`).FindAllStringSubmatch(text, -1) {
		var words []string
		if err := json.Unmarshal([]byte(found[2]), &words); err != nil {
			t.Fatalf("%s: %v", found[0], err)
		}
		commands = append(commands, words)
	}
	if len(commands) != 3 || strings.Join(commands[1], " ") != "packhorse" {
		t.Fatalf("the commands are %q", commands)
	}
	parses(t, "HEALTHCHECK", commands[0][1:])
	parses(t, "CMD", commands[2])
	if !strings.Contains(text, "\nUSER 10001:10001\n") {
		t.Error("it runs as root")
	}
	makefile := readPage(t, filepath.Join(root, "Makefile"))
	for _, flag := range []string{"-mod=readonly", "-buildvcs=false", "-s -w -X main.version="} {
		if !strings.Contains(text, flag) || !strings.Contains(makefile, flag) {
			t.Errorf("%s is not in both Dockerfile and Makefile", flag)
		}
	}
}

// TestDockerfileBuilds runs the commands of the build stage, if PACKHORSE_DIST is set.
func TestDockerfileBuilds(t *testing.T) {
	if os.Getenv("PACKHORSE_DIST") == "" {
		t.Skip("PACKHORSE_DIST is not set")
	}
	out := t.TempDir()
	stage, _, _ := strings.Cut(readPage(t, filepath.Join(root, "Dockerfile")), "FROM scratch")
	script := "set -eu\nVERSION=v9\n"
	for _, found := range regexp.MustCompile(`(?m)^RUN (.*)$`).FindAllStringSubmatch(stage, -1) {
		script += strings.ReplaceAll(found[1], "/out", out) + "\n"
	}
	build := exec.Command("sh", "-c", script)
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, text)
	}
	text, err := exec.Command(filepath.Join(out, "packhorse"), "version").Output()
	if err != nil || !strings.HasPrefix(string(text), "packhorse v9 ") {
		t.Errorf("%q, %v", text, err)
	}
	// Nothing else is in the image that it could be linked with.
	if text, err := exec.Command("ldd", filepath.Join(out, "packhorse")).CombinedOutput(); err == nil {
		t.Errorf("it is not static: %s", text)
	}
}

// The files for compose are YAML, start commands that exist, and mount files that exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	text := readPage(t, filepath.Join(root, "compose.yaml"))
	knowsVariables(t, "compose.yaml", text)
	var file struct {
		Services map[string]struct {
			Build, Image string
			Command      []string
			Volumes      []string
			Profiles     []string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		if (name == "packhorse") != (len(service.Profiles) == 0) {
			t.Errorf("service %s has the profiles %q", name, service.Profiles)
		}
		if len(service.Command) > 0 {
			command := strings.ReplaceAll(strings.Join(service.Command, "\n"), "/orgs", t.TempDir())
			parses(t, name, strings.Split(command, "\n"))
		}
		for _, volume := range service.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if local, ok := strings.CutPrefix(from, "./docs/deploy/"); ok {
				if _, err := os.Stat(filepath.Join(root, "docs", "deploy", local)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if len(file.Services) != 7 {
		t.Errorf("%d services", len(file.Services))
	}
}

// The configuration files have keys of flags of serve, and values that these take.
func TestDeployedConfiguration(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"config.yaml", "packhorse.yaml"} {
		parses(t, name, []string{"serve", "--config", filepath.Join(root, "docs", "deploy", name)})
	}
}

// The unit starts a command that exists, systemd takes it, and what a broken server could do to the
// machine stays as little as it is: systemd rates this from 0, nothing, to 10.
func TestUnit(t *testing.T) {
	t.Parallel()
	text := readPage(t, filepath.Join(root, "docs", "deploy", "packhorse.service"))
	found := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/packhorse (.*) --config /etc/packhorse/config.yaml$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatal("no ExecStart")
	}
	parses(t, "ExecStart", strings.Fields(found[1]))
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("skipped: systemd-analyze is not installed")
	}
	// The program is not installed here.
	path := filepath.Join(t.TempDir(), "packhorse.service")
	if err := os.WriteFile(path, []byte(strings.Replace(text, "/usr/bin/packhorse", "/bin/true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	const exposure = "20" // tenths; 17 with systemd 252
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+exposure, path).
		CombinedOutput(); err != nil {
		if strings.Contains(string(out), "offline") {
			t.Skipf("skipped: this systemd-analyze rates no files: %s", out)
		}
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
