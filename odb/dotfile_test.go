package odb_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

func TestWriteHoldsDotfilesToGitsRules(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: it streams 135 MB in one goroutine")
	}
	w := newWorld(t, odb.Options{})
	d := w.Draft()
	bad := d.Write(object.TypeBlob, []byte("[submodule \"../x\"]\n\turl = y\n"), object.ZeroID)
	good := d.Write(object.TypeBlob, []byte("[submodule \"x\"]\n\turl = y\n"), object.ZeroID)
	long := d.Write(object.TypeBlob, bytes.Repeat([]byte("#"), 2048), object.ZeroID)
	// 35 MiB, streamed.
	huge := d.WriteFrom(append(bytes.Repeat([]byte("*.go text\n"), 3<<20+1<<19), bytes.Repeat([]byte("#"), 3000)...))
	larger := d.WriteFrom(bytes.Repeat([]byte("*.go text\n"), 10<<20+1))
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
			object.TreeEntry{Mode: object.ModeTree, Name: ".gitattributes", ID: d.Write(object.TypeTree, nil, object.ZeroID)},
			"gitattributesBlob",
		},
	}
	for name, test := range tests {
		_, err := d.Quarantine.Write(t.Context(), object.TypeTree, odbtest.TreeOf(test.entry), object.ZeroID)
		var refused *odb.RefusedFileError
		if test.fault == "" && err != nil || test.fault != "" &&
			(!errors.As(err, &refused) || refused.Path != test.entry.Name || refused.Err.Name != test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		}
	}
	d.Discard()
}

// objectionable stores a history that git fsck objects to in ways that writes and pushes refuse. It
// returns the tip, and the number of objections.
func objectionable(t *testing.T, w *world) (tip object.ID, objections int) {
	t.Helper()
	d := w.Draft()
	add := func(kind object.Type, data []byte) object.ID {
		id := packtest.Hash(t, kind, data)
		d.AddHot(id, kind, int64(len(data)), object.ZeroID, data)
		w.Objects[id] = odbtest.Content{Type: kind, Data: data}
		return id
	}
	long := add(object.TypeBlob, bytes.Repeat([]byte("#"), 2100))
	module := add(object.TypeBlob, []byte("[submodule \"a\"]\n\turl = -u\n"))
	folder := add(object.TypeTree,
		odbtest.TreeOf(odbtest.FileEntry(".GITMODULES", module), odbtest.FileEntry("file", long)))
	dotgit := add(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry(".git", long)))
	unsorted := add(object.TypeTree, slices.Concat(
		odbtest.TreeOf(odbtest.FileEntry("b", long)),
		odbtest.TreeOf(odbtest.FileEntry(strings.Repeat("a", 300), module)),
	))
	root := add(object.TypeTree, odbtest.TreeOf(
		odbtest.FileEntry(".gitattributes", long),
		object.TreeEntry{Mode: object.ModeTree, Name: "d", ID: folder},
		object.TreeEntry{Mode: object.ModeTree, Name: "e", ID: dotgit},
		object.TreeEntry{Mode: object.ModeTree, Name: "f", ID: unsorted},
	))
	odd := []byte("tree " + root.String() + "\nauthor <a> 1 +0000\ncommitter C <c> 01 +0000\n\nm\x00\n")
	parent := add(object.TypeCommit, odd)
	tip = d.Write(object.TypeCommit, odbtest.CommitOf(root, 2, parent), object.ZeroID)
	d.Commit()
	return tip, 5 // long, module, dotgit, unsorted, parent
}

// TestMaintenanceKeepsWhatGitObjectsTo compacts objects that git fsck objects to. They stay
// readable, fsck warns of them, and maintenance goes on.
func TestMaintenanceKeepsWhatGitObjectsTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	tip, objections := objectionable(t, w)
	anew := repack.CompactOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: true}}
	for name, options := range map[string]repack.CompactOptions{"flushed": {}, "all": {All: true}, "anew": anew} {
		if done := w.Compact(options); name == "anew" && done.ObjectCount != len(w.Objects) {
			t.Errorf("%s: %+v", name, done)
		}
		if lines := w.Warnings(); len(lines) != objections {
			t.Errorf("%s: fsck warns of %q", name, lines)
		}
		w.Sound(tip)
	}
}

// TestWriteKeepsWhatStandsThere writes trees on top of one with an entry that git fsck objects to.
// A tree may keep that entry, and may have no other one like it.
func TestWriteKeepsWhatStandsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, odb.Options{})
	objectionable(t, w)
	long := packtest.Hash(t, object.TypeBlob, bytes.Repeat([]byte("#"), 2100))
	d := w.Draft()
	former := odbtest.TreeOf(odbtest.FileEntry(".gitattributes", long))
	id := packtest.Hash(t, object.TypeTree, former)
	d.AddHot(id, object.TypeTree, int64(len(former)), object.ZeroID, former)
	write := func(predecessor object.ID, entries ...object.TreeEntry) error {
		_, err := d.Quarantine.Write(t.Context(), object.TypeTree, odbtest.TreeOf(entries...), predecessor)
		return err
	}
	if err := write(id, odbtest.FileEntry(".gitattributes", long), odbtest.FileEntry("more", long)); err != nil {
		t.Errorf("beside another file: %v", err)
	}
	if err := write(id, odbtest.FileEntry(".gitattributes", long), odbtest.FileEntry("GITATT~1", long)); err == nil {
		t.Error("under another name it was taken")
	}
	if err := write(object.ZeroID, odbtest.FileEntry(".gitattributes", long)); err == nil {
		t.Error("in a new folder it was taken")
	}
	d.Discard()
}
