// Package merge merges commits as git's default strategy does, without a work tree.
//
// The rules are those of merge-ort in git 2.39, and [Merger.Commits], where to start, produces the
// same tree, verdict and conflicts as git merge-tree --write-tree in a bare repository. bases.go
// merges merge bases with each other; the merge of three trees has three phases: collect.go walks
// the three trees and records the differences, rename.go and its neighbours find the renames and
// move the versions of a file to one path, and resolve.go resolves each path and writes the
// folders. A subtree that only one side changed is taken whole without being opened, unless a file
// may have been renamed into it.
//
// New objects are kept in memory, within a limit, until [Result.Write] stores the ones that the
// result needs: neither a conflict nor a virtual merge base leaves anything behind. A [Merger]
// belongs to one goroutine, with the results of its merges.
//
// Settings of a work tree or a configuration have no effect: attributes (a bare repository has
// none), merge drivers, renormalization. The commits of submodules are not stored here, so two
// different ones conflict, as they do in git without the submodule.
package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
)

// ErrTooLarge says that a merge would write more, or would have to read a larger file, than its
// limit allows.
var ErrTooLarge = errors.New("merge: over the limit for new objects")

// ErrManyPaths says that more paths differ than a merge may keep in memory. It matches
// [ErrTooLarge].
var ErrManyPaths = fmt.Errorf("merge: too many paths differ (%w)", ErrTooLarge)

// ErrUnrelated says that two commits have no common ancestor.
var ErrUnrelated = errors.New("merge: the histories are unrelated")

// Options are the labels and limits of a merge. The zero value is valid.
type Options struct {
	// Ours and Theirs name the sides in conflict markers and in the names of files that had to make
	// room; "ours" and "theirs" if empty.
	Ours, Theirs string
	// BytesMax bounds the new objects of a merge, and the size of a file that is merged by lines,
	// in bytes; 0 means 256 MiB.
	BytesMax int64
	// PathBytesMax bounds the memory for differing paths, in bytes; 0 means 256 MiB.
	PathBytesMax int64
	// RenameMax is the number of sources and of destinations up to which they are all compared with
	// each other; 0 means 7000, as in git.
	RenameMax int
	// Unrelated lets [Merger.Commits] merge histories without a common ancestor.
	Unrelated bool
}

const (
	bytesMaxDefault  = 256 << 20
	renameMaxDefault = 7000
)

func (o *Options) fill() {
	o.Ours = cmp.Or(o.Ours, "ours")
	o.Theirs = cmp.Or(o.Theirs, "theirs")
	o.BytesMax = cmp.Or(o.BytesMax, bytesMaxDefault)
	o.PathBytesMax = cmp.Or(o.PathBytesMax, bytesMaxDefault)
	o.RenameMax = cmp.Or(o.RenameMax, renameMaxDefault)
}

// Result is the outcome of a merge.
type Result struct {
	// Tree is the merged tree. With conflicts, it holds the contents that git would write to the
	// work tree.
	Tree object.ID
	// Conflicts are sorted by path; a merge without any is clean.
	Conflicts []Conflict
	// Changed are paths of what theirs changed, in no order: files, and folders of which it changed
	// all that the merge knows. It is for guesses: a file that was renamed may be missing.
	Changed []string

	objects *objects
}

// Clean reports whether the sides could be merged.
func (r *Result) Clean() bool { return len(r.Conflicts) == 0 }

// Write stores the new objects that the merged tree names, itself included, except those that an
// earlier result of the [Merger] has stored: all are written into one quarantine. Errors: those of
// [odb.Quarantine.Write].
func (r *Result) Write(ctx context.Context, q *odb.Quarantine) error {
	made, err := r.NewObjects()
	if err != nil {
		return err
	}
	for i := range made {
		if err := made[i].Write(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// NewObjects returns what [Result.Write] is to store, each object behind those that it names. They
// count as written.
func (r *Result) NewObjects() ([]NewObject, error) { return r.objects.unwritten(nil, r.Tree, "") }

// Size is the size in bytes of the new objects that the merge made. It is asked for before the
// [Merger] begins another merge.
func (r *Result) Size() int64 { return r.objects.size - r.objects.before }

// Open returns the content of an object of the merge, new or stored, of which no more than sizeMax
// bytes are returned, and its size.
func (r *Result) Open(ctx context.Context, id object.ID, sizeMax int64) (data []byte, size int64, err error) {
	return r.objects.begin(ctx, id, sizeMax)
}

// Find returns the entry at a path of the merged tree, zero for none.
func (r *Result) Find(ctx context.Context, path string) (Version, error) {
	return r.objects.find(ctx, r.Tree, path)
}

// mergeTrees merges the third tree into the second, both of which come from the first; any of them
// may be the empty tree. depth is the nesting of virtual merge bases: 0 for the requested merge.
func mergeTrees(ctx context.Context, objects *objects, trees [3]object.ID, o Options, depth int) (*Result, error) {
	m := newThreeWay(objects, trees, o, depth)
	if err := m.collect(ctx); err != nil {
		return nil, err
	}
	if err := m.followRenames(ctx); err != nil {
		return nil, err
	}
	tree, err := m.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return &Result{Tree: tree, Conflicts: m.conflicts(), Changed: m.changed(), objects: objects}, nil
}

// threeWay is one merge of three trees.
type threeWay struct {
	Options
	objects *objects
	trees   [3]object.ID
	depth   int

	nodes      map[string]*node   // the paths that are not the same in all three trees
	pathBytes  int64              // that nodes and folders take in memory, about
	folders    map[string]*folder // the folders that were opened
	renames    renames
	conflicted map[string]*node
	taken      []string   // paths that were taken from theirs, without nodes
	unplaced   []Conflict // without an entry
}

func newThreeWay(objects *objects, trees [3]object.ID, o Options, depth int) *threeWay {
	m := &threeWay{
		Options: o, objects: objects, trees: trees, depth: depth,
		nodes: make(map[string]*node), folders: make(map[string]*folder), conflicted: make(map[string]*node),
	}
	for side := range m.renames {
		m.renames[side] = newSide()
	}
	return m
}

// changed returns the paths of [Result.Changed].
func (m *threeWay) changed() []string {
	paths := m.taken
	for path, n := range m.nodes {
		if !n.opened && n.stages[theirs] != n.stages[base] {
			paths = append(paths, path)
		}
	}
	return paths
}

// conflicts returns the paths that could not be merged.
func (m *threeWay) conflicts() []Conflict {
	found := slices.Clone(m.unplaced)
	for _, path := range slices.Sorted(maps.Keys(m.conflicted)) {
		n := m.conflicted[path]
		c := Conflict{Path: path, Kind: n.kind}
		for side := range n.stages {
			if n.files&(1<<side) != 0 {
				c.Stages[side] = n.stages[side]
			}
		}
		found = append(found, c)
	}
	slices.SortStableFunc(found, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	return found
}

// The three trees of a merge, and their bits in a mask.
const (
	base = iota
	ours
	theirs

	baseBit   = 1 << base
	oursBit   = 1 << ours
	theirsBit = 1 << theirs
	allBits   = baseBit | oursBit | theirsBit
)

// label is the name of a side.
func (m *threeWay) label(side int) string {
	if side == ours {
		return m.Ours
	}
	return m.Theirs
}
