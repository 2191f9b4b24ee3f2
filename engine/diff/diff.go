// Package diff lists the changes between two trees, as git diff-tree does.
//
// Start at [Trees], which walks two trees side by side and never opens common subtrees; [Changes]
// is the same with renames found by [Renames]. A [Text] is the diff of one file, and [Compare]
// makes those of all files of two trees on all processors. Results are those of git 2.39: the order
// of gitdiffcore(7) and its rename detection, with the same scores; the headers and hunks of
// git-diff-tree(1) with -p -M --full-index.
//
// The package knows neither names nor refs. Functions may be called concurrently; their results
// belong to the caller.
package diff

import (
	"context"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Objects is the source of objects; an odb.View is one. Slices that Read returns are shared and
// never written.
type Objects interface {
	Read(ctx context.Context, id object.ID) (object.Type, []byte, error)
	ReadTree(ctx context.Context, id object.ID) ([]byte, error)
	Stat(ctx context.Context, id object.ID) (odb.Info, error)
	Open(ctx context.Context, id object.ID) (*odb.Object, error)
}

// Entry is one side of a change. Its mode is one of the five of git, or 0 when it is absent.
type Entry struct {
	Path string
	Mode object.Mode
	ID   object.ID
}

// Exists reports whether there is something on this side.
func (e *Entry) Exists() bool { return e.Mode != 0 }

// Status is the kind of change of a file, in git's letters.
type Status byte

// The kinds of changes to files.
const (
	Added       Status = 'A'
	Deleted     Status = 'D'
	Modified    Status = 'M' // content, or mode, or both
	TypeChanged Status = 'T' // say from a file to a symbolic link
	Renamed     Status = 'R' // perhaps with a changed content
)

// Change is what happened to one file. Both sides have a path, also the one on which nothing is.
type Change struct {
	Status   Status
	Old, New Entry
	// Score is the similarity of the two sides of a rename, from 0 to [ScoreMax].
	Score int
}

// Path is the path of a file, the new one of a rename.
func (c *Change) Path() string { return c.New.Path }

// ScoreMax is the similarity of equal contents, and the unit of all scores.
const ScoreMax = 60_000

// Percent is a score as git prints it.
func Percent(score int) int { return score * 100 / ScoreMax }
