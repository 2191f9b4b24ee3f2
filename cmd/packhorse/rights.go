package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a user may do with a file or a folder. To list a folder and to open what is in it are two
// rights.
const (
	toReadFolder = unix.R_OK | unix.X_OK
	toAddTo      = unix.W_OK | unix.X_OK
	toUseFolder  = toReadFolder | toAddTo
)

// checkRights returns an error unless this user may do something with a file or a folder.
func checkRights(path string, what uint32) error {
	if err := unix.Access(path, what); err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}

// expected adds to an error of a file or folder what was expected of it, and if this user has no
// right to it, how to mend that.
func expected(err error, what string) error {
	return fmt.Errorf("%w: expected %s%s", err, what, advice(err))
}

// advice is how to mend an error about the rights to a file or folder, behind a semicolon; "" for
// another error.
func advice(err error) string {
	if errors.Is(err, syscall.EROFS) {
		return "; its disk is read-only: choose a place on another one"
	}
	path := ""
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		path = at.Path
	} else if at, ok := errors.AsType[*os.LinkError](err); ok {
		path = at.New
	}
	if !filepath.IsAbs(path) || !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	at, info := closed(path)
	if info == nil {
		return ""
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if int(owner.Uid) == os.Geteuid() {
		return fmt.Sprintf("; %s belongs to this user, with the mode %s: change that with chmod", at, info.Mode())
	}
	return fmt.Sprintf("; %s belongs to %s: run the command as its owner, or change its owner or mode", at, userName(owner.Uid))
}

// closed returns what keeps this user from an absolute path: the first folder on the way that is
// not open to it, or else the last of the path that exists. The info is nil if that cannot be
// found.
func closed(path string) (at string, last fs.FileInfo) {
	var way []string // from the root
	for p := path; ; p = filepath.Dir(p) {
		way = append([]string{p}, way...)
		if p == filepath.Dir(p) {
			break
		}
	}
	for _, p := range way {
		info, err := os.Stat(p)
		if err != nil {
			break
		}
		at, last = p, info
		if info.IsDir() && unix.Access(p, unix.X_OK) != nil {
			break
		}
	}
	return at, last
}

// userName is the name of a user of this machine, or its number.
func userName(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	if known, err := user.LookupId(number); err == nil {
		return known.Username
	}
	return "user " + number
}

// checkDataFolder returns an error, of the flag --data, unless this user may use a data folder with
// what is in it, or make it.
func checkDataFolder(dir string) error {
	if err := checkNewFolder(dir); err != nil {
		return &usageError{fmt.Sprintf("--data: %v", err)}
	}
	for _, name := range []string{keysFolder, filesFolder, cacheFolder, spoolFolder, blocksFolder} {
		err := checkRights(filepath.Join(dir, name), toUseFolder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &usageError{fmt.Sprintf("--data: %v", expected(err, "a folder that this user can write to"))}
		}
	}
	return nil
}

// ofServers are the names in a data folder that say that it is one.
var ofServers = []string{
	keysFolder, filesFolder, cacheFolder, spoolFolder, blocksFolder, adminSocket, "ballast", restoringMark, devOrgs, devKey,
}

// checkForeign returns an error, of the flag --data, for a folder that holds something, and nothing
// of a server: the folder of somebody else is not to be filled because of a slip. What flags name
// may be in it, and so may hidden files, YAML files and what file systems make.
func checkForeign(dir string, named ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the folder is to be made, or checkDataFolder says why it cannot be used
	}
	foreign := ""
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains(ofServers, name) {
			return nil
		}
		isNamed := slices.ContainsFunc(named, func(path string) bool {
			return path != "" && isBelow(filepath.Join(dir, name), path)
		})
		if foreign == "" && !isNamed && name[0] != '.' && name != "lost+found" && filepath.Ext(name) != ".yaml" {
			foreign = name
		}
	}
	if foreign == "" {
		return nil
	}
	return &usageError{fmt.Sprintf("--data: %s holds other files, such as %q, and nothing of packhorse: "+
		"choose an empty folder, or one that is not there", dir, foreign)}
}

// isBelow reports whether a path is that of a file or folder, or below it.
func isBelow(folder, path string) bool {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return false
	}
	path, err = filepath.Abs(path)
	return err == nil && (path == folder || strings.HasPrefix(path, folder+string(filepath.Separator)))
}
