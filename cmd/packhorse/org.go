package main

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"packhorse/api/auth"
)

// orgCommand groups the subcommands for organizations.
type orgCommand struct {
	Add orgAddCommand `cmd:"" help:"Register a public key of an organization. Takes effect while the server runs."`
}

// orgAddCommand registers a key.
type orgAddCommand struct {
	Name string `arg:"" help:"Name of the organization: letters, digits, dot, underscore, dash."`
	Key  string `help:"Public key, PKIX PEM: RSA of 2048 bits or more, EC P-256, P-384, P-521, or Ed25519." placeholder:"PUBLIC.pem" required:"" type:"path"`
	Kid  string `help:"Key ID; by default derived from the fingerprint." placeholder:"ID"`
	Orgs string `help:"Folder of organizations." placeholder:"DIR" required:"" type:"path"`
}

// Run registers the key and prints its id. A key registered twice under one id is no error; another
// key under that id is.
func (c orgAddCommand) Run(to streams) error {
	data, err := os.ReadFile(c.Key)
	if err != nil {
		return err
	}
	kid, err := registerKey(c.Orgs, c.Name, c.Kid, data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "organization %s signs with key %s\n", c.Name, kid)
	return err
}

// registerKey writes a public key to ORGS/<org>/<kid>.pem and returns its id. If kid is "" the id
// is derived from the key.
func registerKey(orgs, org, kid string, publicPEM []byte) (string, error) {
	if !auth.ValidName(org) {
		return "", &usageError{fmt.Sprintf("%q is no name for an organization", org)}
	}
	public, err := auth.ParsePublicKey(publicPEM)
	if err != nil {
		return "", err
	}
	if kid == "" {
		if kid, err = auth.Fingerprint(public); err != nil {
			return "", err
		}
	}
	if !auth.ValidName(kid) {
		return "", &usageError{fmt.Sprintf("%q is no id for a key", kid)}
	}
	folder := filepath.Join(orgs, org)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(folder, kid+".pem")
	if old, err := os.ReadFile(path); err == nil {
		if registered, err := auth.ParsePublicKey(old); err != nil || !sameKey(registered, public) {
			return "", fmt.Errorf("%s contains a different key: remove it, or choose another --kid", path)
		}
		return kid, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return kid, writeWhole(path, publicPEM, 0o644)
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
