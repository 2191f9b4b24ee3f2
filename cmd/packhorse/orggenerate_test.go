package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/api/auth"
)

// TestOrgGenerate makes an organization in a folder, signs a token by the line that it prints, and
// lists, shows and removes organizations. Nothing is overwritten, and what is refused leaves
// nothing behind.
func TestOrgGenerate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	orgs, private := filepath.Join(dir, "orgs"), filepath.Join(dir, "acme's.pem")
	org := func(call string, args ...string) result {
		return packhorse(t, nil, append([]string{"org", call, "--orgs", orgs}, args...)...)
	}
	made := org("generate", "acme", "--kid", "first", "--key", private)
	if made.status != 0 || !strings.HasPrefix(made.out, "organization acme signs with key first\nprivate key: "+private+" (mode 0600)\n") {
		t.Fatalf("%+v", made)
	}
	if info, err := os.Stat(private); err != nil || info.Mode() != 0o600 {
		t.Errorf("the private key: %v, %v", info, err)
	}
	key, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]result{
		"the same again":        org("generate", "acme", "--key", private),
		"the organization":      org("generate", "acme", "--key", filepath.Join(dir, "other.pem")),
		"the private key":       org("generate", "beta", "--key", private),
		"a folder for the key":  org("generate", "beta", "--key", dir),
		"no folder for the key": org("generate", "beta", "--key", filepath.Join(dir, "absent", "k.pem")),
	} {
		if got.status != 2 || got.out != "" || strings.Count(got.errOut, "\n") != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if now, err := os.ReadFile(private); err != nil || string(now) != string(key) {
		t.Errorf("the private key has changed: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("there is %v, %v", entries, err)
	}

	_, command, _ := strings.Cut(made.out, "    packhorse ")
	command = strings.ReplaceAll(strings.TrimSpace(command), "REPOSITORY", "web/site")
	token := runShell(t, command)
	tokens, err := auth.Open(auth.Options{Dir: orgs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	grant, err := tokens.Verify("Bearer " + token)
	if err != nil || grant.Org != "acme" || grant.Repo != "web/site" || grant.Scopes != readWrite|auth.RepoWrite {
		t.Errorf("%q gives %+v, %v", command, grant, err)
	}
	if config, ok := tokens.OrgConfig("acme"); !ok || config.Unread || config.CreateOnPush {
		t.Errorf("org.yaml: %+v, %t", config, ok)
	}

	if got := org("generate", "beta", "--key", filepath.Join(dir, "beta.pem")); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if got := org("list"); got.status != 0 || got.out != "acme  1 key  0 settings\nbeta  1 key  0 settings\n2 organizations\n" {
		t.Errorf("list: %+v", got)
	}
	if got := org("show", "acme"); got.status != 0 || !strings.HasPrefix(got.out, "key first: ES256 ") {
		t.Errorf("show: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(orgs, "beta", "org.yaml"), []byte("limit: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := org("list"); got.status != 1 || !strings.Contains(got.out, "beta  beta/org.yaml: ") ||
		!strings.HasPrefix(got.out, "acme  1 key") {
		t.Errorf("list one that is not understood: %+v", got)
	}
	if got := org("show", "beta"); got.status != 2 || !strings.Contains(got.errOut, filepath.Join(orgs, "beta", "org.yaml")) {
		t.Errorf("show one that is not understood: %+v", got)
	}
	for _, call := range []string{"show", "remove"} {
		if got := org(call, "gamma"); got.status != 1 || !strings.Contains(got.errOut, `there is no organization "gamma"`) {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if got := org("remove", "acme", "gamma"); got.status != 1 || got.out != "" {
		t.Errorf("remove one of two: %+v", got)
	}
	if got := org("remove", "beta", "acme"); got.status != 0 ||
		!strings.HasPrefix(got.out, "acme: removed\nacme: key first removed: it was ES256 ") || !strings.Contains(got.out, "beta: removed\n") {
		t.Errorf("remove: %+v", got)
	}
	if entries, err := os.ReadDir(orgs); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
	tokens.Reload()
	if _, err := tokens.Verify("Bearer " + token); err == nil {
		t.Error("the token of an organization that was removed is good")
	}
}

// runShell runs packhorse with words as a shell reads them, and returns the line that it prints.
func runShell(t *testing.T, words string) string {
	t.Helper()
	got := runBinary(t, "sh", nil, "-c", `packhorse() { "$0" "$@"; }; packhorse `+words, bin)
	if got.status != 0 {
		t.Fatalf("%+v", got)
	}
	return strings.TrimSpace(got.out)
}
