// Package gitdir reads and writes the folders in which git keeps repositories, without git.
//
// Start at [Find] and [Open] to read, and at [Write] to make one. The map, by file:
//
//	gitdir     which folders are repositories; opening one
//	refs       loose and packed refs, HEAD
//	packindex  where the objects of a pack lie (gitformat-pack(5), version 2)
//	objects    objects by ID: packs, loose objects, alternates
//	plan       which objects a set of tips reaches, and a pack of them
//	write      a bare repository made of refs and a pack
//	indexpack  the index of that pack
//
// Repositories in SHA-256, with reftables, and shallow or partial ones are refused.
package gitdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnsupported says that a repository has a form that this package does not read.
var ErrUnsupported = errors.New("gitdir: not supported")

// ErrMissing says that a repository lacks an object that it refers to.
var ErrMissing = errors.New("gitdir: object missing")

// Find calls visit with each repository in dir and below it, in the order of their paths: the path
// of the folder, and its name below dir, with slashes and without ".git" at its end. dir itself is
// named by its last element, or if that is ".git" by the one before. Nothing is looked for inside
// of a repository, and symbolic links are not followed, except for dir.
func Find(ctx context.Context, dir string, visit func(path, name string) error) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || !isRepository(path) {
			return errors.Join(err, ctx.Err())
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if name == "." || name == ".git" {
			name = filepath.Base(root)
			if name == ".git" { // of the working tree around it
				name = filepath.Base(filepath.Dir(root))
			}
		}
		name = strings.TrimSuffix(strings.TrimSuffix(name, "/.git"), ".git")
		if err := visit(path, name); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// isRepository decides as git does.
func isRepository(path string) bool {
	for name, isDir := range map[string]bool{"HEAD": false, "objects": true, "refs": true} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil || info.IsDir() != isDir {
			return false
		}
	}
	return true
}

// Repository is one repository, as it was when it was opened. It is used by one goroutine.
type Repository struct {
	dir   string
	dirs  []string // of objects: its own, and those of its alternates
	packs []*packIndex
	cache contents
}

// Open opens the repository in a folder. Close releases its files.
//
// Errors: [ErrUnsupported], and those of the file system.
func Open(dir string) (*Repository, error) {
	r := &Repository{dir: dir, cache: newContents()}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Repository) open() error {
	if err := r.checkForm(); err != nil {
		return err
	}
	if err := r.addObjects(filepath.Join(r.dir, "objects"), 0); err != nil {
		return err
	}
	for _, dir := range r.dirs {
		paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "pack", "*.idx"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			index, err := openPackIndex(strings.TrimSuffix(path, ".idx"))
			if err != nil {
				return err
			}
			if index != nil {
				r.packs = append(r.packs, index)
			}
		}
	}
	return nil
}

// escapeGlob returns a pattern that matches a path alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// checkForm refuses what cannot be read.
func (r *Repository) checkForm() error {
	if _, err := os.Stat(filepath.Join(r.dir, "shallow")); err == nil {
		return fmt.Errorf("%w: %s is a shallow clone", ErrUnsupported, r.dir)
	}
	config, err := os.ReadFile(filepath.Join(r.dir, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(strings.ToLower(string(config))) {
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case key == "objectformat" && value != "sha1", key == "refstorage" && value != "files", key == "partialclone":
			return fmt.Errorf("%w: %s has extensions.%s = %s", ErrUnsupported, r.dir, key, value)
		}
	}
	return nil
}

// alternatesDepthMax bounds alternates of alternates, as in git.
const alternatesDepthMax = 5

// addObjects adds a folder of objects and its alternates.
func (r *Repository) addObjects(dir string, depth int) error {
	r.dirs = append(r.dirs, dir)
	text, err := os.ReadFile(filepath.Join(dir, "info", "alternates"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if depth == alternatesDepthMax {
			return fmt.Errorf("%w: alternates of %s are nested too deeply", ErrUnsupported, r.dir)
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(dir, line)
		}
		if err := r.addObjects(line, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the files. Only the first call has an effect.
func (r *Repository) Close() error {
	var err error
	for _, p := range r.packs {
		err = errors.Join(err, p.close())
	}
	r.packs = nil
	return err
}
