package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// TestVerifySig pushes commits with git under a token that demands signatures, while the
// organization registers a key and takes it back. The server goes on without a restart.
func TestVerifySig(t *testing.T) {
	t.Parallel()
	for name, newSigner := range map[string]func(tb testing.TB, kind string) oracle.Signer{
		"ssh": oracle.SSHSigner, "openpgp": oracle.PGPSigner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSignedPushes(t)
			ours, other := newSigner(t, "ed25519"), newSigner(t, "ed25519")
			p.refused("no key is registered", &ours)

			p.register("signers: [ours.pub]\n", ours.Public) // a field that is not known
			p.refused("org.yaml is wrong", &ours)
			p.register("signing_keys: [ours.pub]\n", ours.Public)
			p.becomes(true, &ours)
			p.refused("another key", &other)
			p.refused("no signature", nil)

			p.register("signing_keys: []\n", ours.Public)
			p.becomes(false, &ours)
		})
	}
}

// signedPushes is a git repository that pushes to a server, each commit to a branch of its own.
type signedPushes struct {
	t      *testing.T
	git    *oracle.Repository
	orgDir string
	remote string
	tree   string
	count  int
}

func newSignedPushes(t *testing.T) *signedPushes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := packhorsetest.Start(ctx, packhorsetest.Options{Bin: bin, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	token, err := server.Token(ctx, "r", "--scope", "git:write", "--scope", "repo:write", "--op", "verify-sig")
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{t: t, server: server, token: token}
	k.api(http.MethodPost, "/api/v1/repos", "", nil).mustBe(t, http.StatusCreated)
	p := &signedPushes{
		t: t, git: oracle.New(t), orgDir: server.OrgDir(), remote: k.remote(), tree: object.EmptyTreeID.String(),
	}
	p.git.Write("tree", nil)
	return p
}

// register writes org.yaml and the file of a key beside it.
func (p *signedPushes) register(config string, public []byte) {
	p.t.Helper()
	for name, data := range map[string][]byte{"ours.pub": public, "org.yaml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(p.orgDir, name), data, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// push pushes a new commit, signed unless by is nil, and returns git's message when it is refused.
func (p *signedPushes) push(by *oracle.Signer) (refusal string) {
	p.t.Helper()
	p.count++
	args := []string{"commit-tree", "-m", fmt.Sprint(p.count), p.tree}
	if by != nil {
		args = append(append(append([]string{}, by.Args...), args...), "-S")
	}
	_, err := p.git.Try(nil, "push", "--quiet", p.remote, p.git.Git(args...)+fmt.Sprintf(":refs/heads/b%d", p.count))
	if exit, ok := errors.AsType[*oracle.ExitError](err); ok {
		return exit.Stderr
	}
	return ""
}

// refused pushes a commit that must not be taken.
func (p *signedPushes) refused(what string, by *oracle.Signer) {
	p.t.Helper()
	if got := p.push(by); !strings.Contains(got, "denied by policy") {
		p.t.Errorf("%s: git push says %q", what, got)
	}
}

// becomes pushes commits until one is taken, or refused.
func (p *signedPushes) becomes(taken bool, by *oracle.Signer) {
	p.t.Helper()
	start := time.Now()
	for {
		refusal := p.push(by)
		if (refusal == "") == taken {
			break
		}
		if time.Since(start) > time.Minute {
			p.t.Fatalf("a minute after the change git push says %q", refusal)
		}
	}
	p.t.Logf("the change counts after %v", time.Since(start))
}
