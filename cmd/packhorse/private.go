package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// othersMode is the permission bits of group and others.
const othersMode = 0o077

// keepPrivate makes this process create files with mode 0600 and folders with 0700 from now on,
// whatever its umask was: the content of repositories requires a token. It also restricts the
// folders below dir that packhorse created earlier with a wider mode.
func keepPrivate(dir string, folders ...string) error {
	syscall.Umask(othersMode)
	for _, name := range folders {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&othersMode != 0 {
			// Where modes have no meaning, as on some network disks, this fails and changes nothing.
			_ = os.Chmod(path, mode&^othersMode)
		}
	}
	return nil
}

// warnOfLoose logs a warning when other users can read a data folder; its owner decides on its
// mode.
func warnOfLoose(dir string, logger *slog.Logger) {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&othersMode == 0 {
		return
	}
	logger.Warn("other users of this machine can read the data folder: run chmod 700",
		"folder", dir, "mode", info.Mode().Perm().String())
}
