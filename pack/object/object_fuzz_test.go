package object_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"packhorse/pack/object"
)

// FuzzObject holds that parsing is exact, that an object which passes the checks is one that all
// readers understand, and that the fast readers agree with the full ones.
func FuzzObject(f *testing.F) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	commit := "tree " + id + "\nparent " + id + "\nauthor A <a@b> 1 +0000\ncommitter C <c@d> 2 -0130\n"
	tag := "object " + id + "\ntype commit\ntag v1\ntagger T <t@u> 3 +0000\n"
	for _, data := range []string{
		commit + "\nmessage\n", commit + "encoding latin1\ngpgsig a\n b\n \n c\nmergetag object\n\nmessage", commit, "tree " +
			id + "\n",
		tag + "\nmessage\n", tag + "extra x\n\n\x00", tag,
		strings.Replace(commit, id, strings.ToUpper(id), 1), strings.Replace(tag, id, strings.ToUpper(id), 1),
		"100644 a\x00" + id[:20] + "40000 b\x00" + id[20:], "040000 .git \x00" + id[:20], "160000 .g\u200cit\x00" + id[:20],
		"[submodule \"a/..\"]\n\turl = \"./%0a\\\n\" # x\n",
	} {
		for kind := object.TypeCommit; kind <= object.TypeTag; kind++ {
			f.Add(uint8(kind), []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		before := bytes.Clone(data)
		switch kind := object.Type(kind); kind {
		case object.TypeCommit:
			commitIsExact(t, data)
		case object.TypeTree:
			treeIsExact(t, data)
		case object.TypeTag:
			tagIsExact(t, data)
		case object.TypeBlob:
			for _, err := range []error{object.CheckGitmodules(data), object.CheckGitattributes(data)} {
				if err != nil && !errors.As(err, new(*object.CheckError)) {
					t.Errorf("an error of another kind: %v", err)
				}
			}
		}
		if err := object.Check(object.Type(kind), data); err == nil {
			if err := object.Links(object.Type(kind), data, func(object.ID, object.Type) error { return nil }); err != nil {
				t.Errorf("checked and not readable: %v", err)
			}
		} else if !errors.As(err, new(*object.CheckError)) {
			t.Errorf("an error of another kind: %v", err)
		}
		if !bytes.Equal(before, data) {
			t.Error("the input was written to")
		}
	})
}

func commitIsExact(t *testing.T, data []byte) {
	t.Helper()
	tree, parents, _, linksErr := object.CommitLinks(data)
	c, err := object.ParseCommit(data)
	if (err == nil) != (linksErr == nil) || err != nil && !errors.Is(err, object.ErrMalformed) {
		t.Fatalf("ParseCommit: %v, CommitLinks: %v", err, linksErr)
	}
	if err != nil {
		return
	}
	if got := c.Append(nil); !bytes.Equal(got, data) {
		t.Errorf("read back %q", got)
	}
	if c.Tree != tree || len(c.Parents) != len(parents) {
		t.Errorf("the fast reader has %s and %d parents, the full one %s and %d", tree, len(parents), c.Tree, len(c.Parents))
	}
}

func treeIsExact(t *testing.T, data []byte) {
	t.Helper()
	entries, err := parseTree(data)
	if err != nil {
		if !errors.Is(err, object.ErrMalformed) {
			t.Errorf("an error of another kind: %v", err)
		}
		return
	}
	if got := object.AppendTree(nil, entries); !bytes.Equal(got, data) {
		t.Errorf("read back %q", got)
	}
	if object.Check(object.TypeTree, data) == nil {
		object.SortTree(entries)
		if got := object.AppendTree(nil, entries); !bytes.Equal(got, data) {
			t.Errorf("a checked tree sorts to %q", got)
		}
	}
}

// tagIsExact holds that a tag's link stands in its first two lines, word for word but for the case
// of the ID's digits.
func tagIsExact(t *testing.T, data []byte) {
	t.Helper()
	id, kind, err := object.TagLink(data)
	if err != nil {
		if !errors.Is(err, object.ErrMalformed) {
			t.Errorf("an error of another kind: %v", err)
		}
		return
	}
	const from, end = len("object "), len("object ") + object.HexSize
	lower := slices.Concat(data[:from], bytes.ToLower(data[from:end]), data[end:], []byte{'\n'})
	if head := "object " + id.String() + "\ntype " + kind.String(); !bytes.HasPrefix(lower, []byte(head+"\n")) {
		t.Errorf("read %s %s from %q", kind, id, data)
	}
}

// FuzzTreeIter holds that a tree's iterator always ends, reads only whole entries and leaves
// nothing behind when it is content. Without regular files it gives the other entries and fails
// alike.
func FuzzTreeIter(f *testing.F) {
	f.Add([]byte("100644 a\x0001234567890123456789040000 b\x0001234567890123456789"))
	f.Add([]byte("0 \x0001234567890123456789"))
	f.Add([]byte("37777777777 a\x0001234567890123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		it, others := object.IterTree(data), object.IterTree(data)
		used := 0
		for it.Next() {
			if it.Mode != object.ModeBlob || it.Padding > 0 {
				if others.SkipFiles(); !others.Next() || others.ID != it.ID || len(others.Rest()) != len(it.Rest()) {
					t.Fatalf("%q is not met without the files before it", it.Name)
				}
			}
			used = len(data) - len(it.Rest())
			if at := used - object.IDSize - 1 - len(it.Name); at < 2 || !bytes.Equal(data[at:at+len(it.Name)], it.Name) {
				t.Fatalf("the name %q is not where it should be", it.Name)
			}
		}
		if others.SkipFiles(); others.Next() || (others.Err() == nil) != (it.Err() == nil) {
			t.Errorf("without files %v, with them %v", others.Err(), it.Err())
		}
		if (it.Err() == nil) != (used == len(data)) || it.Next() {
			t.Errorf("%d of %d bytes read, error %v", used, len(data), it.Err())
		}
	})
}
