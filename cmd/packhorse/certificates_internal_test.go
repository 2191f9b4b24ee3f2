package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A new pair takes effect at once. One that does not match leaves the old one in force, and is an
// error if it persists.
func TestCertificatesFollowTheirFiles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	made := func() (cert, key []byte) {
		t.Helper()
		_, certFile, keyFile, err := prepareTLS(t.TempDir(), []string{"localhost"}, now)
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]*[]byte{certFile: &cert, keyFile: &key} {
			if *content, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		return cert, key
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := made()
	write(certFile, cert)
	write(keyFile, key)
	var log bytes.Buffer
	c, err := followCertificates(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.close() // the test says when to look
	served := func() string {
		t.Helper()
		pair, err := c.config().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	errors := func() int { return strings.Count(log.String(), "level=ERROR") }
	first := served()

	cert, key = made()
	write(certFile, cert)
	_ = c.look(false)
	if served() != first || errors() != 0 {
		t.Errorf("one file of two: serves %s, want %s; logged\n%s", served(), first, &log)
	}
	write(keyFile, key)
	_ = c.look(false)
	second := served()
	if second == first || errors() != 0 {
		t.Errorf("a new pair is not in force; logged\n%s", &log)
	}
	write(keyFile, []byte("broken"))
	for i, want := range []int{0, 1, 1} {
		if _ = c.look(false); served() != second || errors() != want {
			t.Errorf("look %d at a broken pair: %d errors, want %d; logged\n%s", i, errors(), want, &log)
		}
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if err := c.look(true); err == nil || served() != second || errors() != 2 {
		t.Errorf("a missing key, looked at because of a signal: %v, %d errors", err, errors())
	}
	if strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("logged\n%s", &log)
	}
	if _, err := followCertificates(certFile, keyFile, slog.Default()); err == nil {
		t.Error("a server begins without its key")
	}
}

// The authority is kept, so that clients still trust it; the certificate is renewed for a new host,
// or when it ends.
func TestDevCertificates(t *testing.T) {
	t.Parallel()
	data, now := t.TempDir(), time.Now()
	prepare := func(now time.Time, hosts ...string) (ca, cert string) {
		t.Helper()
		caFile, certFile, keyFile, err := prepareTLS(data, hosts, now)
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]*string{caFile: &ca, certFile: &cert} {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			*content = string(data)
		}
		if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, %v", info, err)
		}
		return ca, cert
	}
	ca, cert := prepare(now, "localhost", "127.0.0.1")
	if ca2, again := prepare(now, "localhost", "127.0.0.1"); ca2 != ca || again != cert {
		t.Error("made again without need")
	}
	ca2, more := prepare(now, "localhost", "git.example.com")
	if ca2 != ca || more == cert {
		t.Error("a new host: the authority must stay, the certificate must not")
	}
	if ca2, later := prepare(now.Add(devCertTime), "localhost"); ca2 != ca || later == more {
		t.Error("a year later: the authority must stay, the certificate must not")
	}
}
