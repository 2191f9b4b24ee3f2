package object

import "fmt"

// Mode is the mode of a tree entry: a file type in the bits of [ModeMask], permissions below.
type Mode uint32

// The modes that git writes. Old histories contain others, such as 100664; see [Mode.Canonical].
const (
	ModeTree    Mode = 0o040000
	ModeBlob    Mode = 0o100644
	ModeExec    Mode = 0o100755
	ModeSymlink Mode = 0o120000
	ModeGitlink Mode = 0o160000
)

// ModeMask selects the file type of a mode.
const ModeMask Mode = 0o170000

// IsTree reports whether the entry is a tree.
func (m Mode) IsTree() bool { return m&ModeMask == ModeTree }

// IsGitlink reports whether the entry is a commit of another repository (a submodule), which is
// never stored beside the tree, or of a file type that git does not know and reads as one. 0 is
// taken for no mode at all; trees that may hold it are asked for [Mode.Type].
func (m Mode) IsGitlink() bool { return m != 0 && m.Type() == TypeCommit }

// IsSymlink reports whether the entry is a symbolic link, whose blob is the target's path.
func (m Mode) IsSymlink() bool { return m&ModeMask == ModeSymlink }

// IsRegular reports whether the entry is a file, executable or not.
func (m Mode) IsRegular() bool { return m&ModeMask == ModeBlob&ModeMask }

// IsExec reports whether the entry is an executable file.
func (m Mode) IsExec() bool { return m.IsRegular() && m&0o100 != 0 }

// Type returns the type of object that the entry names; a gitlink's is a commit, and so is that of
// a file type that git does not know.
func (m Mode) Type() Type {
	switch {
	case m.IsTree():
		return TypeTree
	case m.IsRegular(), m.IsSymlink():
		return TypeBlob
	default:
		return TypeCommit
	}
}

// Canonical returns the mode that git reads m as: one of the five, 100664 being 100644.
func (m Mode) Canonical() Mode {
	switch {
	case m.IsTree():
		return ModeTree
	case m.IsSymlink():
		return ModeSymlink
	case m.IsExec():
		return ModeExec
	case m.IsRegular():
		return ModeBlob
	default:
		return ModeGitlink
	}
}

// String returns m as git prints it, in six octal digits: "100644", "040000". A tree stores it
// without the leading zero.
func (m Mode) String() string { return fmt.Sprintf("%06o", uint32(m)) }
