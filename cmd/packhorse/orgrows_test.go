package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/odb/kv/postgres/postgrestest"
)

// otherPublicKey makes a key, and returns its public part as PEM.
func otherPublicKey(t *testing.T) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// sameFolder compares the files of two folders.
func sameFolder(t *testing.T, one, other string) {
	t.Helper()
	content := func(dir string) map[string]string {
		found := make(map[string]string)
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, path))
			found[path] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if a, b := content(one), content(other); len(a) == 0 || !maps.Equal(a, b) {
		t.Errorf("%s has %q\n%s has %q", one, a, other, b)
	}
}

// orgFolder is a folder of organizations and a database.
type orgFolder struct {
	t         *testing.T
	dir, keys string
}

func (f *orgFolder) write(path, text string) {
	f.t.Helper()
	path = filepath.Join(f.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// org runs packhorse org. want has the lines of its output; of a failure there is one, which
// contains it.
func (f *orgFolder) org(status int, want []string, args ...string) {
	f.t.Helper()
	got := packhorse(f.t, nil, append([]string{"org"}, args...)...)
	if strings.Contains(got.out+got.errOut, "hush") {
		f.t.Errorf("%q prints a secret: %+v", args, got)
	}
	if status != 0 {
		line := strings.TrimSuffix(got.errOut, "\n")
		if got.status != status || got.out != "" || !strings.Contains(line, want[0]) || strings.Contains(line, "\n") {
			f.t.Errorf("%q: %+v, want %q", args, got, want)
		}
		return
	}
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	same := got.status == 0 && len(lines) == len(want)
	for i := 0; same && i < len(lines); i++ {
		same = strings.HasPrefix(lines[i], want[i])
	}
	if !same {
		f.t.Errorf("%q: %+v, want %q", args, got, want)
	}
}

// TestOrgRows stores organizations in a database, changes, shows, exports and removes them. What is
// refused changes nothing.
func TestOrgRows(t *testing.T) {
	t.Parallel()
	skipShort(t)
	f := &orgFolder{t: t, dir: filepath.Join(t.TempDir(), "orgs"), keys: postgrestest.Database(t)}
	to := []string{"--keys", f.keys}
	apply := func(status int, want []string, flags ...string) {
		t.Helper()
		f.org(status, want, append([]string{"apply", f.dir}, append(flags, to...)...)...)
	}
	list := func(want ...string) {
		t.Helper()
		last := fmt.Sprintf("%d organization", len(want)) // and perhaps an s
		f.org(0, append(want, last), append([]string{"list"}, to...)...)
	}
	key := string(otherPublicKey(t))
	f.write("acme/k.pem", key)
	f.write("acme/a.asc", "signer")
	f.write("acme/org.yaml", "webhooks: [{url: 'https://ci.example/hush', secret: hush}]\nsigning_keys: [a.asc]\n")
	f.write("beta/k.pem", key)
	list()
	added := []string{
		"acme: added", "acme: key k added: ES256 ", "acme: signing key a.asc added: SHA-256 ",
		"acme: webhook ci.example ", "beta: added", "beta: key k added: ES256 ",
	}
	apply(0, append(added, "would change: 2 of 2 organizations"), "--dry-run")
	list()
	apply(0, append(added, "changed: 2 of 2 organizations"))
	apply(0, []string{"changed: 0 of 2 organizations"}, "--prune")
	list("acme  1 key  2 settings", "beta  1 key  0 settings")
	exported := filepath.Join(t.TempDir(), "out")
	f.org(0, []string{"2 organizations written to " + exported}, append([]string{"export", exported}, to...)...)
	sameFolder(t, f.dir, exported)
	f.org(2, []string{exported + " is not empty"}, append([]string{"export", exported}, to...)...)
	if info, err := os.Stat(filepath.Join(exported, "acme", "org.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of an exported org.yaml: %v, %v", info.Mode(), err)
	}

	f.write("acme/org.yaml", "webhooks: [{url: 'https://ci.example/hush', secret: hush2}]\nsigning_keys: [a.asc]\nlimits: {repositories: 3}\n")
	f.write("acme/k.pem", string(otherPublicKey(t)))
	if err := os.RemoveAll(filepath.Join(f.dir, "beta")); err != nil {
		t.Fatal(err)
	}
	changed := []string{
		"acme: key k changed: ES256 ", "acme: limits.repositories added: 3", "acme: webhook ci.example ",
	}
	f.org(0, append(changed, "changed: 1 of 1 organization"),
		append([]string{"apply", filepath.Join(f.dir, "acme")}, to...)...) // that of one organization
	list("acme  1 key  3 settings", "beta  1 key  0 settings")
	f.org(0, []string{"key k: ES256 ", "limits.repositories: 3", "signing key a.asc: SHA-256 ", "webhook ci.example "},
		append([]string{"show", "acme"}, to...)...)

	for _, bad := range []struct {
		status int
		want   string
		args   []string
	}{
		{1, `there is no organization "none"`, append([]string{"show", "none"}, to...)},
		{1, `there is no organization "none"`, append([]string{"remove", "acme", "none"}, to...)},
		{2, "--prune wants a folder of organizations", append([]string{"apply", filepath.Join(f.dir, "acme"), "--prune"}, to...)},
		{2, "--keys names the database", []string{"apply", f.dir}},
		{2, "want one of --orgs", []string{"list"}},
		{2, "--keys names the database", []string{"export", filepath.Join(t.TempDir(), "new")}},
		{2, "want one of --orgs", []string{"add", "acme", "--key", filepath.Join(f.dir, "acme", "k.pem")}},
		{2, "want one of --orgs", append([]string{"add", "acme", "--key", filepath.Join(f.dir, "acme", "k.pem"), "--orgs", f.dir}, to...)},
		{2, "acme/k.pem contains a different key", append([]string{"add", "acme", "--kid", "k", "--key", filepath.Join(exported, "acme", "k.pem")}, to...)},
		{2, "--keys", []string{"list", "--keys", "mysql://x"}},
	} {
		f.org(bad.status, []string{bad.want}, bad.args...)
	}
	f.write("acme/new.yml", "")
	apply(2, []string{filepath.Join(f.dir, "acme", "new.yml") + ": want KID.pem, org.yaml, or a file"}, "--prune")
	if err := os.Remove(filepath.Join(f.dir, "acme", "new.yml")); err != nil {
		t.Fatal(err)
	}
	list("acme  1 key  3 settings", "beta  1 key  0 settings")

	apply(0, []string{"beta: removed", "beta: key k removed: it was ES256 ", "changed: 1 of 2 organizations"}, "--prune")
	f.org(0, []string{"organization gamma signs with key new"},
		append([]string{"add", "gamma", "--kid", "new", "--key", filepath.Join(f.dir, "acme", "k.pem")}, to...)...)
	list("acme   1 key  3 settings", "gamma  1 key  0 settings")
	f.org(0, []string{"gamma: removed", "gamma: key new removed: it was ES256 "}, append([]string{"remove", "gamma"}, to...)...)
	list("acme  1 key  3 settings")
}
