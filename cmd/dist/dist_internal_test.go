package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDebianVersion(t *testing.T) {
	t.Parallel()
	versions := []string{ // in the order of Debian
		"4f63704", "v1.2.0-rc.1", "v1.2.0", "v1.2.0-5-g4f63704", "v1.2.0-5-g4f63704-dirty", "v1.10.0",
	}
	want := []string{"0~4f63704", "1.2.0~rc.1", "1.2.0", "1.2.0+5.g4f63704", "1.2.0+5.g4f63704.dirty", "1.10.0"}
	for i, version := range versions {
		if got := debianVersion(version); got != want[i] {
			t.Errorf("%s: %s, want %s", version, got, want[i])
		}
		if _, err := exec.LookPath("dpkg"); err == nil && i > 0 {
			if exec.Command("dpkg", "--compare-versions", want[i-1], "lt", want[i]).Run() != nil {
				t.Errorf("dpkg does not order %s before %s", want[i-1], want[i])
			}
		}
	}
}

// docs are documents as those of a release.
func docs() []entry {
	var all []entry
	for _, name := range slices.Sorted(maps.Keys(debPlaces)) {
		all = append(all, entry{name, 0o644, []byte("text of " + name + "\n")})
	}
	return append(all, entry{"man/packhorse.1", 0o644, []byte(".TH PACKHORSE 1\n")})
}

// TestDebianPackage has dpkg read a package.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	at := time.Unix(1767225600, 0)
	made, err := debianPackage("1.2.0", "amd64", at, []byte("#!/bin/sh\n"), docs())
	if err != nil {
		t.Fatal(err)
	}
	again, err := debianPackage("1.2.0", "amd64", at, []byte("#!/bin/sh\n"), docs())
	if err != nil || !bytes.Equal(made, again) {
		t.Errorf("a second package has other bytes, %v", err)
	}
	if _, err := debianPackage("1.2.0", "amd64", at, nil, []entry{{name: "elsewhere"}}); err == nil {
		t.Error("a file without a place is packed")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("skipped: dpkg-deb is not installed")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "packhorse.deb")
	if err := os.WriteFile(path, made, 0o600); err != nil {
		t.Fatal(err)
	}
	fields, err := exec.Command("dpkg-deb", "--field", path, "Package", "Version", "Architecture").CombinedOutput()
	if err != nil || string(fields) != "Package: packhorse\nVersion: 1.2.0\nArchitecture: amd64\n" {
		t.Errorf("%v: %s", err, fields)
	}
	if out, err := exec.Command("dpkg-deb", "--raw-extract", path, filepath.Join(dir, "raw")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, mode := range map[string]os.FileMode{
		"usr/bin/packhorse": 0o755, "etc/packhorse/config.yaml": 0o644, "usr/share/man/man1/packhorse.1.gz": 0o644,
		"usr/share/bash-completion/completions/packhorse": 0o644, "DEBIAN/postinst": 0o755, "DEBIAN/prerm": 0o755,
	} {
		if info, err := os.Stat(filepath.Join(dir, "raw", name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	check := exec.Command("md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	check.Dir = filepath.Join(dir, "raw")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, script := range []string{"postinst", "prerm"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(dir, "raw", "DEBIAN", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}

// TestBillOfMaterials describes the test itself, which is a binary like others.
func TestBillOfMaterials(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := billOfMaterials(self, "v1", time.Unix(0, 0).UTC(), [32]byte{0xab})
	if err != nil {
		t.Fatal(err)
	}
	var got bill
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Format != "CycloneDX" || got.Metadata.Component.Version != "v1" || len(got.Components) == 0 ||
		!strings.HasPrefix(got.Components[0].Version, "go1.") || !strings.HasPrefix(got.Metadata.Component.Hashes[0].Content, "ab00") {
		t.Errorf("%s", text)
	}
	if len(got.Dependencies[0].DependsOn) != len(got.Components) {
		t.Errorf("%d components, and %d are depended on", len(got.Components), len(got.Dependencies[0].DependsOn))
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	if all, err := platformsOf(""); err != nil || len(all) != len(platforms) {
		t.Errorf("%v, %v", all, err)
	}
	if one, err := platformsOf("linux/arm64"); err != nil || !slices.Equal(one, []platform{{"linux", "arm64"}}) {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := platformsOf("linux/amd64,plan9/386"); err == nil || !strings.Contains(err.Error(), `"plan9/386"`) {
		t.Errorf("%v", err)
	}
}

// TestDist builds a release twice, if PACKHORSE_DIST is set, compares all bytes, and installs the
// package of this machine.
func TestDist(t *testing.T) {
	if os.Getenv("PACKHORSE_DIST") == "" {
		t.Skip("PACKHORSE_DIST is not set")
	}
	t.Chdir("../..")
	out := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for _, dir := range out {
		if err := run("v1.2.3", time.Unix(1767225600, 0).UTC(), dir, platforms); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(out[0])
	if err != nil || len(files) != 3+3+2+1 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		a, errA := os.ReadFile(filepath.Join(out[0], file.Name()))
		b, errB := os.ReadFile(filepath.Join(out[1], file.Name()))
		if errors.Join(errA, errB) != nil || !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes the second time: %v, %v", file.Name(), errA, errB)
		}
		t.Logf("%s: %d bytes", file.Name(), len(a))
	}
	check := exec.Command("sha256sum", "--quiet", "-c", "SHA256SUMS")
	check.Dir = out[0]
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	var bill bill
	text, err := os.ReadFile(filepath.Join(out[0], "packhorse-v1.2.3-linux-amd64.cdx.json"))
	if err != nil || json.Unmarshal(text, &bill) != nil || !strings.Contains(string(text), "github.com/cockroachdb/pebble/v2") {
		t.Errorf("the bill of materials: %v", err)
	}
	names := tarNames(t, filepath.Join(out[0], "packhorse-v1.2.3-darwin-arm64.tar.gz"))
	for _, name := range []string{"packhorse", "LICENSE", "man/packhorse-serve.1", "completions/_packhorse"} {
		if !slices.Contains(names, "packhorse-v1.2.3-darwin-arm64/"+name) {
			t.Errorf("the tarball has no %s: %q", name, names)
		}
	}
	s := newScratchSystem(t)
	s.dpkg(t, "--install", filepath.Join(out[0], "packhorse_1.2.3_"+s.arch+".deb"))
	if text, err := exec.Command(filepath.Join(s.root, "usr/bin/packhorse"), "version").Output(); err != nil ||
		!strings.HasPrefix(string(text), "packhorse v1.2.3 ") {
		t.Errorf("the installed binary: %q, %v", text, err)
	}
	if said := s.dpkg(t, "--verify", "packhorse"); said != "" {
		t.Errorf("dpkg --verify after the installation:\n%s", said)
	}
}

func tarNames(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(packed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}
