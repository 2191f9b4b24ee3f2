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

// TracedFolder is a folder of a commit, with the commits that changed its files last. It is not
// changed any more once [Trace] has returned it, and several traces may share it.
type TracedFolder struct {
	Tree    object.ID
	Entries []TracedEntry // in the order of the tree
	// Complete says that the commits of all files here and below are known.
	Complete bool
	// Bytes is about what the folder takes in memory, with all that is below.
	Bytes int64
}

// TracedEntry is an entry of a [TracedFolder].
type TracedEntry struct {
	Name string
	Mode object.Mode
	ID   object.ID
	// Size is that of a file or a symbolic link, and valid where Last is.
	Size int64
	// Last is the commit that changed a file last, as git log -1 -- PATH finds it: zero for a folder,
	// and while nobody has asked.
	Last object.ID
	// Folder is what is known of a folder, or nil.
	Folder *TracedFolder
}

// known reports whether nothing is left to be found out.
func (e *TracedEntry) known() bool {
	if e.Mode.IsTree() {
		return e.Folder != nil && e.Folder.Complete
	}
	return !e.Last.IsZero()
}

// Find returns the entry at a path below the folder, or nil where the folder knows of none.
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

// Knows reports whether the commits of everything at path are known.
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

// TraceOptions say what to trace. The zero value is the whole tree.
type TraceOptions struct {
	// Path limits the trace to a file or a folder; what else is known already stays known.
	Path string
	// Known, if set, returns what an earlier trace found out about a commit, or nil. History is
	// followed no further than to there.
	Known func(commit object.ID) *TracedFolder
	// Admit, if set, is asked before the trace keeps what is in one more folder, which takes about
	// sizeBytes. Its error ends the trace.
	Admit func(sizeBytes int64) error
}

// Trace finds the commits that changed the files of a commit last, each as git log -1 -- PATH finds
// it, all in one walk: with git's default simplification a file is followed from every commit to
// one parent at most, the first that has the same file, so that every commit is visited once, by
// the files that lead there, and its trees are read only where a filter or a different tree says
// that one of them changed.
//
// Memory is about 100 bytes a file and 100 a commit that was visited. Errors: [odb.ErrNotFound] for
// the commit or the path, and what reading gives.
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
	t := &tracer{history: NewGraph(v), view: v.Linked(), filters: filters, known: options.Known, admit: options.Admit}
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

// finish finds out what is complete, and how large, in the folders that were made for this trace.
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
