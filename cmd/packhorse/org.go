package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"packhorse/api/auth"
	"packhorse/engine/organization"
)

// orgCommand groups the subcommands for organizations: files of a folder, or rows of the database
// that several servers share.
type orgCommand struct {
	Generate orgGenerateCommand `cmd:"" help:"Make an organization with a key pair of its own. Takes effect while the server runs."`
	Add      orgAddCommand      `cmd:"" help:"Register a public key of an organization. Takes effect while the server runs."`
	List     orgListCommand     `cmd:"" help:"List the organizations of a folder, or of the servers that share a database."`
	Show     orgShowCommand     `cmd:"" help:"Print the keys and the settings of one of them, without secrets."`
	Remove   orgRemoveCommand   `cmd:"" help:"Remove some of them: their tokens stop working, and their repositories stay."`
	Apply    orgApplyCommand    `cmd:"" help:"Make the organizations of the servers that share a database equal to a folder."`
	Export   orgExportCommand   `cmd:"" help:"Write the organizations of the servers that share a database to a folder, with secrets."`
}

// orgsFlags name where organizations are: files of a folder, or rows of a database.
type orgsFlags struct {
	Orgs string `help:"Folder of organizations; or else --keys." placeholder:"DIR" type:"path" is:"folder"`

	rowsFlags
}

// oneOf returns an error unless one of a folder and a database is given.
func oneOf(folder, keys string) error {
	if (folder == "") == (keys == "") {
		return &usageError{"want one of --orgs, the folder of organizations, and --keys, the database that has them"}
	}
	return nil
}

// orgAddCommand registers a key.
type orgAddCommand struct {
	Name string `arg:"" help:"Name of the organization: letters, digits, dot, underscore, dash." is:"name"`
	Key  string `help:"Public key, PKIX PEM: RSA of 2048 bits or more, EC P-256, P-384, P-521, or Ed25519." placeholder:"PUBLIC.pem" required:"" type:"path" is:"file"`
	Kid  string `help:"Key ID; by default derived from the fingerprint." placeholder:"ID" is:"name"`
	Orgs string `help:"Folder of organizations; or else --keys." placeholder:"DIR" type:"path" is:"new folder"`

	rowsFlags
}

// Run registers the key and prints its id. A key registered twice under one id is no error; another
// key under that id is.
func (c orgAddCommand) Run(ctx context.Context, to streams) error {
	if err := oneOf(c.Orgs, c.Keys); err != nil {
		return err
	}
	data, err := os.ReadFile(c.Key)
	if err != nil {
		return err
	}
	public, kid, err := checkKey(c.Name, c.Kid, data)
	if err != nil {
		return keyError(c.Key, "a public key, PKIX PEM", err)
	}
	if c.Keys == "" {
		err = registerKey(c.Orgs, c.Name, kid, public, data)
	} else {
		err = c.update(ctx, to, func(now organization.State) (map[string]organization.Files, error) {
			return storeKey(now, c.Name, kid, public, data)
		})
	}
	if err != nil {
		return err
	}
	return to.printf("organization %s signs with key %s\n", c.Name, kid)
}

// keyError names the file of --key, and what was expected of it, if err is that it has no such key.
func keyError(path, expected string, err error) error {
	if !errors.Is(err, auth.ErrKey) {
		return err
	}
	return &usageError{fmt.Sprintf("--key: %s: %s: expected %s", path,
		strings.TrimPrefix(err.Error(), auth.ErrKey.Error()+": "), expected)}
}

// privateKeyExpected is what a command that signs tokens expects of --key.
const privateKeyExpected = "an organization's private key, PKCS #8 PEM"

// checkKey returns a public key that an organization may register, and its id: kid, or if that is
// "" the fingerprint.
func checkKey(org, kid string, publicPEM []byte) (public crypto.PublicKey, id string, err error) {
	if !auth.ValidName(org) {
		return nil, "", &usageError{fmt.Sprintf("%q is no name for an organization", org)}
	}
	if public, err = auth.ParsePublicKey(publicPEM); err != nil {
		return nil, "", err
	}
	if kid == "" {
		if kid, err = auth.Fingerprint(public); err != nil {
			return nil, "", err
		}
	}
	if !auth.ValidName(kid) {
		return nil, "", &usageError{fmt.Sprintf("%q is no id for a key", kid)}
	}
	return public, kid, nil
}

// registerKey writes a public key to ORGS/<org>/<kid>.pem.
func registerKey(orgs, org, kid string, public crypto.PublicKey, publicPEM []byte) error {
	folder := filepath.Join(orgs, org)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(folder, kid+".pem")
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeWhole(path, publicPEM, 0o644)
	}
	if err != nil {
		return err
	}
	return checkSame(path, old, public)
}

// storeKey returns the change of the rows that adds a public key.
func storeKey(
	now organization.State, org, kid string, public crypto.PublicKey, publicPEM []byte,
) (map[string]organization.Files, error) {
	name := kid + ".pem"
	files := maps.Clone(now.Orgs[org].Files)
	if old, found := files[name]; found {
		return nil, checkSame(org+"/"+name, old, public)
	}
	if files == nil {
		files = make(organization.Files)
	}
	files[name] = publicPEM
	return map[string]organization.Files{org: files}, nil
}

// checkSame returns an error unless a file has that key.
func checkSame(path string, data []byte, public crypto.PublicKey) error {
	if registered, err := auth.ParsePublicKey(data); err != nil || !sameKey(registered, public) {
		return &usageError{path + " contains a different key: remove it, or choose another --kid"}
	}
	return nil
}

func sameKey(a, b crypto.PublicKey) bool {
	equal, ok := a.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && equal.Equal(b)
}

// writeWhole writes a file that is never visible in part: a server may be reading the folder.
func writeWhole(path string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
