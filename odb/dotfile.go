package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Files that git reads by their names, such as .gitmodules, are checked wherever a tree is
// received: in a pack once all objects can be read, and in a tree that [Quarantine.Write] gets at
// once.

// Dotfile is a blob with one of its names that git reads.
type Dotfile struct {
	ID      object.ID
	file    object.Dotfile
	gitlink bool // which names no object of this repository
}

// NewDotfile returns the blob that a tree names so that git reads it by that name.
func NewDotfile(file object.Dotfile, mode object.Mode, id object.ID) Dotfile {
	return Dotfile{ID: id, file: file, gitlink: mode.Type() == object.TypeCommit}
}

// CheckDotfile checks such a file of a readable tree, as git fsck --strict does. Errors:
// [*object.CheckError], and those of reading.
func (v *View) CheckDotfile(ctx context.Context, found Dotfile) error {
	if found.gitlink { // also if the object exists, which must not be revealed
		return found.file.Fault("Missing", "is a gitlink")
	}
	v = v.Linked()
	sizeMax := int64(segment.WholeMax)
	if found.file == object.Gitattributes {
		sizeMax = object.GitattributesSizeMax
	}
	info, err := v.Stat(ctx, found.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return found.file.Fault("Missing", "cannot be read")
	case err != nil:
		return err
	case info.Type != object.TypeBlob:
		return found.file.Fault("Blob", "is a "+info.Type.String())
	case info.Size > sizeMax:
		return found.file.Fault("Large", "is too large")
	case info.Size > segment.WholeMax:
		return v.checkLargeGitattributes(ctx, found.ID)
	}
	_, data, err := v.Read(ctx, found.ID)
	if err != nil {
		return err
	}
	return found.file.Check(data)
}

func (v *View) checkLargeGitattributes(ctx context.Context, id object.ID) error {
	content, err := v.Open(ctx, id)
	if err != nil {
		return err
	}
	_, err = content.WriteTo(&object.GitattributesCheck{})
	return errors.Join(err, content.Close())
}

// RefusedFileError is a file that git's checks refuse under the name that a tree gives it.
type RefusedFileError struct {
	Path string // from the tree that was written, or from one above it: see [InFolder]
	Err  *object.CheckError
}

func (e *RefusedFileError) Error() string {
	return fmt.Sprintf("path %q is refused, as git fsck refuses it: %s: %s", e.Path, e.Err.Name, e.Err.Detail)
}

// Unwrap returns the failed check.
func (e *RefusedFileError) Unwrap() error { return e.Err }

// InFolder returns err. If it holds a [RefusedFileError], its path gets the folder name in front.
func InFolder(name string, err error) error {
	if refused, ok := errors.AsType[*RefusedFileError](err); ok {
		refused.Path = name + "/" + refused.Path
	}
	return err
}

// namedDotfile is a dotfile with the name that a tree gives it.
type namedDotfile struct {
	Dotfile
	name []byte
}

// checkTree checks a tree that follows predecessor (zero: none), and its files that git reads by
// their names. Files that predecessor names as well were accepted before, and may stay.
func (q *Quarantine) checkTree(ctx context.Context, data []byte, predecessor object.ID) error {
	q.named = q.named[:0]
	if err := object.CheckTree(data, object.TreeCheck{NameMax: PathComponentBytesMax, Found: q.noteDotfile}); err != nil {
		return err
	}
	if len(q.named) == 0 {
		return nil
	}
	var former []byte
	if !predecessor.IsZero() {
		_, tree, err := q.view.Linked().Read(ctx, predecessor)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		former = tree
	}
	for _, found := range q.named {
		if names(former, &found) {
			continue
		}
		err := q.view.CheckDotfile(ctx, found.Dotfile)
		if fault, ok := errors.AsType[*object.CheckError](err); ok {
			return &RefusedFileError{Path: string(found.name), Err: fault}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (q *Quarantine) noteDotfile(name []byte, file object.Dotfile, mode object.Mode, id object.ID) {
	q.named = append(q.named, namedDotfile{NewDotfile(file, mode, id), name})
}

// names reports whether a tree has the same object under the same name.
func names(tree []byte, want *namedDotfile) bool {
	for it := object.IterTree(tree); it.Next(); {
		if it.ID == want.ID && bytes.Equal(it.Name, want.name) {
			return !it.Mode.IsSymlink() && (it.Mode.Type() == object.TypeCommit) == want.gitlink
		}
	}
	return false
}
