package revwalk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"packhorse/odb"
	"packhorse/pack/object"
)

// TracedFolder is a folder of a commit, with the commits that changed its files last. It does not
// change after [Trace] has returned it, and several traces may share it.
type TracedFolder struct {
	Tree    object.ID
	Entries []TracedEntry // in the order of the tree
	// Complete says that the commits of all files here and below are known.
	Complete bool
	// Bytes is approximately the memory in bytes of the folder and its subfolders.
	Bytes int64
}

// TracedEntry is an entry of a [TracedFolder].
type TracedEntry struct {
	Name string
	Mode object.Mode
	ID   object.ID
	// Size is the size in bytes of a file or a symbolic link. It is valid if Last is set.
	Size int64
	// Last is the commit that changed a file last, as git log -1 -- PATH finds it, or a folder in a
	// flat trace. It is zero for another folder, and for what was not traced.
	Last object.ID
	// Folder holds the known entries of a folder, or is nil.
	Folder *TracedFolder
}

// known reports whether the entry is traced completely.
func (e *TracedEntry) known() bool {
	return !e.Last.IsZero() || e.Mode.IsTree() && e.Folder != nil && e.Folder.Complete
}

// Find returns the entry at a path below the folder, or nil if none is known.
func (f *TracedFolder) Find(path string) *TracedEntry {
	for f != nil {
		name, rest, more := strings.Cut(path, "/")
		i := slices.IndexFunc(f.Entries, func(e TracedEntry) bool { return e.Name == name })
		if i < 0 {
			return nil
		}
		if !more {
			return &f.Entries[i]
		}
		f, path = f.Entries[i].Folder, rest
	}
	return nil
}

// Knows reports whether the last commits of all files at path are known.
func (f *TracedFolder) Knows(path string) bool {
	if f == nil {
		return false
	}
	if path == "" || f.Complete {
		return f.Complete
	}
	e := f.Find(path)
	return e != nil && e.known()
}

// TraceOptions say which files to trace. The zero value traces the whole tree.
type TraceOptions struct {
	// Path limits the trace to a file or a folder. Results from Known outside it are kept.
	Path string
	// Flat traces the folders in that folder as files are, and not what lies in them.
	Flat bool
	// Known, if set, returns the result of an earlier trace of a commit, or nil. The walk ends at
	// such a commit. A flat trace knows only flat ones of the same path.
	Known func(commit object.ID) *TracedFolder
	// Admit, if set, is called before the trace keeps the entries of another folder, which take about
	// sizeBytes. Its error ends the trace.
	Admit func(sizeBytes int64) error
}

// Trace finds the commits that changed the files of a commit last, each as git log -1 -- PATH finds
// it, all in one walk. With git's default simplification, a file is followed from a commit to at
// most one parent, the first that has the same file. So the walk visits every commit once, with all
// files that lead there. It reads the trees of a commit only where a filter or a different tree
// shows that one of the files changed; for a flat trace it looks less often, see doubt.go.
//
// Memory is about 150 bytes a file and 100 a visited commit. Errors: [odb.ErrNotFound] for the
// commit or the path, those of reading and of options.Admit.
func Trace(ctx context.Context, v *odb.View, commit object.ID, options TraceOptions) (*TracedFolder, error) {
	var base *TracedFolder
	if options.Known != nil {
		if base = options.Known(commit); base.Knows(options.Path) {
			return base, nil
		}
	}
	filters, err := v.OpenFilters(ctx)
	if err != nil {
		return nil, err
	}
	defer filters.Close()
	history := newShortGraph(v)
	defer history.release()
	t := &tracer{
		history: history, view: v.Linked(), filters: filters,
		known: options.Known, admit: options.Admit, flat: options.Flat,
	}
	tip, err := t.history.Tip(ctx, commit)
	if err != nil {
		return nil, err
	}
	set := newTraceSet(t.history.nodes[tip].tree, "", base)
	if err := t.limit(ctx, set, options.Path); err != nil {
		return nil, err
	}
	if err := t.run(ctx, tip, set); err != nil {
		return nil, fmt.Errorf("trace the files of commit %s: %w", commit, err)
	}
	root := set.folder.out
	root.finish()
	return root, nil
}

// finish computes Complete and Bytes of the folders that were made for this trace.
func (f *TracedFolder) finish() {
	if f.Bytes > 0 {
		return // shared with an earlier one
	}
	f.Complete, f.Bytes = true, int64(unsafe.Sizeof(*f))
	for i := range f.Entries {
		e := &f.Entries[i]
		f.Bytes += int64(unsafe.Sizeof(*e)) + int64(len(e.Name)) + object.IDSize // the name is a part of the tree
		if e.Folder != nil {
			e.Folder.finish()
			f.Bytes += e.Folder.Bytes
		}
		f.Complete = f.Complete && e.known()
	}
}
