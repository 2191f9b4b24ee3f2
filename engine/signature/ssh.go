package signature

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// The armor of PROTOCOL.sshsig.
const (
	sshBegin = "-----BEGIN SSH SIGNATURE-----"
	sshEnd   = "-----END SSH SIGNATURE-----"
	sshMagic = "SSHSIG"
	// sshNamespace is the namespace of git's signatures: one made for a file or a login is not
	// valid for a commit.
	sshNamespace = "git"

	sshSignatureMax = 64 << 10
)

// sshSignature is the blob in the armor, after the magic word. Strings have their length in four
// bytes in front.
type sshSignature struct {
	Version       uint32
	PublicKey     []byte
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     []byte
}

// sshSigned is the signed data, after the magic word.
type sshSigned struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          []byte
}

var errSSHFormat = errors.New("malformed SSH signature")

// parseSSH reads an armored signature.
func parseSSH(armored []byte) (*sshSignature, error) {
	if len(armored) > sshSignatureMax {
		return nil, errSSHFormat
	}
	body, ok := strings.CutPrefix(strings.TrimSpace(string(armored)), sshBegin)
	if !ok {
		return nil, errSSHFormat
	}
	if body, ok = strings.CutSuffix(body, sshEnd); !ok {
		return nil, errSSHFormat
	}
	blob, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(body))
	if err != nil {
		return nil, errSSHFormat
	}
	blob, ok = bytes.CutPrefix(blob, []byte(sshMagic))
	if !ok {
		return nil, errSSHFormat
	}
	s := &sshSignature{}
	if err := ssh.Unmarshal(blob, s); err != nil || s.Version != 1 {
		return nil, errSSHFormat
	}
	return s, nil
}

func (k *Keys) verifySSH(payload, armored []byte, now time.Time) error {
	s, err := parseSSH(armored)
	if err != nil {
		return err
	}
	if s.Namespace != sshNamespace {
		return errors.New("an SSH signature of another namespace")
	}
	key, ok := k.ssh[string(s.PublicKey)]
	switch {
	case !ok:
		return errors.New("the SSH key is not registered")
	case !key.expires.IsZero() && !now.Before(key.expires):
		return errors.New("the SSH key has expired")
	}
	var hash []byte
	switch s.HashAlgorithm {
	case "sha256":
		sum := sha256.Sum256(payload)
		hash = sum[:]
	case "sha512":
		sum := sha512.Sum512(payload)
		hash = sum[:]
	default:
		return errSSHFormat
	}
	var signature ssh.Signature
	if err := ssh.Unmarshal(s.Signature, &signature); err != nil {
		return errSSHFormat
	}
	if err := checkFormat(key.public.Type(), &signature); err != nil {
		return err
	}
	signed := append([]byte(sshMagic), ssh.Marshal(sshSigned{
		Namespace: s.Namespace, Reserved: s.Reserved, HashAlgorithm: s.HashAlgorithm, Hash: hash,
	})...)
	return key.public.Verify(signed, &signature)
}

// checkFormat refuses formats that ssh-keygen refuses too: RSA over SHA-1, and a security key that
// was not touched.
func checkFormat(keyType string, s *ssh.Signature) error {
	const touched = 1
	switch keyType {
	case ssh.KeyAlgoRSA:
		if s.Format != ssh.KeyAlgoRSASHA256 && s.Format != ssh.KeyAlgoRSASHA512 {
			return errors.New("an RSA signature over SHA-1")
		}
	case ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		if len(s.Rest) == 0 || s.Rest[0]&touched == 0 {
			return errors.New("the security key was not touched")
		}
		return nil
	}
	if len(s.Rest) > 0 {
		return errSSHFormat
	}
	return nil
}
