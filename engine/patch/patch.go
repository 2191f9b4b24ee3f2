// Package patch reads patches and applies them to trees, as git apply --cached --binary does.
//
// Start at [Parse], which checks the syntax of a patch and records the position of each file's
// part; [Patch.Apply] applies it to a tree and returns the files that the patch writes and removes.
// A patch applies as a whole or not at all. Syntax, applicability and result are those of git 2.39
// with its default options: a leading folder of each name is stripped, hunks may be found at
// another line but never with less context than they have, parts for one file build on each other,
// and white space errors are ignored.
//
// A patch is read through a window and its hunks are read again when they are applied, so that
// memory does not grow with its size. Files of more than 32 MiB can be created, removed and
// replaced, with their contents in binary form or as one hunk, but neither hunks nor deltas are
// applied to them.
//
// # Differences from git
//
// Each is a patch that git accepts and this package, or the caller that writes the tree, refuses:
//
//   - One that becomes unreadable inside a "GIT binary patch". Git complains, applies what came
//     before, and drops the rest.
//   - One that names a path which git fsck --strict, and so a push, would refuse. Git apply checks
//     only for the file systems of the machine that it runs on.
//   - One that creates a file with the mode of a folder. Git records a submodule whose commit is
//     the file's blob.
//   - One beyond the [Limits], or with a name, a mode or a hunk's head further than 64 KiB from the
//     beginning of its line.
//
// Beyond that, git apply normalizes the modes of all other entries, where old tools have left
// unusual ones; here entries that the patch does not name stay as they are.
package patch

import (
	"cmp"
	"errors"
	"fmt"

	"packhorse/pack/object"
)

var (
	// ErrMalformed matches every [SyntaxError].
	ErrMalformed = errors.New("patch: malformed patch")
	// ErrEmpty says that the input contains no patch.
	ErrEmpty = errors.New("patch: no patch in the input")
	// ErrTooLarge matches every [LimitError].
	ErrTooLarge = errors.New("patch: over a limit")
)

// SyntaxError is the position of a syntax error in a patch. Its Is method matches [ErrMalformed].
type SyntaxError struct {
	// Line counts from 1.
	Line   int64
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("patch: line %d: %s", e.Line, e.Reason) }

// Is reports whether target is [ErrMalformed].
func (e *SyntaxError) Is(target error) bool { return target == ErrMalformed }

// LimitError names the limit that a patch exceeds. Its Is method matches [ErrTooLarge].
type LimitError struct {
	// Path is the file that it is about, "" for the whole patch.
	Path  string
	Limit string
	Max   int64
}

func (e *LimitError) Error() string {
	if e.Path != "" {
		return fmt.Sprintf("patch: %s: %s: more than %d", e.Path, e.Limit, e.Max)
	}
	return fmt.Sprintf("patch: %s: more than %d", e.Limit, e.Max)
}

// Is reports whether target is [ErrTooLarge].
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// Limits bound the effort of a patch. Zero fields take their defaults.
type Limits struct {
	// FileCountMax bounds the parts for one file each.
	FileCountMax int
	// HunkCountMax bounds the hunks of one part.
	HunkCountMax int
	// BlobBytesMax bounds the inflated size of a binary part.
	BlobBytesMax int64
	// InflatedBytesMax bounds the sum of it.
	InflatedBytesMax int64
	// WorkBytesMax bounds the bytes compared in the search for the places of hunks.
	WorkBytesMax int64
}

func (l *Limits) setDefaults() {
	l.FileCountMax = cmp.Or(l.FileCountMax, 100_000)
	l.HunkCountMax = cmp.Or(l.HunkCountMax, 500_000)
	l.BlobBytesMax = cmp.Or(l.BlobBytesMax, 4<<30)
	l.InflatedBytesMax = cmp.Or(l.InflatedBytesMax, 20<<30)
	l.WorkBytesMax = cmp.Or(l.WorkBytesMax, 16<<30)
}

// Patch is a patch of good form. Its source must stay readable as long as it is applied.
type Patch struct {
	source *source
	files  []file
	limits Limits
}

// FileCount is the number of parts, each for one file.
func (p *Patch) FileCount() int { return len(p.files) }

// Outcome is what became of a patch.
type Outcome struct {
	// Changes holds each path once, those that are removed before those that are written, which may
	// take a folder's place. They are consistent with each other and with the entries that stay.
	Changes []Change
	// Rejected is why the patch does not apply, nil if it does.
	Rejected *Rejection
}

// Change writes or removes one path.
type Change struct {
	Path string
	// Remove removes the file at Path; the other fields are empty.
	Remove bool
	Mode   object.Mode
	ID     object.ID
}

// Rejection names the first part of a patch that does not fit the tree.
type Rejection struct {
	Path   string
	Reason string
}

// String is the rejection as a sentence.
func (r *Rejection) String() string { return fmt.Sprintf("%s: %s", r.Path, r.Reason) }

// answer is a yes or a no that may still be open: a plain header does not say whether it creates or
// deletes a file.
type answer int8

const (
	open answer = iota
	no
	yes
)

// file is the part of a patch that concerns one file.
type file struct {
	oldName, newName string // "" for none
	oldMode, newMode uint32 // 0 for none
	oldID, newID     string // as the index line abbreviates them

	isNew, isDelete  answer
	isRename, isCopy bool
	isBinary         bool

	hunksAt   int64 // offset of the first hunk
	hunkCount int
	addBytes  int64 // of the lines that are added, as they will be stored
	removes   bool  // some hunk has old lines

	binary binaryHunk // its method is 0 for none
}

// changesMetadata reports whether the part changes something even without hunks.
func (f *file) changesMetadata() bool {
	return f.isRename || f.isCopy || f.isNew == yes || f.isDelete != no ||
		f.oldMode != 0 && f.newMode != 0 && f.oldMode != f.newMode
}
