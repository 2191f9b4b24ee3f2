package signature_test

import (
	"bytes"
	"testing"
	"time"

	"packhorse/engine/signature"
)

// The only commit that was ever signed with the key.
const (
	signingKey    = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs"
	signedPayload = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\na message\n"
	signedHeader  = "gpgsig -----BEGIN SSH SIGNATURE-----\n " +
		"U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iwAAAADZ2l0AAAAAAAAAAZzaGE1MTIAAABTAAAAC3NzaC1lZDI1NTE5AAAAQO7VR+5Xf5QkefOBEp/EM4bseGF8GsqGqIavZLfGC399qBoB2VJKWXx6adQAjq8WM4zHhnVGNwcrk31p1/r4Dgg=\n " +
		"-----END SSH SIGNATURE-----\n"
)

// FuzzSignature holds that of all commits only the one that was signed is taken for signed.
func FuzzSignature(f *testing.F) {
	keys, failed := signature.ParseKeys([][]byte{[]byte(signingKey)})
	if failed[0] != nil {
		f.Fatal(failed[0])
	}
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	end := bytes.Index([]byte(signedPayload), []byte("\n\n")) + 1
	signed := []byte(signedPayload[:end] + signedHeader + signedPayload[end:])
	if err := keys.Verify(signed, now); err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add([]byte(signedPayload))
	f.Add([]byte("gpgsig -----BEGIN PGP SIGNATURE-----\n \n wsA=\n -----END PGP SIGNATURE-----\n\n"))
	f.Fuzz(func(t *testing.T, commit []byte) {
		payload, _, one := signature.Split(commit)
		err := keys.Verify(commit, now)
		if err == nil && (!one || !bytes.Equal(payload, []byte(signedPayload))) {
			t.Errorf("signed: %q", commit)
		}
		signature.ParseKeys([][]byte{commit})
	})
}
