package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scratchSystem is a folder that dpkg takes for a system without packages. Scripts run outside of
// it, with DPKG_ROOT.
type scratchSystem struct {
	root, arch string
	as         []string // the command that makes us root
}

// newScratchSystem skips the test where dpkg is missing or nothing can be installed.
func newScratchSystem(t *testing.T) scratchSystem {
	t.Helper()
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Skip("skipped: dpkg is not installed")
	}
	s := scratchSystem{root: t.TempDir(), arch: strings.TrimSpace(string(arch))}
	if os.Getuid() != 0 {
		s.as = []string{"unshare", "--map-root-user"}
		if out, err := exec.Command(s.as[0], append(s.as[1:], "true")...).CombinedOutput(); err != nil {
			t.Skipf("skipped: not root, and unshare --map-root-user fails: %v: %s", err, out)
		}
	}
	for _, dir := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write(t, "var/lib/dpkg/status", "")
	return s
}

// dpkg runs a command of dpkg that succeeds, and returns what it says.
func (s scratchSystem) dpkg(t *testing.T, args ...string) string {
	t.Helper()
	command := append(append([]string{}, s.as...), "dpkg", "--root="+s.root, "--log="+filepath.Join(s.root, "dpkg.log"),
		"--force-script-chrootless", "--path-include=*") // some machines leave manuals out
	cmd := exec.Command(command[0], append(command[1:], args...)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s scratchSystem) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// holds fails the test unless these files are there, and those with a "!" are not.
func (s scratchSystem) holds(t *testing.T, when string, names ...string) {
	t.Helper()
	for _, name := range names {
		name, gone := strings.CutPrefix(name, "!")
		_, err := os.Lstat(filepath.Join(s.root, name))
		if gone != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s: gone should be %t: %v", when, name, gone, err)
		}
	}
}

// TestDebianInstall installs a package, changes its configuration, upgrades, removes and purges it:
// what an operator has written stays, and data and keys stay to the end.
func TestDebianInstall(t *testing.T) {
	t.Parallel()
	s := newScratchSystem(t)
	packageOf := func(version string) string {
		made, err := debianPackage(version, s.arch, time.Unix(1767225600, 0), []byte("#!/bin/sh\necho "+version+"\n"), docs())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "packhorse_"+version+".deb")
		if err := os.WriteFile(path, made, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}

	s.dpkg(t, "--install", packageOf("1.0.0"))
	s.holds(t, "installed", "usr/bin/packhorse", "etc/packhorse/config.yaml", "usr/lib/systemd/system/packhorse.service",
		"usr/share/man/man1/packhorse.1.gz", "!var/lib/packhorse")
	if said := s.dpkg(t, "--verify", "packhorse"); said != "" {
		t.Errorf("dpkg --verify after the installation:\n%s", said)
	}
	users, err := os.ReadFile(filepath.Join(s.root, "etc/passwd"))
	if err != nil || !strings.Contains(string(users), "\npackhorse:") && !strings.HasPrefix(string(users), "packhorse:") ||
		!strings.Contains(string(users), ":/var/lib/packhorse:/usr/sbin/nologin\n") {
		t.Errorf("the user: %q, %v", users, err)
	}

	const config, key, data = "etc/packhorse/config.yaml", "etc/packhorse/orgs/acme/first.pem", "var/lib/packhorse/LOCK"
	s.write(t, config, "listen: :443\n")
	s.write(t, key, "key")
	s.write(t, data, "data")
	if said := strings.Fields(s.dpkg(t, "--verify", "packhorse")); len(said) != 3 || said[1] != "c" || said[2] != "/"+config {
		t.Errorf("dpkg --verify after a change of the configuration: %q", said)
	}
	s.dpkg(t, "--install", packageOf("1.1.0"))
	if text, err := os.ReadFile(filepath.Join(s.root, config)); err != nil || string(text) != "listen: :443\n" {
		t.Errorf("the configuration after the upgrade: %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(s.root, "usr/bin/packhorse")); err != nil || !strings.Contains(string(text), "1.1.0") {
		t.Errorf("the binary after the upgrade: %q, %v", text, err)
	}
	s.dpkg(t, "--remove", "packhorse")
	s.holds(t, "removed", "!usr/bin/packhorse", "!usr/lib/systemd/system/packhorse.service", config, key, data)
	s.dpkg(t, "--purge", "packhorse")
	s.holds(t, "purged", "!"+config, key, data)
}
