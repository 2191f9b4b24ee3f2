package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestStatus asks a server how it is doing, before and after a backup and a deletion, and a folder
// without a server.
func TestStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	server := start(t, packhorsetest.Options{Dir: dir, TLS: true, Flags: []string{"--audit", log, "--maintenance-off"}})
	data := filepath.Join(dir, "data")
	type status struct {
		Version, URL, Readiness string
		PID                     int
		Ready                   bool
		Repositories            int
		Deleted                 int `json:"deleted_repositories"`
		Organizations           int
		Began                   time.Time
		LastBackup              time.Time `json:"last_backup"`
		CertificateEnds         time.Time `json:"certificate_ends"`
		DiskFree                uint64    `json:"disk_free_bytes"`
		Memory                  uint64    `json:"memory_bytes"`
		MemoryLimit             uint64    `json:"memory_limit_bytes"`
		Maintenance             struct{ Off bool }
	}
	asked := func() (now status) {
		t.Helper()
		got := packhorse(t, nil, "status", "--data", data, "--json")
		if err := json.Unmarshal([]byte(got.out), &now); got.status != 0 || err != nil || strings.Count(got.out, "\n") != 1 {
			t.Fatalf("%+v: %v", got, err)
		}
		return now
	}
	now := asked()
	if !now.Ready || now.Readiness != "ready" || now.PID != server.PID() || now.URL != server.URL || now.Repositories != 0 ||
		now.Organizations != 1 || now.Version == "" || now.Began.IsZero() || !now.LastBackup.IsZero() || now.DiskFree == 0 ||
		now.Memory == 0 || now.MemoryLimit != 1<<30 || !now.Maintenance.Off || now.CertificateEnds.IsZero() {
		t.Errorf("%+v", now)
	}
	for _, name := range []string{"a", "b"} {
		createWith(t, trusting(t, server), server, name)
	}
	repos := append([]string{"repos", "delete"}, apiArgs(server, server.URL)...)
	if got := packhorse(t, []string{"SSL_CERT_FILE=" + server.CACert}, append(repos, "b")...); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if got := packhorse(t, nil, "backup", filepath.Join(t.TempDir(), "b"), "--data", data); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if now := asked(); now.Repositories != 1 || now.Deleted != 1 || now.LastBackup.Before(now.Began) {
		t.Errorf("after a backup: %+v", now)
	}
	got := packhorse(t, nil, "status", "--data", data)
	for _, want := range []string{
		"server:", "up since:", "ready:         ready\n", "repositories:  1, of 1 organization; 1 deleted can",
		"maintenance:   off\n", "last check: ", " free of ", " of 1 GiB\n",
	} {
		if got.status != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%+v without %q", got, want)
		}
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), `"action":"status"`) != 3 {
		t.Errorf("the audit log: %s, %v", text, err)
	}
	if got := packhorse(t, nil, "status", "--data", data); got.status != 1 ||
		!strings.Contains(got.errOut, "no server has "+data+" open") {
		t.Errorf("without a server: %+v", got)
	}
}
