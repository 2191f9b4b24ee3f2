// Package signature verifies the signatures of commits, as `git verify-commit` does with a keyring
// of registered keys only.
//
// A commit carries its signature in the header gpgsig; the signature covers the commit without it.
// git knows OpenPGP signatures (RFC 9580) and SSH signatures (OpenSSH's PROTOCOL.sshsig, namespace
// "git"). Start at [ParseKeys] and [Keys.Verify]. The package is pure: it knows bytes, keys and the
// time that it is given.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

var (
	// ErrUnsigned says that a commit carries no signature, or more than one.
	ErrUnsigned = errors.New("signature: commit is not signed")
	// ErrInvalid says that a commit's signature is not by a valid registered key.
	ErrInvalid = errors.New("signature: no valid signature of a registered key")
	// ErrKey says that a file holds something other than keys.
	ErrKey = errors.New("signature: not a signing key")
)

// Split separates a commit from its signature: payload is the signed text, and armored the
// signature. ok is false unless there is exactly one. Signatures for other hash functions
// (gpgsig-sha256) belong to neither.
func Split(commit []byte) (payload, armored []byte, ok bool) {
	payload = make([]byte, 0, len(commit))
	signatures := 0
	inSignature, inOther := false, false
	rest := commit
	for len(rest) > 0 && rest[0] != '\n' {
		line := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			line = rest[:end+1]
		}
		rest = rest[len(line):]
		text, signed := bytes.CutPrefix(line, []byte("gpgsig "))
		switch {
		case line[0] == ' ' && inSignature:
			armored = append(armored, line[1:]...)
		case line[0] == ' ' && inOther:
		case signed:
			signatures++
			inSignature, inOther = true, false
			armored = append(armored, text...)
		default:
			inSignature, inOther = false, bytes.HasPrefix(line, []byte("gpgsig"))
			if !inOther {
				payload = append(payload, line...)
			}
		}
	}
	return append(payload, rest...), armored, signatures == 1
}

// Verify returns nil when a registered key that is in force at the time now signed the commit,
// which is given as it is stored.
//
// Errors: [ErrUnsigned], [ErrInvalid].
func (k *Keys) Verify(commit []byte, now time.Time) error {
	payload, armored, ok := Split(commit)
	if !ok {
		return ErrUnsigned
	}
	var err error
	switch {
	case bytes.HasPrefix(armored, []byte("-----BEGIN PGP SIGNATURE-----")):
		err = k.verifyPGP(payload, armored, now)
	case bytes.HasPrefix(armored, []byte(sshBegin)):
		err = k.verifySSH(payload, armored, now)
	default:
		err = errors.New("neither an OpenPGP nor an SSH signature")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (k *Keys) verifyPGP(payload, armored []byte, now time.Time) error {
	// Expiry and revocation are checked at this time, and not at the one that a signature states:
	// the signer can invent that.
	config := &packet.Config{Time: func() time.Time { return now }}
	_, err := openpgp.CheckArmoredDetachedSignature(k.pgp, bytes.NewReader(payload), bytes.NewReader(armored), config)
	return err
}
