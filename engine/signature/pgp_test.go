package signature_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"packhorse/engine/signature"
)

// day is a time of the tests' calendar.
func day(n int) time.Time { return time.Date(2026, 3, n, 12, 0, 0, 0, time.UTC) }

// on is a configuration in which it is a certain time, and in which keys are made to last so many
// days, 0 for ever.
func on(when time.Time, lastsDays int) *packet.Config {
	return &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return when },
		KeyLifetimeSecs: uint32(lastsDays * 24 * 60 * 60),
	}
}

// newPGP makes a key on the first of the month that lasts so many days.
func newPGP(t *testing.T, lastsDays int) *openpgp.Entity {
	t.Helper()
	made, err := openpgp.NewEntity("A", "", "a@example.com", on(day(1), lastsDays))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// publicPGP is the key as it is registered, in armor.
func publicPGP(t *testing.T, key *openpgp.Entity) string {
	t.Helper()
	var file bytes.Buffer
	w, err := armor.Encode(&file, openpgp.PublicKeyType, nil)
	if err == nil {
		err = errors.Join(key.Serialize(w), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// signPGP signs the payload of a commit, at a time.
func signPGP(t *testing.T, key *openpgp.Entity, when time.Time, payload string) string {
	t.Helper()
	var armored bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&armored, key, strings.NewReader(payload), on(when, 0)); err != nil {
		t.Fatal(err)
	}
	return armored.String()
}

// TestVerifyPGP holds that a key counts while it is in force, whatever time its signature states.
func TestVerifyPGP(t *testing.T) {
	t.Parallel()
	plain := func(*testing.T, *openpgp.Entity) {}
	revoke := func(when time.Time) func(t *testing.T, key *openpgp.Entity) {
		return func(t *testing.T, key *openpgp.Entity) {
			t.Helper()
			if err := key.RevokeKey(packet.KeyCompromised, "lost", on(when, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	subkey := func(lastsDays int) func(t *testing.T, key *openpgp.Entity) {
		return func(t *testing.T, key *openpgp.Entity) {
			t.Helper()
			if err := key.AddSigningSubkey(on(day(1), lastsDays)); err != nil {
				t.Fatal(err)
			}
		}
	}
	revokeSubkey := func(t *testing.T, key *openpgp.Entity) {
		t.Helper()
		if err := key.RevokeSubkey(
			&key.Subkeys[len(key.Subkeys)-1], packet.KeyCompromised, "lost", on(day(4), 0),
		); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		lastsDays int
		before    func(t *testing.T, key *openpgp.Entity) // what happens to the key before it signs
		after     func(t *testing.T, key *openpgp.Entity) // and before it is registered
		signed    time.Time
		now       time.Time
		err       error
	}{
		"in force":                    {0, plain, plain, day(2), day(9), nil},
		"not yet expired":             {20, plain, plain, day(2), day(9), nil},
		"expired":                     {5, plain, plain, day(2), day(9), signature.ErrInvalid},
		"made later":                  {0, plain, plain, day(2), day(1).Add(-time.Hour), signature.ErrInvalid},
		"signed in the future":        {0, plain, plain, day(9), day(2), signature.ErrInvalid},
		"revoked":                     {0, plain, revoke(day(3)), day(2), day(9), signature.ErrInvalid},
		"revoked before it signs":     {0, plain, revoke(day(2)), day(4), day(9), signature.ErrInvalid},
		"signed by a subkey":          {0, subkey(0), plain, day(2), day(9), nil},
		"signed by an expired subkey": {0, subkey(5), plain, day(2), day(9), signature.ErrInvalid},
		"the primary key has expired": {5, subkey(0), plain, day(2), day(9), signature.ErrInvalid},
		"the primary key is revoked":  {0, subkey(0), revoke(day(3)), day(2), day(9), signature.ErrInvalid},
		"the subkey is revoked":       {0, subkey(0), revokeSubkey, day(2), day(9), signature.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := newPGP(t, test.lastsDays)
			test.before(t, key)
			armored := signPGP(t, key, test.signed, commitHead+commitBody)
			test.after(t, key)
			keys, failed := signature.ParseKeys([][]byte{[]byte(publicPGP(t, key))})
			if err := errors.Join(failed...); err != nil || keys.Count() != 1 {
				t.Fatalf("%d keys, %v", keys.Count(), err)
			}
			if err := keys.Verify([]byte(commitHead+header(armored)+commitBody), test.now); !errors.Is(err, test.err) {
				t.Errorf("Verify: %v, want %v", err, test.err)
			}
		})
	}
}

// TestVerifyPGPDefects has signatures with one defect each.
func TestVerifyPGPDefects(t *testing.T) {
	t.Parallel()
	ours, other := newPGP(t, 0), newPGP(t, 0)
	good := signPGP(t, ours, day(2), commitHead+commitBody)
	commit := func(armored string) string { return commitHead + header(armored) + commitBody }
	tests := map[string]struct {
		keys, commit string
		err          error
	}{
		"none":            {publicPGP(t, ours), commit(good), nil},
		"one of two keys": {publicPGP(t, other) + "\n" + publicPGP(t, ours), commit(good), nil},
		"another key":     {publicPGP(t, other), commit(good), signature.ErrInvalid},
		"no key":          {"", commit(good), signature.ErrInvalid},
		"another message": {publicPGP(t, ours), commit(good) + "more\n", signature.ErrInvalid},
		"another author": {
			publicPGP(t, ours), strings.Replace(commit(good), "author A", "author B", 1), signature.ErrInvalid,
		},
		"half a signature": {publicPGP(t, ours), commit(good[:len(good)/2]), signature.ErrInvalid},
		"no packet": {
			publicPGP(t, ours), commit("-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----\n"), signature.ErrInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, failed := signature.ParseKeys([][]byte{[]byte(test.keys)})
			if err := errors.Join(failed...); err != nil {
				t.Fatal(err)
			}
			if err := keys.Verify([]byte(test.commit), day(9)); !errors.Is(err, test.err) {
				t.Errorf("Verify: %v, want %v", err, test.err)
			}
		})
	}
}

// TestParseManyPGP reads keys one behind the other, whose lengths differ.
func TestParseManyPGP(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	const count = 20
	for i := range count {
		key, err := openpgp.NewEntity(strings.Repeat("A", 1+7*i), "", "a@example.com", on(day(1), 0))
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString("a comment\n" + publicPGP(t, key) + "\n")
	}
	text := strings.TrimPrefix(file.String(), "a comment\n")
	keys, failed := signature.ParseKeys([][]byte{[]byte(text)})
	if err := errors.Join(failed...); err != nil || keys.Count() != count {
		t.Errorf("%d keys, %v; want %d", keys.Count(), err, count)
	}
}
