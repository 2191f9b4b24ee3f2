package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/engine/credential"
)

func TestSecretKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := makeSecret(path); err != nil {
		t.Fatal(err)
	}
	first, err := readSecret(path)
	if err != nil || len(first) != credential.KeySize {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
	if err := makeSecret(path); err != nil {
		t.Fatal(err)
	}
	if again, err := readSecret(path); err != nil || !bytes.Equal(again, first) {
		t.Errorf("a key that was there has changed, %v", err)
	}
	if none, err := readSecret(""); none != nil || err != nil {
		t.Errorf("without a file: %d bytes, %v", len(none), err)
	}
	for name, content := range map[string]string{
		"empty": "", "short": strings.Repeat("x", 31), "with a line end": strings.Repeat("x", 32) + "\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(path); err == nil || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readSecret(filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent file was taken")
	}
}
