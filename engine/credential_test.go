package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/credential"
	"packhorse/engine/enginetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

var (
	secretKey = bytes.Repeat([]byte{7}, credential.KeySize)
	login     = credential.Login{Username: "user-name", Password: "pass-word"}
)

func TestCredential(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{SecretKey: secretKey})
	repo := enginetest.Create(t, host, "r")
	if _, err := repo.Credential(ctx); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	actor := acme
	actor.Receipt = &refs.Receipt{
		Key:     refs.ReceiptKey{Org: enginetest.Org, Repo: "r", Endpoint: "e", Key: "k"},
		Request: host.SecretDigest([]byte("body")),
	}
	made, err := repo.CreateCredential(ctx, actor, login)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := repo.CreateCredential(ctx, actor, login); err != nil || again.ID != made.ID ||
		again.Sequence != made.Sequence || !again.Created.Equal(made.Created) {
		t.Errorf("replayed %+v, %v; want %+v", again, err, made)
	}
	if _, err := repo.CreateCredential(ctx, acme, login); !errors.Is(err, engine.ErrExists) {
		t.Errorf("a second one: %v", err)
	}
	if got, err := repo.Credential(ctx); err != nil || got != login {
		t.Errorf("opened %q, %v", string(got.Password), err)
	}
	other := credential.Login{Password: "token"}
	updated, err := repo.UpdateCredential(ctx, acme, made.ID, other)
	if err != nil || updated.ID != made.ID || !updated.Created.Equal(made.Created) || updated.Sequence <= made.Sequence {
		t.Errorf("updated %+v, %v", updated, err)
	}
	wrong := made.ID
	wrong[len(wrong)-1]++
	if _, err := repo.UpdateCredential(ctx, acme, wrong, login); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("update of another id: %v", err)
	}
	if _, err := repo.DeleteCredential(ctx, acme, wrong); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("deletion of another id: %v", err)
	}
	shut()

	host, shut = enginetest.OpenOn(t, fs, engine.Config{SecretKey: bytes.Repeat([]byte{8}, credential.KeySize)})
	if repo, err = host.Repository(ctx, enginetest.Org, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Credential(ctx); !errors.Is(err, credential.ErrKey) {
		t.Errorf("with another key: %v", err)
	}
	shut()

	host, shut = enginetest.OpenOn(t, fs, engine.Config{SecretKey: secretKey})
	defer shut()
	if repo, err = host.Repository(ctx, enginetest.Org, "r"); err != nil {
		t.Fatal(err)
	}
	if got, err := repo.Credential(ctx); err != nil || got != other {
		t.Errorf("after a restart: %q, %v", string(got.Password), err)
	}
	if _, err := repo.DeleteCredential(ctx, acme, made.ID); err != nil {
		t.Error(err)
	}
	if _, err := repo.Credential(ctx); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestCredentialWithoutKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	host := enginetest.Open(t)
	repo := enginetest.Create(t, host, "r")
	_, readErr := repo.Credential(ctx)
	_, createErr := repo.CreateCredential(ctx, acme, login)
	_, deleteErr := repo.DeleteCredential(ctx, acme, credential.ID{})
	for _, err := range []error{host.CheckSecrets(), readErr, createErr, deleteErr} {
		if !errors.Is(err, credential.ErrKey) {
			t.Errorf("got %v", err)
		}
	}
	_, err := engine.Open(ctx, engine.Config{SecretKey: []byte("short")})
	if err == nil {
		t.Error("a short key was taken")
	}
}

// TestCredentialIsSealed reads every stored value: none contains the secret of a credential, nor a
// hash to try guesses on, and a login that is sealed for one repository opens for no other.
func TestCredentialIsSealed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{SecretKey: secretKey})
	body := []byte("request with pass-word")
	var rows [][]byte
	for _, name := range []string{"one", "two", "gone"} {
		repo := enginetest.Create(t, host, name)
		actor := acme
		actor.Receipt = &refs.Receipt{
			Key: refs.ReceiptKey{Org: enginetest.Org, Repo: name, Endpoint: "e", Key: "k"}, Request: host.SecretDigest(body),
		}
		if _, err := repo.CreateCredential(ctx, actor, login); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := host.DeleteRepository(ctx, acme, "gone"); err != nil {
		t.Fatal(err)
	}
	shut()

	keys := odbtest.OpenKeys(t, fs)
	sum := sha256.Sum256(body)
	batch := kv.NewBatch()
	for pair, err := range keys.Scan(ctx, kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range [][]byte{[]byte("user-name"), []byte("pass-word"), sum[:]} {
			if bytes.Contains(pair.Value, secret) || bytes.Contains(pair.Key, secret) {
				t.Errorf("key %q holds %q", pair.Key, secret)
			}
		}
		if pair.Key[0] == 'k' {
			rows = append(rows, bytes.Clone(pair.Key), bytes.Clone(pair.Value))
		}
	}
	if len(rows) != 4 {
		t.Fatalf("%d credentials are stored, want those of two repositories", len(rows)/2)
	}
	batch.Put(rows[0], rows[3]) // one repository's credential in the place of the other's
	commit, err := keys.Apply(ctx, batch)
	if err == nil {
		err = commit.Wait(ctx)
	}
	if err = errors.Join(err, keys.Close()); err != nil {
		t.Fatal(err)
	}
	host, shut = enginetest.OpenOn(t, fs, engine.Config{SecretKey: secretKey})
	defer shut()
	moved, err := host.RepositoryByID(ctx, enginetest.Org, refs.RepoID(rows[0][1:]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := moved.Credential(ctx); err == nil {
		t.Error("a credential opens for another repository")
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(format, login); strings.Contains(text, "pass-word") || strings.Contains(text, "user-name") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}
