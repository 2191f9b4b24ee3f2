package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"packhorse/engine/signature"
)

const (
	commitHead = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n"
	commitBody = "\na message\n"
)

// signer makes a key that is always the same for a seed.
func signer(t *testing.T, seed byte) (ssh.Signer, string) {
	t.Helper()
	made, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return made, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(made.PublicKey())))
}

// sign returns the armor of OpenSSH's PROTOCOL.sshsig around a signature of payload.
func sign(t *testing.T, with ssh.Signer, namespace, payload string) string {
	t.Helper()
	hash := sha512.Sum512([]byte(payload))
	signed := append([]byte("SSHSIG"), ssh.Marshal(struct {
		Namespace, Reserved, Algorithm string
		Hash                           []byte
	}{namespace, "", "sha512", hash[:]})...)
	made, err := with.Sign(nil, signed)
	if err != nil {
		t.Fatal(err)
	}
	blob := append([]byte("SSHSIG"), ssh.Marshal(struct {
		Version                        uint32
		Key                            []byte
		Namespace, Reserved, Algorithm string
		Signature                      []byte
	}{1, with.PublicKey().Marshal(), namespace, "", "sha512", ssh.Marshal(made)})...)
	return "-----BEGIN SSH SIGNATURE-----\n" + base64.StdEncoding.EncodeToString(blob) + "\n-----END SSH SIGNATURE-----\n"
}

// header is a signature as a commit carries it.
func header(armored string) string {
	return "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(armored, "\n"), "\n", "\n ") + "\n"
}

func TestVerifySSH(t *testing.T) {
	t.Parallel()
	ours, public := signer(t, 1)
	other, _ := signer(t, 2)
	good := header(sign(t, ours, "git", commitHead+commitBody))
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		keys, commit string
		err          error
	}{
		"signed":             {public, commitHead + good + commitBody, nil},
		"other hash beside":  {public, commitHead + good + "gpgsig-sha256 x\n y\n" + commitBody, nil},
		"not yet expired":    {`expiry-time="20260602" ` + public, commitHead + good + commitBody, nil},
		"expired":            {`expiry-time="20260531" ` + public, commitHead + good + commitBody, signature.ErrInvalid},
		"not signed":         {public, commitHead + commitBody, signature.ErrUnsigned},
		"signed twice":       {public, commitHead + good + good + commitBody, signature.ErrUnsigned},
		"signed in the body": {public, commitHead + "\n" + good, signature.ErrUnsigned},
		"other text":         {public, commitHead + good + commitBody + "more\n", signature.ErrInvalid},
		"other header":       {public, commitHead + good + "encoding x\n" + commitBody, signature.ErrInvalid},
		"not registered": {
			public, commitHead + header(sign(t, other, "git", commitHead+commitBody)) + commitBody, signature.ErrInvalid,
		},
		"signed for a file": {
			public, commitHead + header(sign(t, ours, "file", commitHead+commitBody)) + commitBody, signature.ErrInvalid,
		},
		"nobody is": {"", commitHead + good + commitBody, signature.ErrInvalid},
		"no armor":  {public, commitHead + "gpgsig yes\n" + commitBody, signature.ErrInvalid},
		"armor without a sum": {public, commitHead +
			header("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n") + commitBody, signature.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, failed := signature.ParseKeys([][]byte{[]byte(test.keys)})
			if err := errors.Join(failed...); err != nil {
				t.Fatal(err)
			}
			if err := keys.Verify([]byte(test.commit), now); !errors.Is(err, test.err) {
				t.Errorf("Verify: %v, want %v", err, test.err)
			}
		})
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	_, public := signer(t, 1)
	tests := map[string]struct {
		file  string
		count int
		err   error
	}{
		"empty":          {"", 0, nil},
		"one":            {public + "\n", 1, nil},
		"with a comment": {"# ours\n" + public + " somebody@example.com\n\n", 1, nil},
		"nonsense":       {"no key\n", 0, signature.ErrKey},
		"half a key":     {public[:30], 0, signature.ErrKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, failed := signature.ParseKeys([][]byte{[]byte(test.file)})
			if err := errors.Join(failed...); keys.Count() != test.count || !errors.Is(err, test.err) {
				t.Errorf("%d keys, %v; want %d, %v", keys.Count(), err, test.count, test.err)
			}
		})
	}
}
