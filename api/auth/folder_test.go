package auth_test

import (
	"crypto/elliptic"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/api/auth"
)

// A key is valid while its file exists, is readable and is unchanged.
func TestReload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	header := "Bearer " + mint(t, p256(), claims())
	works := func(when string, want bool) *auth.Grant {
		t.Helper()
		f.Reload()
		grant, err := f.Verify(header)
		if (err == nil) != want {
			t.Fatalf("%s: error %v, want it to work: %t", when, err, want)
		}
		return grant
	}
	path := filepath.Join(f.dir, "acme", "k.pem")

	works("no organization", false)
	f.write(t, "acme/k.pem", p256().public)
	grant := works("registered", true)
	if err := f.Recheck(grant); err != nil {
		t.Errorf("Recheck of a registered key: %v", err)
	}
	f.write(t, "acme/k.pem", p256().public)
	works("written again", true)
	if err := f.Recheck(grant); err != nil {
		t.Errorf("Recheck after the same bytes were written: %v", err)
	}
	f.write(t, "acme/k.pem", newECPair(elliptic.P256()).public)
	works("replaced by a key of the same length", false)
	if err := f.Recheck(grant); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("Recheck of a replaced key: %v, want ErrRevoked", err)
	}
	f.write(t, "acme/k.pem", p256().public)
	works("registered again", true)
	if err := f.Recheck(grant); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("Recheck of a key that was away: %v, want ErrRevoked", err)
	}
	f.write(t, "acme/k.pem", p256().public[:100])
	works("half written", false)
	f.write(t, "acme/k.pem", p256().public)
	works("wholly written", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	works("removed", false)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	works("a folder in its place", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.write(t, "acme/other.pem", p256().public)
	works("under another name", true)
	if err := os.RemoveAll(filepath.Join(f.dir, "acme")); err != nil {
		t.Fatal(err)
	}
	works("organization removed", false)
}

// The verifier follows its folder by itself.
func TestFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v, err := auth.Open(auth.Options{Dir: dir, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	header := "Bearer " + mint(t, ed(), claims())
	within := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if _, err := v.Verify(header); (err == nil) == want {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("after a minute: %v, want it to work: %t", err, want)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "acme"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "acme", "k.pem"), ed().public, 0o644); err != nil {
		t.Fatal(err)
	}
	within(true)
	if err := os.Remove(filepath.Join(dir, "acme", "k.pem")); err != nil {
		t.Fatal(err)
	}
	within(false)
}

// Invalid entries are logged once, by path and reason, and never with their bytes.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	weak := weakRSA(t)
	tests := map[string]struct {
		name string
		data []byte
	}{
		"private key":       {"acme/k.pem", ed().private},
		"key and private":   {"acme/k.pem", slices.Concat(ed().public, ed().private)},
		"RSA of 1024 bits":  {"acme/k.pem", weak},
		"P-224":             {"acme/k.pem", newECPair(elliptic.P224()).public},
		"no PEM":            {"acme/k.pem", []byte("hello")},
		"empty":             {"acme/k.pem", nil},
		"too long":          {"acme/k.pem", make([]byte, 1<<20)},
		"bad name":          {"acme/k k.pem", ed().public},
		"bad organization":  {"ac me/k.pem", ed().public},
		"bad configuration": {"acme/org.yaml", []byte("webhooks: 7")},
		"misspelt":          {"acme/org.yaml", []byte("webhook: []")},
		"a hook twice": {
			"acme/org.yaml",
			[]byte("webhooks: [{url: 'https://a.example', secret: s3cr3t}, {url: 'https://a.example', secret: other}]"),
		},
		"hook without a URL": {"acme/org.yaml", []byte("webhooks: [{secret: s3cr3t}]")},
		"missing signer":     {"acme/org.yaml", []byte("signing_keys: [gone.asc]")},
		"signer elsewhere":   {"acme/org.yaml", []byte("signing_keys: [../x.asc]")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.write(t, test.name, test.data)
			f.write(t, "acme/good.pem", p256().public)
			f.Reload()
			f.Reload()
			if n := strings.Count(f.log.String(), "invalid entry"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, f.log)
			}
			if strings.Contains(f.log.String(), "BEGIN") || strings.Contains(f.log.String(), "s3cr3t") {
				t.Errorf("the log quotes the file:\n%s", f.log)
			}
			if _, err := f.Verify("Bearer " + mint(t, p256(), claims())); err != nil {
				t.Errorf("the good key beside it: %v", err)
			}
			if _, err := f.Verify("Bearer " + mint(t, ed(), claims())); err == nil {
				t.Error("the bad file verifies tokens")
			}
		})
	}
}

// Without a kid no more than 16 keys are tried.
func TestKeysTried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 16 {
		f.write(t, "acme/"+string(rune('a'+i))+".pem", newECPair(elliptic.P256()).public)
	}
	f.write(t, "acme/z.pem", p256().public)
	f.write(t, "acme/0.pem", ed().public) // of another type: not counted
	f.Reload()
	c := claims()
	if _, err := f.Verify("Bearer " + mint(t, p256(), c)); err == nil {
		t.Error("the 17th key was tried")
	}
	c.KeyID = "z"
	if _, err := f.Verify("Bearer " + mint(t, p256(), c)); err != nil {
		t.Errorf("the 17th key by its name: %v", err)
	}
	if err := os.Remove(filepath.Join(f.dir, "acme", "a.pem")); err != nil {
		t.Fatal(err)
	}
	f.Reload()
	if _, err := f.Verify("Bearer " + mint(t, p256(), claims())); err != nil {
		t.Errorf("as the 16th key: %v", err)
	}
}

func TestOrgConfig(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "acme/org.yaml", []byte(`
webhooks:
  - {url: "https://ci.example/hook", secret: s3cr3t, events: [push]}
signing_keys: [release.asc]
upstreams: {gitlab: "https://git.example.com"}
custom_notes_refs: false
limits: {heavy_slots: 1}
`))
	f.write(t, "acme/release.asc", []byte("armored"))
	f.write(t, "plain/k.pem", ed().public)
	f.Reload()

	config, ok := f.OrgConfig("acme")
	if !ok || len(config.Webhooks) != 1 || config.Webhooks[0].Secret != "s3cr3t" || config.CustomNotesRefs ||
		config.Upstreams["gitlab"] != "https://git.example.com" || config.Limits.HeavySlots != 1 ||
		len(config.SigningKeyData) != 1 || string(config.SigningKeyData[0]) != "armored" {
		t.Errorf("acme: %+v", config)
	}
	if plain, ok := f.OrgConfig("plain"); !ok || !plain.CustomNotesRefs {
		t.Errorf("an organization without org.yaml: %+v, %t", plain, ok)
	}
	if _, ok := f.OrgConfig("none"); ok {
		t.Error("there is an organization that nobody made")
	}
	if got := f.Orgs(); !slices.Equal(got, []string{"acme", "plain"}) {
		t.Errorf("organizations %v", got)
	}

	f.write(t, "acme/org.yaml", []byte("limits: {"))
	f.Reload()
	if config, _ := f.OrgConfig("acme"); len(config.Webhooks) != 1 {
		t.Error("a broken org.yaml does not leave the one before in force")
	}
	if err := os.Remove(filepath.Join(f.dir, "acme", "org.yaml")); err != nil {
		t.Fatal(err)
	}
	f.Reload()
	if config, _ := f.OrgConfig("acme"); len(config.Webhooks) != 0 || !config.CustomNotesRefs {
		t.Errorf("after org.yaml was removed: %+v", config)
	}
}

func TestOpenMissingFolder(t *testing.T) {
	t.Parallel()
	if _, err := auth.Open(auth.Options{Dir: filepath.Join(t.TempDir(), "gone")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the folder does not exist", err)
	}
}
