package object

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrNameTooLong says that a tree has a name longer than the caller of [CheckTree] allows.
var ErrNameTooLong = errors.New("object: name too long")

// TreeCheck says what [CheckTree] does besides checking.
type TreeCheck struct {
	// NameMax is the longest name allowed, in bytes; 0 means no limit.
	NameMax int
	// Found is called for each entry whose blob git checks because of its name, gitmodules and
	// gitattributes in any disguise. name is valid as long as the tree's bytes are.
	Found func(name []byte, file Dotfile, mode Mode, id ID)
}

// CheckTree is [Check] for a tree, with the options of check. Errors: [*CheckError],
// [ErrNameTooLong].
func CheckTree(data []byte, check TreeCheck) error {
	var stack [8][]byte
	c := treeChecker{TreeCheck: check, files: stack[:0]}
	it := IterTree(data)
	for it.Next() {
		if err := c.entry(&it); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return &CheckError{Type: TypeTree, Name: "badTree", Detail: err.Error()}
	}
	return nil
}

// treeChecker holds the state for comparisons with the next entry.
type treeChecker struct {
	TreeCheck
	previous     []byte
	previousTree bool
	// files are the names of files that a folder could still repeat: each is a prefix of the next and
	// of the name before this entry. A folder's name sorts as if it ended in a slash, so other names
	// may sort between the file a and the folder a: a.b, a.b.c.
	files [][]byte
}

func (c *treeChecker) entry(it *TreeIter) error {
	name, tree := it.Name, it.Mode.IsTree()
	fault := func(name, detail string) error { return &CheckError{Type: TypeTree, Name: name, Detail: detail} }
	switch {
	case it.ID.IsZero():
		return fault("nullSha1", "an entry names the zero ID")
	case len(name) == 0:
		return fault("badTree", "an entry without a name")
	case c.NameMax > 0 && len(name) > c.NameMax:
		return fmt.Errorf("%w: %d bytes, limit %d", ErrNameTooLong, len(name), c.NameMax)
	case string(name) == ".":
		return fault("hasDot", "an entry '.'")
	case string(name) == "..":
		return fault("hasDotdot", "an entry '..'")
	}
	found := marks(name)
	if found&slashMark != 0 {
		return fault("fullPathname", "a slash in a name")
	}
	if found&disguiseMark != 0 || name[0] == '.' {
		if err := c.disguise(it); err != nil {
			return err
		}
	}
	if c.previous != nil {
		inOrder := CompareNames(c.previous, c.previousTree, name, tree) < 0
		switch {
		case inOrder && c.repeats(name, tree), !inOrder && bytes.Equal(c.previous, name):
			return fault("duplicateEntries", "two entries of one name")
		case !inOrder:
			return fault("treeNotSorted", "entries out of order")
		}
	}
	if !tree {
		c.files = append(c.files, name)
	}
	c.previous, c.previousTree = name, tree
	return nil
}

// repeats reports whether name is that of an earlier file, and forgets the files that no later
// folder can repeat.
func (c *treeChecker) repeats(name []byte, tree bool) bool {
	for len(c.files) > 0 {
		file := c.files[len(c.files)-1]
		if bytes.HasPrefix(name, file) && (len(name) == len(file) || name[len(file)] < '/') {
			return tree && len(name) == len(file)
		}
		c.files = c.files[:len(c.files)-1]
	}
	return false
}

// disguise checks a name that some file system may take for one of git's own.
func (c *treeChecker) disguise(it *TreeIter) error {
	if IsDotGit(it.Name) {
		return &CheckError{Type: TypeTree, Name: "hasDotgit", Detail: "an entry that some file system takes for .git"}
	}
	for file := Gitmodules; file <= Gitattributes; file++ {
		switch {
		case !file.Matches(it.Name):
		case !it.Mode.IsSymlink():
			if c.Found != nil {
				c.Found(it.Name, file, it.Mode, it.ID)
			}
		case file == Gitmodules:
			return &CheckError{Type: TypeTree, Name: "gitmodulesSymlink", Detail: ".gitmodules is a symbolic link"}
		}
	}
	return nil
}
