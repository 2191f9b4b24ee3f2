package credential_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/credential"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

var login = credential.Login{Username: "user-name", Password: "pass-word"}

func newSeal(t *testing.T, fill byte) *credential.Seal {
	t.Helper()
	seal, err := credential.NewSeal(bytes.Repeat([]byte{fill}, credential.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

// TestSeal opens a sealed login in its own place with its own key, and fails elsewhere.
func TestSeal(t *testing.T) {
	t.Parallel()
	repo, otherRepo := refs.RepoID{1}, refs.RepoID{2}
	id, err := credential.NewID(repo)
	if err != nil {
		t.Fatal(err)
	}
	otherID, err := credential.NewID(repo)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := newSeal(t, 7).Close("acme", repo, id, login)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte(login.Password)) {
		t.Error("the password is readable")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)/2] ^= 1
	for name, test := range map[string]struct {
		seal   *credential.Seal
		org    string
		repo   refs.RepoID
		id     credential.ID
		sealed []byte
		err    error
	}{
		"its place":            {newSeal(t, 7), "acme", repo, id, sealed, nil},
		"another key":          {newSeal(t, 8), "acme", repo, id, sealed, credential.ErrKey},
		"no key":               {nil, "acme", repo, id, sealed, credential.ErrKey},
		"another organization": {newSeal(t, 7), "acm", repo, id, sealed, credential.ErrKey},
		"another repository":   {newSeal(t, 7), "acme", otherRepo, id, sealed, credential.ErrKey},
		"another credential":   {newSeal(t, 7), "acme", repo, otherID, sealed, credential.ErrKey},
		"changed":              {newSeal(t, 7), "acme", repo, id, changed, credential.ErrKey},
		"empty":                {newSeal(t, 7), "acme", repo, id, nil, credential.ErrKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.seal.Open(test.org, test.repo, test.id, test.sealed)
			if !errors.Is(err, test.err) || (err == nil) != (got == login) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestKeySize(t *testing.T) {
	t.Parallel()
	if _, err := credential.NewSeal([]byte("short")); err == nil {
		t.Error("a short key was taken")
	}
	seal, err := credential.NewSeal(nil)
	if err != nil || !errors.Is(seal.Check(), credential.ErrKey) {
		t.Errorf("without a key: %v, %v", err, seal.Check())
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	repo := refs.RepoID{1, 2, 3}
	id, err := credential.NewID(repo)
	if err != nil {
		t.Fatal(err)
	}
	if again, ok := credential.ParseID(id.String()); !ok || again != id || again.Repo() != repo {
		t.Errorf("read back %v, %v", again, ok)
	}
	for _, text := range []string{"", "x", id.String()[2:], id.String() + "00", strings.Repeat("g", 2*len(id))} {
		if _, ok := credential.ParseID(text); ok {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	repo := refs.RepoID{1}
	if _, _, err := credential.Read(t.Context(), keys, repo); !errors.Is(err, credential.ErrNone) {
		t.Errorf("before: %v", err)
	}
	put := func(data []byte) {
		t.Helper()
		batch := kv.NewBatch()
		batch.Put(credential.Key(repo), data)
		if _, err := keys.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	id, err := credential.NewID(repo)
	if err != nil {
		t.Fatal(err)
	}
	row := credential.Row{ID: id, Created: time.Unix(1_700_000_000, 0).UTC(), Sealed: []byte("sealed")}
	data, err := row.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(data)
	got, stored, err := credential.Read(t.Context(), keys, repo)
	if err != nil || !bytes.Equal(stored, data) || got.ID != id || !got.Created.Equal(row.Created) ||
		string(got.Sealed) != "sealed" {
		t.Errorf("read back %+v, %q, %v", got, stored, err)
	}
	for _, damaged := range []string{"", "{", `{"id":"AAAA"}`} {
		put([]byte(damaged))
		if _, _, err := credential.Read(t.Context(), keys, repo); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%q: %v", damaged, err)
		}
	}
}

func TestSecretIsNotShown(t *testing.T) {
	t.Parallel()
	if text := fmt.Sprintf(
		"%v %+v %#v %s %q", login, login, login, login.Password, login.Password,
	); strings.Contains(text, string(login.Password)) || strings.Contains(text, string(login.Username)) {
		t.Errorf("shown as %s", text)
	}
}
