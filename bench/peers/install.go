package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// installWait bounds the installation of a peer.
const installWait = 5 * time.Minute

// provide returns the first of names that is installed. If none is, it installs the Debian package
// of the first name, if this is Debian and the user is root. Errors: errNoPeer.
func provide(ctx context.Context, names ...string) (string, error) {
	path, err := findCommand(names...)
	if !errors.Is(err, errNoPeer) || os.Geteuid() != 0 {
		return path, err
	}
	apt, aptErr := findCommand("apt-get")
	if aptErr != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "peers: installing %s\n", names[0])
	ctx, cancel := context.WithTimeout(ctx, installWait)
	defer cancel()
	install := exec.CommandContext(ctx, apt, "install", "--yes", "--no-install-recommends", names[0])
	install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if err := run(install); err != nil {
		return "", fmt.Errorf("%w: %w", errNoPeer, err)
	}
	return findCommand(names...)
}
