package engine_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
	"packhorse/refs"
)

// signedHost is a repository whose organization has registered keys.
type signedHost struct {
	t    *testing.T
	repo *engine.Repository
	git  *oracle.Repository
	keys atomic.Pointer[[][]byte]
}

func newSignedHost(t *testing.T, keys ...[]byte) *signedHost {
	t.Helper()
	return newSignedHostOf(t, engine.Limits{}, keys...)
}

func newSignedHostOf(t *testing.T, limits engine.Limits, keys ...[]byte) *signedHost {
	t.Helper()
	h := &signedHost{t: t, git: oracle.New(t)}
	h.keys.Store(&keys)
	host, shut := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Limits: limits, SigningKeys: func(org string) [][]byte {
		if org != enginetest.Org {
			t.Errorf("keys of %q were asked for", org)
		}
		return *h.keys.Load()
	}})
	t.Cleanup(shut)
	h.repo = enginetest.Create(t, host, "r")
	return h
}

// commit makes a commit on top of the parents and returns its id. Without a signer it is not
// signed.
func (h *signedHost) commit(by *oracle.Signer, message string, parents ...string) string {
	h.t.Helper()
	args := []string{"commit-tree", "-m", message, object.EmptyTreeID.String()}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	if by != nil {
		args = append(append([]string{}, by.Args...), append(args, "-S")...)
	}
	h.git.Write("tree", nil)
	return strings.TrimSpace(h.git.Git(args...))
}

// push pushes id to a ref under the ops, and returns what became of it.
func (h *signedHost) push(name, id string, ops ...string) error {
	h.t.Helper()
	ctx := context.Background()
	policy, err := refs.ParsePolicy(nil, ops)
	if err != nil {
		h.t.Fatal(err)
	}
	actor := acme
	actor.Policy = policy
	command := engine.Command{Name: name, Old: h.at(name)}
	request := engine.PushRequest{}
	if id != "" {
		command.New = parseID(h.t, id)
		request.Pack = bytes.NewReader(h.git.Input([]byte(id+"\n"), "pack-objects", "--revs", "--stdout", "-q"))
	}
	request.Commands = []engine.Command{command}
	p, err := h.repo.Receive(ctx, actor, request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer p.Close()
	result, err := p.Finish(ctx, func(string) {})
	if err != nil {
		h.t.Fatal(err)
	}
	if result.Unpack != nil {
		h.t.Fatal(result.Unpack)
	}
	return result.Commands[0].Err
}

// at returns where a ref is, the zero id for nowhere.
func (h *signedHost) at(name string) (id object.ID) {
	h.t.Helper()
	advertised, err := h.repo.Advertise(context.Background(), refs.Main)
	if err != nil {
		h.t.Fatal(err)
	}
	defer advertised.Close()
	for ref, err := range advertised.All(context.Background(), name) {
		if err != nil {
			h.t.Fatal(err)
		}
		if ref.Name == name {
			return ref.ID
		}
	}
	return id
}

const verifySig = string(refs.VerifySig)

func (h *signedHost) want(name, id string, allowed bool, what string) {
	h.t.Helper()
	err := h.push(name, id, verifySig)
	if allowed && err != nil ||
		!allowed && (!errors.Is(err, refs.ErrDenied) || !strings.Contains(err.Error(), "denied by policy")) {
		h.t.Errorf("%s: got %v, want it allowed: %v", what, err, allowed)
	}
}

// TestVerifySig pushes histories signed by real keys.
func TestVerifySig(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T) oracle.Signer{
		"ssh ed25519":     func(t *testing.T) oracle.Signer { t.Helper(); return oracle.SSHSigner(t, "ed25519") },
		"ssh rsa":         func(t *testing.T) oracle.Signer { t.Helper(); return oracle.SSHSigner(t, "rsa") },
		"ssh ecdsa":       func(t *testing.T) oracle.Signer { t.Helper(); return oracle.SSHSigner(t, "ecdsa") },
		"openpgp ed25519": func(t *testing.T) oracle.Signer { t.Helper(); return oracle.PGPSigner(t, "ed25519") },
		"openpgp rsa":     func(t *testing.T) oracle.Signer { t.Helper(); return oracle.PGPSigner(t, "rsa3072") },
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, other := kind(t), kind(t)
			h := newSignedHost(t, ours.Public)
			first := h.commit(&ours, "first")
			plain := h.commit(nil, "plain", first)
			above := h.commit(&ours, "above", plain)
			h.want("refs/heads/main", h.commit(nil, "root"), false, "an unsigned commit")
			h.want("refs/heads/main", h.commit(&other, "root"), false, "another key's")
			h.want("refs/heads/main", first, true, "a signed commit")
			h.want("refs/heads/x", above, false, "a signed commit above an unsigned one")
			h.want("refs/heads/x", h.commit(&ours, "merge", first, plain), false, "a signed merge of an unsigned one")
			h.want("refs/heads/x", h.commit(nil, "merge", first, h.commit(&ours, "b", first)), false, "an unsigned merge")
			h.want("refs/heads/x", h.commit(&ours, "merge", first, h.commit(&ours, "b", first)), true, "a signed merge")

			signed := h.git.Read("commit", first)
			forged := h.git.Write("commit", bytes.Replace(signed, []byte("first"), []byte("frist"), 1))
			h.want("refs/heads/forged", forged, false, "a changed message")
			graft := bytes.Replace(h.git.Read("commit", h.commit(&ours, "graft", first)), []byte("parent "+first+"\n"), nil, 1)
			h.want("refs/heads/forged", h.git.Write("commit", graft), false, "a missing parent")
			h.want("refs/heads/forged", h.git.Write("commit", stripped(signed)), false, "a stripped signature")

			h.git.Git("tag", "-a", "-m", "t", "on-plain", plain)
			h.want("refs/tags/on-plain", strings.TrimSpace(h.git.Git("rev-parse", "on-plain")), false,
				"a tag on an unsigned commit")
			h.git.Git("tag", "-a", "-m", "t", "on-first", first)
			h.want("refs/tags/on-first", strings.TrimSpace(h.git.Git("rev-parse", "on-first")), true, "a tag on what is there")
			h.want("refs/tags/light", plain, false, "a light tag on an unsigned commit")
			h.want("refs/tags/blob", h.git.Write("blob", []byte("b")), true, "a tag on a blob")

			if err := h.push("refs/heads/free", plain); err != nil {
				t.Errorf("without the policy: %v", err)
			}
			h.want("refs/heads/y", above, true, "a signed commit above one that is there already")
			h.want("refs/heads/main", plain, false, "what only another ref holds")
			h.want("refs/heads/main", above, false, "what only another protected ref holds")
			h.want("refs/heads/w", plain, true, "a branch of a protected one")
			h.want("refs/heads/main", h.commit(&ours, "other root"), true, "a forced update to a signed commit")
			h.want("refs/heads/free", "", true, "a deletion")

			h.keys.Store(&[][]byte{nil, other.Public})
			h.want("refs/heads/z", h.commit(&ours, "late", first), false, "a key whose file has gone")
			h.want("refs/heads/z", h.commit(&other, "late", first), true, "the key that took its place")
		})
	}
}

// TestVerifySigIsBounded pushes more commits than one change may bring.
func TestVerifySigIsBounded(t *testing.T) {
	t.Parallel()
	ours := oracle.SSHSigner(t, "ed25519")
	h := newSignedHostOf(t, engine.Limits{VerifyCountMax: 2}, ours.Public)
	first := h.commit(&ours, "first")
	second := h.commit(&ours, "second", first)
	third := h.commit(&ours, "third", second)
	h.want("refs/heads/main", third, false, "three commits")
	h.want("refs/heads/main", first, true, "one commit")
	h.want("refs/heads/main", third, true, "two more")
	h.want("refs/heads/x", third, true, "no new one")
}

// stripped is a commit without its signature.
func stripped(commit []byte) []byte {
	head, rest, _ := bytes.Cut(commit, []byte("\ngpgsig "))
	for line := range bytes.Lines(rest) {
		if line[0] != ' ' && !bytes.HasPrefix(line, []byte("-----BEGIN")) {
			break
		}
		rest = rest[len(line):]
	}
	return append(append(head, '\n'), rest...)
}

// TestVerifySigOfWrites checks the policy for the API: it signs nothing, so its new commits are
// refused, and refs may move to existing ones.
func TestVerifySigOfWrites(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	made, err := upload(repo, acme, main, change{path: "a", content: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload(repo, acme, main, change{path: "a", content: "2"}); err != nil {
		t.Fatal(err)
	}
	under := func(op refs.Op) engine.Actor {
		policy, err := refs.ParsePolicy(nil, []string{string(op)})
		if err != nil {
			t.Fatal(err)
		}
		actor := acme
		actor.Policy = policy
		return actor
	}
	writes := []struct {
		name    string
		do      func(actor engine.Actor) error
		allowed map[refs.Op]bool
	}{
		{"commit", func(actor engine.Actor) error {
			_, err := upload(repo, actor, main, change{path: "a", content: time.Now().String()})
			return err
		}, map[refs.Op]bool{refs.NoForcePush: true}},
		{"restore", func(actor engine.Actor) error {
			details := engine.CommitDetails{Message: "m", Author: thor}
			request := engine.RestoreRequest{Target: main, Details: details, Commit: named(made.New)}
			_, err := repo.RestoreCommit(ctx, actor, request)
			return err
		}, map[refs.Op]bool{refs.NoForcePush: true}},
		{"note", func(actor engine.Actor) error {
			_, err := repo.AddNote(ctx, actor, engine.NoteTarget{Ref: engine.DefaultNotesRef, Object: named(made.New)}, "n", true)
			return err
		}, map[refs.Op]bool{refs.NoForcePush: true}},
		{"tag", func(actor engine.Actor) error {
			_, err := repo.CreateTag(ctx, actor, refs.Main, "t"+string(actor.Policy.Ops("refs/tags/t")[0]), named(made.New))
			return err
		}, map[refs.Op]bool{refs.NoForcePush: true, refs.VerifySig: true}},
		{"delete tag", func(actor engine.Actor) error {
			if _, err := repo.CreateTag(ctx, acme, refs.Main, "gone", named(made.New)); err != nil &&
				!errors.Is(err, engine.ErrExists) {
				return err
			}
			_, err := repo.DeleteTag(ctx, actor, refs.Main, "gone")
			return err
		}, map[refs.Op]bool{refs.VerifySig: true}},
		{"branch", func(actor engine.Actor) error {
			name := "b" + string(actor.Policy.Ops("refs/heads/b")[0])
			_, err := repo.CreateBranch(ctx, actor, engine.CreateBranchRequest{Branch: name, Base: branchNamed("main")})
			return err
		}, map[refs.Op]bool{refs.NoForcePush: true, refs.VerifySig: true}},
		{"an op that is not known", func(engine.Actor) error {
			_, err := repo.CreateBranch(ctx, under("sign-off"), engine.CreateBranchRequest{Branch: "x", Base: branchNamed("main")})
			return err
		}, nil},
	}
	for _, w := range writes {
		for _, op := range []refs.Op{refs.NoPush, refs.NoForcePush, refs.VerifySig} {
			err := w.do(under(op))
			if allowed := w.allowed[op]; allowed && err != nil ||
				!allowed && (!errors.Is(err, refs.ErrDenied) || !strings.Contains(err.Error(), "denied by policy")) {
				t.Errorf("%s under %s: got %v, want it allowed: %v", w.name, op, err, allowed)
			}
		}
	}
}
