package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"packhorse/engine/organization"
)

// orgGenerateCommand makes an organization.
type orgGenerateCommand struct {
	Name string `arg:"" help:"Name of the organization: letters, digits, dot, underscore, dash." is:"name"`
	Key  string `help:"File to make for the private key; by default NAME-private.pem in the present folder." placeholder:"PRIVATE.pem" type:"path" is:"absent file"`
	Kid  string `help:"Key ID; by default derived from the fingerprint." placeholder:"ID" is:"name"`
	Orgs string `help:"Folder of organizations, which is made if it does not exist; or else --keys." placeholder:"DIR" type:"path" is:"new folder"`

	rowsFlags
}

// orgYAML is the first org.yaml of an organization: the defaults.
const orgYAML = `# Settings of this organization. All of them are explained in docs/operations.md, "Organizations".
# A change takes effect within seconds. Write the new file beside this one and rename it.
#
# create_on_push: true
# keep_history: 30d
# limits:
#   repositories: 50
#   quota_bytes: 10GiB
`

// Run makes the private key, then the organization, and prints what to do next. It overwrites
// nothing, and leaves nothing behind when it fails.
func (c orgGenerateCommand) Run(ctx context.Context, to streams) (err error) {
	if err := oneOf(c.Orgs, c.Keys); err != nil {
		return err
	}
	path, err := filepath.Abs(c.Key)
	if c.Key == "" {
		path, err = filepath.Abs(c.Name + "-private.pem")
	}
	if err != nil {
		return err
	}
	private, err := newPrivateKey()
	if err != nil {
		return err
	}
	publicPEM, err := publicKeyOf(private)
	if err != nil {
		return err
	}
	public, kid, err := checkKey(c.Name, c.Kid, publicPEM)
	if err != nil {
		return err
	}
	if err := writeNew(path, private); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	place := "the database of --keys"
	if c.Keys == "" {
		place = filepath.Join(c.Orgs, c.Name)
		err = makeOrg(place, c.Name, kid, public, publicPEM)
	} else {
		err = c.update(ctx, to, func(now organization.State) (map[string]organization.Files, error) {
			if _, found := now.Orgs[c.Name]; found {
				return nil, orgExists(c.Name)
			}
			return map[string]organization.Files{
				c.Name: {kid + ".pem": publicPEM, "org.yaml": []byte(orgYAML)},
			}, nil
		})
	}
	if err != nil {
		return err
	}
	return to.printf(`organization %s signs with key %s
private key: %s (mode 0600)
public key and org.yaml: %s

Keep the private key where tokens are signed: the server never needs it. A running server accepts
such tokens within two seconds. This one may create a repository and write to it for an hour:
    packhorse token --org %s --key %s --repo REPOSITORY --scope git:write --scope repo:write
`, c.Name, kid, path, place, c.Name, quoteShell(path))
}

// orgExists refuses a second organization of a name.
func orgExists(name string) error {
	return &usageError{fmt.Sprintf("organization %s exists: packhorse org add registers another key of it", name)}
}

// makeOrg makes the folder of an organization. The key comes last: a server may be following it.
func makeOrg(folder, name, kid string, public crypto.PublicKey, publicPEM []byte) error {
	orgs := filepath.Dir(folder)
	if err := os.MkdirAll(orgs, 0o755); err != nil {
		return err
	}
	err := os.Mkdir(folder, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return orgExists(name)
	}
	if err == nil {
		err = writeWhole(filepath.Join(folder, "org.yaml"), []byte(orgYAML), 0o644)
		if err == nil {
			err = registerKey(orgs, name, kid, public, publicPEM)
		}
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}
	return err
}

// writeNew writes a file for its owner alone, which must not exist, and makes it durable.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &usageError{fmt.Sprintf("--key: %s exists, and no key is overwritten: choose another file", path)}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o600) // whatever the umask is
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
