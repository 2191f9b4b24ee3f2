package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/api/auth"
)

// What changes of the organizations is told once, in their order, and nothing of the first state.
func TestChanges(t *testing.T) {
	t.Parallel()
	f := &fixture{dir: t.TempDir(), log: &bytes.Buffer{}, now: clock}
	first, second := p256().public, p384().public
	write := func(path string, data []byte) { f.write(t, path, data) }
	remove := func(path string) {
		if err := os.RemoveAll(filepath.Join(f.dir, path)); err != nil {
			t.Error(err)
		}
	}
	write("acme/a.pem", first)
	write("beta/b.pem", first)
	var told []auth.Change
	f.open(t, auth.Options{Changed: func(c auth.Change) { told = append(told, c) }})
	for _, step := range []struct {
		name string
		do   func()
		want []auth.Change
	}{
		{"nothing", func() {}, nil},
		{
			"a key and settings",
			func() {
				write("acme/n.pem", second)
				write("acme/org.yaml", []byte("limits: {repositories: 3}\n"))
			},
			[]auth.Change{{Kind: auth.SettingsChanged, Org: "acme"}, {Kind: auth.KeyRegistered, Org: "acme", KeyID: "n"}},
		},
		{
			"another key of the same id",
			func() { write("acme/a.pem", p521().public) },
			[]auth.Change{{Kind: auth.KeyRemoved, Org: "acme", KeyID: "a"}, {Kind: auth.KeyRegistered, Org: "acme", KeyID: "a"}},
		},
		{
			"one goes, one comes",
			func() {
				remove("beta")
				write("core/c.pem", second)
			},
			[]auth.Change{
				{Kind: auth.KeyRemoved, Org: "beta", KeyID: "b"},
				{Kind: auth.OrganizationRemoved, Org: "beta"},
				{Kind: auth.OrganizationAdded, Org: "core"},
				{Kind: auth.KeyRegistered, Org: "core", KeyID: "c"},
			},
		},
	} {
		told = nil
		step.do()
		f.Reload()
		if !slices.Equal(told, step.want) {
			t.Errorf("%s: told %v, want %v", step.name, told, step.want)
		}
	}
}

// The hash of a token does not depend on how it was sent, and a password has none.
func TestTokenHash(t *testing.T) {
	t.Parallel()
	token := "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhY21lIn0.c2lnbmF0dXJlc2lnbmF0dXJlc2lnbmF0dXJlc2lnbmF0dXJl"
	const hash = "1af1980df6ce0f58a7b32f3f8328552d" // of sha256sum
	for header, want := range map[string]string{
		"Bearer " + token: hash, basic("t", token): hash,
		"": "", "Bearer ": "", "Digest " + token: "", basic("ada", "a.b.c"): "", basic("ada", strings.Repeat("word ", 20)): "",
	} {
		if got := auth.TokenHash(header); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}
