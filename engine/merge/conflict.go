package merge

// Conflict is a path that the sides disagree on.
type Conflict struct {
	Path string
	Kind Kind
	// Stages are base, ours and theirs as an index would hold them. None is set where a whole folder
	// is meant, or a path that something could not be moved to.
	Stages [3]Version
}

// Staged reports whether an index would hold an entry of the path.
func (c *Conflict) Staged() bool { return c.Stages != [3]Version{} }

// Kind is the reason why a path conflicts.
type Kind uint8

// The kinds of conflicts. If several apply to a path, the first one found is reported.
const (
	// BothChanged is a file that both sides changed in the same place.
	BothChanged Kind = iota + 1
	// AddAdd is a path that both sides filled, with different contents.
	AddAdd
	// Binary is a file that both sides changed and that has no lines.
	Binary
	// ModifyDelete is a file that one side changed and the other removed.
	ModifyDelete
	// RenameDelete is a file that one side renamed and the other removed.
	RenameDelete
	// RenameRename is a file that the sides gave different names.
	RenameRename
	// RenameCollides is a file that was renamed onto another one.
	RenameCollides
	// FileDirectory is a file in the way of a folder of the other side; it was moved to another
	// name.
	FileDirectory
	// DistinctTypes is a path that is a file here and a symbolic link or a submodule there.
	DistinctTypes
	// Submodule is one that both sides moved.
	Submodule
	// Symlink is one that both sides changed.
	Symlink
	// FileLocation is a file in a folder that the other side renamed.
	FileLocation
	// DirectoryInWay is a path that files of a renamed folder would have to move to, and that
	// already exists.
	DirectoryInWay
	// DirectoryCollision is a path that several files of renamed folders would have to move to.
	DirectoryCollision
	// DirectorySplit is a folder whose files went to several others, none of which got the most.
	DirectorySplit
)

var kindNames = [...]string{
	"", "content", "add/add", "binary", "modify/delete", "rename/delete", "rename/rename", "rename involved in collision",
	"file/directory",
	"distinct types", "submodule", "symlink", "file location", "implicit dir rename in way",
	"implicit dir rename collision", "directory rename split",
}

// String returns git's name for the kind.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}
