package notes_test

import (
	"fmt"
	"slices"
	"testing"

	"packhorse/engine/notes"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// FuzzNotes checks that a notes tree, whatever its initial content, returns the notes that were set
// and none that were removed, and that the written trees are sound.
//
// The input is a list of bytes: the first of each pair selects the operation, the second one of few
// IDs, so that they share folders.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("f\x11F\x11n\x11s\x11r\x11w\x00"))
	f.Add([]byte("o\x01f\x01d\x02o\x02s\x10s\x20s\x30w\x00r\x10w\x00"))
	every := []byte{}
	for i := range 256 {
		every = append(every, 's', byte(i))
	}
	f.Add(slices.Concat(every, []byte("w\x00r\x11w\x00r\x21r\x22w\x00")))
	pool := odbtest.NewPool(f, odb.Options{Limits: odb.Limits{ObjectBytes: 1 << 20, InflatedBytes: 8 << 20}})
	f.Fuzz(func(t *testing.T, script []byte) {
		view := pool.Another(t).View()
		objects := view.NewQuarantine(t.Context())
		t.Cleanup(func() {
			if err := objects.Close(); err != nil {
				t.Error(err)
			}
		})
		write := func(kind object.Type, data []byte) object.ID {
			id, err := objects.Write(t.Context(), kind, data, object.ZeroID)
			if err != nil {
				t.Skip(err)
			}
			return id
		}
		root, script := notesStart(script, write)
		tree, err := notes.Open(t.Context(), objects.View(), root)
		if err != nil {
			t.Skip(err)
		}
		model := make(map[object.ID]object.ID)
		for i := 0; i+1 < len(script); i += 2 {
			id := noteID(script[i+1])
			switch script[i] {
			case 's':
				model[id] = write(object.TypeBlob, fmt.Appendf(nil, "note %d\n", i))
				err = tree.Set(t.Context(), id, model[id])
			case 'r':
				model[id] = object.ZeroID
				_, err = tree.Remove(t.Context(), id)
			case 'w':
				if root, err = tree.Write(t.Context(), objects); err == nil {
					tree, err = notes.Open(t.Context(), objects.View(), root)
				}
			}
			if err != nil {
				t.Skip(err)
			}
			for id, want := range model {
				found, err := tree.Find(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if want.IsZero() && len(found) > 0 || !want.IsZero() && (len(found) != 1 || found[0] != want) {
					t.Fatalf("after %q: the note of %s is %v, want %s", script[:i+2], id, found, want)
				}
			}
		}
	})
}

// noteID is one of 256 ids: their first two bytes differ, each in the first digit and a little in
// the second.
func noteID(b byte) (id object.ID) {
	id[0], id[1], id[19] = b&0xf0|b&1, b<<4, b
	return id
}

// notesStart writes the tree that the first pairs describe: notes, folders with a note, their names
// in capitals, other things. It returns the rest of the script.
func notesStart(script []byte, write func(object.Type, []byte) object.ID) (object.ID, []byte) {
	blob := write(object.TypeBlob, []byte("start\n"))
	var entries []object.TreeEntry
	add := func(name string, mode object.Mode, id object.ID) {
		if !slices.ContainsFunc(entries, func(e object.TreeEntry) bool { return e.Name == name }) {
			entries = append(entries, object.TreeEntry{Name: name, Mode: mode, ID: id})
		}
	}
	for len(script) >= 2 {
		id := noteID(script[1])
		name := id.String()
		below := write(object.TypeTree,
			object.AppendTree(nil, []object.TreeEntry{{Name: name[2:], Mode: object.ModeBlob, ID: blob}}))
		switch script[0] {
		case 'n':
			add(name, object.ModeBlob, blob)
		case 'f':
			add(name[:2], object.ModeTree, below)
		case 'F':
			add(fmt.Sprintf("%X", id[:1]), object.ModeTree, below)
		case 'o':
			add(name[:2], object.ModeBlob, blob)
		case 'd':
			add("other"+name[:2], object.ModeTree, below)
		default:
			return write(object.TypeTree, sortedTree(entries)), script
		}
		script = script[2:]
	}
	return write(object.TypeTree, sortedTree(entries)), script
}

func sortedTree(entries []object.TreeEntry) []byte {
	slices.SortFunc(entries, func(a, b object.TreeEntry) int {
		return object.CompareEntries(a.Name, a.Mode.IsTree(), b.Name, b.Mode.IsTree())
	})
	return object.AppendTree(nil, entries)
}
