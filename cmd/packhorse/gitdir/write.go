package gitdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"packhorse/engine/upstream/remote"
)

// Content is what [Write] makes a repository of.
type Content struct {
	Refs []remote.Ref // sorted by name
	Head string       // the branch that HEAD points to; "" is refs/heads/main
	// Packs are packs that together hold all that the refs reach. Each is read to its end and closed,
	// and refers to no objects of the others.
	Packs func(ctx context.Context, take func(pack io.Reader) error) error
}

// config is the configuration of a bare repository.
const config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"

// Write makes a bare repository in dir, which must not exist. It is written beside it, as
// ".NAME.part", and renamed when it is whole and on the disk, so that dir is whole or not there.
// What a killed process has left is removed. It returns the number of objects and the size of the
// packs.
//
// Errors: fs.ErrExist if dir exists; those of Packs and of the file system; package pack's, of
// packs that are damaged.
func Write(ctx context.Context, dir string, from Content) (objects int, size int64, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, 0, err
	}
	if _, err := os.Lstat(dir); err == nil {
		return 0, 0, &fs.PathError{Op: "export", Path: dir, Err: fs.ErrExist}
	}
	part := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".part")
	lock, err := begin(part)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if objects, size, err = fill(ctx, part, from); err != nil {
		return 0, 0, errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return 0, 0, err
	}
	return objects, size, syncFolder(filepath.Dir(dir))
}

// begin makes an empty folder that no other process writes to until the returned file is closed.
func begin(part string) (*os.File, error) {
	if err := os.MkdirAll(part, 0o777); err != nil {
		return nil, err
	}
	lock, err := os.Open(part)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process writes %s: %w", part, err), lock.Close())
	}
	left, err := os.ReadDir(part)
	for _, entry := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(part, entry.Name())))
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// fill makes the repository, and syncs it.
func fill(ctx context.Context, dir string, from Content) (objects int, size int64, err error) {
	packs := filepath.Join(dir, "objects", "pack")
	folders := []string{packs, filepath.Join(dir, "objects", "info"), filepath.Join(dir, "refs", "heads"), filepath.Join(dir, "refs", "tags")}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return 0, 0, err
		}
	}
	err = from.Packs(ctx, func(pack io.Reader) error {
		count, bytes, err := storePack(ctx, packs, pack)
		objects, size = objects+count, size+bytes
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	head := from.Head
	if head == "" {
		head = "refs/heads/main"
	}
	for name, text := range map[string][]byte{
		"packed-refs": packedRefsText(from.Refs), "config": []byte(config), "HEAD": []byte("ref: " + head + "\n"),
	} {
		if err := writeSynced(filepath.Join(dir, name), bytes.NewReader(text)); err != nil {
			return 0, 0, err
		}
	}
	for _, folder := range append(folders, filepath.Join(dir, "objects"), filepath.Join(dir, "refs"), dir) {
		if err := syncFolder(folder); err != nil {
			return 0, 0, err
		}
	}
	return objects, size, nil
}

// packedRefsText is the file packed-refs.
func packedRefsText(refs []remote.Ref) []byte {
	var text bytes.Buffer
	text.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for _, ref := range refs {
		fmt.Fprintf(&text, "%s %s\n", ref.ID, ref.Name)
		if !ref.Peeled.IsZero() {
			fmt.Fprintf(&text, "^%s\n", ref.Peeled)
		}
	}
	return text.Bytes()
}

// writeSynced writes a new file and syncs it.
func writeSynced(path string, from io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Sync(), file.Close())
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
