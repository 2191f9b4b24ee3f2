package odb_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

func TestWriteHoldsDotfilesToGitsRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	d := w.draft()
	bad := d.write(object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = y\n"), object.ZeroID)
	good := d.write(object.TypeBlob, []byte("[submodule \"x\"]\n\turl = y\n"), object.ZeroID)
	long := d.write(object.TypeBlob, bytes.Repeat([]byte("#"), 2048), object.ZeroID)
	// 35 MiB, streamed.
	huge := d.writeFrom(append(bytes.Repeat([]byte("*.go text\n"), 3<<20+1<<19), bytes.Repeat([]byte("#"), 3000)...))
	larger := d.writeFrom(bytes.Repeat([]byte("*.go text\n"), 10<<20+1))
	tests := map[string]struct {
		entry object.TreeEntry
		fault string
	}{
		"good":         {object.TreeEntry{Mode: object.ModeBlob, Name: ".gitmodules", ID: good}, ""},
		"name":         {object.TreeEntry{Mode: object.ModeBlob, Name: ".gitmodules", ID: bad}, "gitmodulesName"},
		"executable":   {object.TreeEntry{Mode: object.ModeExec, Name: "gitmod~1", ID: bad}, "gitmodulesName"},
		"another name": {object.TreeEntry{Mode: object.ModeBlob, Name: "gitmodules", ID: bad}, ""},
		"long line": {
			object.TreeEntry{Mode: object.ModeBlob, Name: ".GITATTRIBUTES", ID: long}, "gitattributesLineLength",
		},
		"long line far in": {
			object.TreeEntry{Mode: object.ModeBlob, Name: ".gitattributes", ID: huge}, "gitattributesLineLength",
		},
		"larger": {object.TreeEntry{Mode: object.ModeBlob, Name: ".gitattributes", ID: larger}, "gitattributesLarge"},
		"gitlink": {
			object.TreeEntry{Mode: object.ModeGitlink, Name: ".gitmodules", ID: object.ID{1}}, "gitmodulesMissing",
		},
		"symbolic link": {object.TreeEntry{Mode: object.ModeSymlink, Name: ".gitattributes", ID: long}, ""},
		"folder": {
			object.TreeEntry{Mode: object.ModeTree, Name: ".gitattributes", ID: d.write(object.TypeTree, nil, object.ZeroID)},
			"gitattributesBlob",
		},
	}
	for name, test := range tests {
		_, err := d.q.Write(t.Context(), object.TypeTree, treeOf(test.entry), object.ZeroID)
		var refused *odb.RefusedFileError
		if test.fault == "" && err != nil || test.fault != "" &&
			(!errors.As(err, &refused) || refused.Path != test.entry.Name || refused.Err.Name != test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		}
	}
	d.discard()
}

// objectionable stores a history that git's fsck objects to, in ways that no door lets in, and
// returns its tip.
func objectionable(t *testing.T, w *world) (tip object.ID, objections int) {
	t.Helper()
	d := w.draft()
	add := func(kind object.Type, data []byte) object.ID {
		id := mustHash(t, kind, data)
		must(t, d.q.AddHot(t.Context(), id, kind, int64(len(data)), object.ZeroID, data))
		w.objects[id] = content{kind, data}
		return id
	}
	long := add(object.TypeBlob, bytes.Repeat([]byte("#"), 2100))
	module := add(object.TypeBlob, []byte("[submodule \"a\"]\n\turl = -u\n"))
	folder := add(object.TypeTree, treeOf(fileEntry(".GITMODULES", module), fileEntry("file", long)))
	dotgit := add(object.TypeTree, treeOf(fileEntry(".git", long)))
	unsorted := add(object.TypeTree,
		slices.Concat(treeOf(fileEntry("b", long)), treeOf(fileEntry(strings.Repeat("a", 300), module))))
	root := add(object.TypeTree, treeOf(
		fileEntry(".gitattributes", long),
		object.TreeEntry{Mode: object.ModeTree, Name: "d", ID: folder},
		object.TreeEntry{Mode: object.ModeTree, Name: "e", ID: dotgit},
		object.TreeEntry{Mode: object.ModeTree, Name: "f", ID: unsorted},
	))
	odd := []byte("tree " + root.String() + "\nauthor <a> 1 +0000\ncommitter C <c> 01 +0000\n\nm\x00\n")
	parent := add(object.TypeCommit, odd)
	tip = d.write(object.TypeCommit, commitOf(root, 2, parent), object.ZeroID)
	d.commit()
	return tip, 5 // long, module, dotgit, unsorted, parent
}

// TestMaintenanceKeepsWhatGitObjectsTo: what has come in once is rewritten, served and told, and
// does not end maintenance.
func TestMaintenanceKeepsWhatGitObjectsTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	tip, objections := objectionable(t, w)
	anew := repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: true}}
	for name, options := range map[string]repack.CompactOptions{"folded": {}, "all": {All: true}, "anew": anew} {
		if done := w.compact(options); name == "anew" && done.ObjectCount != len(w.objects) {
			t.Errorf("%s: %+v", name, done)
		}
		if lines := warnings(t, w); len(lines) != objections {
			t.Errorf("%s: fsck warns of %q", name, lines)
		}
		w.sound(tip)
	}
}

// TestWriteKeepsWhatStandsThere: a tree that is written on top of one that holds what git objects
// to may go on holding it, and nothing else.
func TestWriteKeepsWhatStandsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	objectionable(t, w)
	long := mustHash(t, object.TypeBlob, bytes.Repeat([]byte("#"), 2100))
	d := w.draft()
	former := treeOf(fileEntry(".gitattributes", long))
	id := mustHash(t, object.TypeTree, former)
	must(t, d.q.AddHot(t.Context(), id, object.TypeTree, int64(len(former)), object.ZeroID, former))
	write := func(predecessor object.ID, entries ...object.TreeEntry) error {
		_, err := d.q.Write(context.WithoutCancel(t.Context()), object.TypeTree, treeOf(entries...), predecessor)
		return err
	}
	if err := write(id, fileEntry(".gitattributes", long), fileEntry("more", long)); err != nil {
		t.Errorf("beside another file: %v", err)
	}
	if err := write(id, fileEntry(".gitattributes", long), fileEntry("GITATT~1", long)); err == nil {
		t.Error("under another name it was taken")
	}
	if err := write(object.ZeroID, fileEntry(".gitattributes", long)); err == nil {
		t.Error("in a new folder it was taken")
	}
	d.discard()
}

// warnings returns what fsck warns of, in order.
func warnings(t *testing.T, w *world) []string {
	t.Helper()
	report, err := w.store.Fsck(t.Context(), w.pool, odb.FsckOptions{})
	must(t, err)
	if int(report.WarningCount) != len(report.Warnings) {
		t.Errorf("%d warnings, %d told", report.WarningCount, len(report.Warnings))
	}
	lines := make([]string, 0, len(report.Warnings))
	for _, warning := range report.Warnings {
		lines = append(lines, warning.String())
	}
	slices.Sort(lines)
	return lines
}
