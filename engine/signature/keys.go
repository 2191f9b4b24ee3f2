package signature

import (
	"bufio"
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"golang.org/x/crypto/ssh"
)

// rsaBitsMin is the size below which an RSA key is refused.
const rsaBitsMin = 2048

// Keys are the registered keys of an organization. They may be used concurrently.
type Keys struct {
	pgp openpgp.EntityList
	ssh map[string]sshKey // by the key's wire form
}

// sshKey is a registered SSH key.
type sshKey struct {
	public  ssh.PublicKey
	expires time.Time // zero: never
}

// ParseKeys reads files of public keys: OpenPGP, armored or not, or SSH keys, one a line as in a
// .pub file or in authorized_keys(5), whose option expiry-time counts. An empty file holds none. A
// file that cannot be read as either registers nothing, and has its error in the result, at its
// index; the others count. Errors: [ErrKey].
func ParseKeys(files [][]byte) (*Keys, []error) {
	keys := &Keys{ssh: make(map[string]sshKey)}
	errs := make([]error, len(files))
	for i, data := range files {
		if err := keys.add(data); err != nil {
			errs[i] = fmt.Errorf("%w: %w", ErrKey, err)
		}
	}
	return keys, errs
}

// Count returns the number of keys.
func (k *Keys) Count() int { return len(k.pgp) + len(k.ssh) }

func (k *Keys) add(data []byte) error {
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		return nil
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN PGP")):
		return k.addArmored(trimmed)
	case data[0]&0x80 != 0: // every OpenPGP packet begins with this bit, and no text does
		return k.addPGP(bytes.NewReader(data))
	}
	return k.addSSH(string(trimmed))
}

func (k *Keys) addArmored(data []byte) error {
	from := bufio.NewReader(bytes.NewReader(data)) // any other reader would let armor consume bytes behind the block, too
	for {
		block, err := armor.Decode(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if block.Type != openpgp.PublicKeyType {
			return fmt.Errorf("a %s, not a public key", block.Type)
		}
		if err := k.addPGP(block.Body); err != nil {
			return err
		}
	}
}

func (k *Keys) addPGP(from io.Reader) error {
	entities, err := openpgp.ReadKeyRing(from)
	if err != nil {
		return err
	}
	k.pgp = append(k.pgp, entities...)
	return nil
}

func (k *Keys) addSSH(text string) error {
	var parsed []sshKey
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		public, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return err
		}
		key := sshKey{public: public}
		if err := key.check(); err != nil {
			return err
		}
		if key.expires, err = expiryOf(options); err != nil {
			return err
		}
		parsed = append(parsed, key)
	}
	for _, key := range parsed {
		k.ssh[string(key.public.Marshal())] = key
	}
	return nil
}

// check refuses keys that sign for others, and short ones.
func (k *sshKey) check() error {
	if _, ok := k.public.(*ssh.Certificate); ok {
		return errors.New("a certificate")
	}
	if k.public.Type() == "ssh-dss" {
		return errors.New("a DSA key")
	}
	if holder, ok := k.public.(ssh.CryptoPublicKey); ok {
		if public, ok := holder.CryptoPublicKey().(*rsa.PublicKey); ok && public.N.BitLen() < rsaBitsMin {
			return fmt.Errorf("an RSA key of %d bits, want %d or more", public.N.BitLen(), rsaBitsMin)
		}
	}
	return nil
}

// expiryOf reads the option expiry-time, which is in UTC here. Any other option limits a key in a
// way that is not known.
func expiryOf(options []string) (expires time.Time, err error) {
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		if name != "expiry-time" {
			return expires, fmt.Errorf("option %.40q is not known", name)
		}
		value = strings.TrimSuffix(strings.Trim(value, `"`), "Z")
		layout := "20060102150405"
		if len(value) > len(layout) || len(value) < len("20060102") {
			return expires, fmt.Errorf("%.40q is no expiry-time", value)
		}
		if expires, err = time.Parse(layout[:len(value)], value); err != nil {
			return expires, fmt.Errorf("%.40q is no expiry-time", value)
		}
	}
	return expires, nil
}
