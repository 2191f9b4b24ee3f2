package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestUnderSystemd boots the Debian system in the folder PACKHORSE_SYSTEMD_ROOT, which stays as it
// is, installs the package in it and drives the service: testdata/systemd.sh. It needs root and
// systemd-nspawn.
func TestUnderSystemd(t *testing.T) {
	system := os.Getenv("PACKHORSE_SYSTEMD_ROOT")
	if system == "" {
		t.Skip("PACKHORSE_SYSTEMD_ROOT is not set")
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil || os.Getuid() != 0 {
		t.Skip("skipped: it needs root and systemd-nspawn")
	}
	drill := t.TempDir()
	bin := filepath.Join(drill, "packhorse")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "packhorse/cmd/packhorse")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	binary := read(t, bin)
	all := docs()
	for i, doc := range all {
		if doc.name == "packhorse.service" || doc.name == "config.yaml" {
			all[i].data = read(t, filepath.Join("../../docs/deploy", doc.name))
		}
	}
	made, err := debianPackage("1.2.3", runtime.GOARCH, time.Unix(1767225600, 0), binary, all)
	if err != nil {
		t.Fatal(err)
	}
	unit := "[Unit]\nAfter=multi-user.target\nSuccessAction=poweroff\nFailureAction=poweroff\n" +
		"[Service]\nType=oneshot\nEnvironment=HOME=/root\nStandardOutput=file:/drill/output\nStandardError=inherit\n" +
		"ExecStart=/bin/bash /drill/systemd.sh\n"
	for name, data := range map[string][]byte{
		"packhorse.deb": made, "systemd.sh": read(t, "testdata/systemd.sh"), "drill.service": []byte(unit),
	} {
		if err := os.WriteFile(filepath.Join(drill, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a system that does not end
	defer cancel()
	boot := exec.CommandContext(ctx, "systemd-nspawn", "--quiet", "--directory="+system, "--volatile=overlay", "--register=no",
		"--keep-unit", "--private-network", "--bind="+drill+":/drill",
		"--bind-ro="+filepath.Join(drill, "drill.service")+":/etc/systemd/system/drill.service", "--boot", "systemd.wants=drill.service")
	console, err := boot.CombinedOutput()
	said := string(read(t, filepath.Join(drill, "output")))
	if err != nil || !strings.HasSuffix(said, "passed\n") {
		t.Errorf("%v\n%s\n%s", err, console, said)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
