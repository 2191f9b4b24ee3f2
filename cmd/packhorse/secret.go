package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"packhorse/engine/credential"
)

// makeSecret makes the key that seals stored secrets, unless it exists. It should be outside the
// data folder, so that a copy of that folder does not include it.
func makeSecret(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	secret := make([]byte, credential.KeySize)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	return writeWhole(path, secret, 0o600)
}

// checkSecret returns why a file cannot have the key that seals stored secrets, without reading it.
func checkSecret(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return nil
	case err != nil:
		return unreadSecret(err)
	case info.Mode().IsRegular() && info.Size() != credential.KeySize:
		return badSecret(path)
	default:
		return nil
	}
}

func unreadSecret(err error) error {
	return &usageError{fmt.Sprintf("--secret-key: %v",
		expected(err, fmt.Sprintf("a file of %d random bytes", credential.KeySize)))}
}

func badSecret(path string) error {
	return &usageError{fmt.Sprintf("--secret-key: %s must hold %d random bytes, and nothing else: "+
		"head -c %d /dev/urandom makes such a file", path, credential.KeySize, credential.KeySize)}
}

// readSecret returns the key that seals stored secrets, none for an empty path.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadSecret(err)
	}
	defer func() { _ = file.Close() }()
	secret, err := io.ReadAll(io.LimitReader(file, credential.KeySize+1))
	if err != nil {
		return nil, fmt.Errorf("read secret key: %w", err)
	}
	if len(secret) != credential.KeySize {
		return nil, badSecret(path)
	}
	return secret, nil
}
