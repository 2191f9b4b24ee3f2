package odbtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"packhorse/pack/object"
)

// Text returns lines that compress as source code does.
func Text(random *rand.Rand, size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		fmt.Fprintf(&b, "func name%d(argument%d int) error { return fail(%q) }\n", random.IntN(500), random.IntN(9),
			fmt.Sprint(random.Uint32()))
	}
	return b.Bytes()[:size]
}

// Noise returns bytes that do not compress.
func Noise(random *rand.Rand, size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// Edited returns text with up to three lines changed.
func Edited(random *rand.Rand, old []byte) []byte {
	lines := bytes.SplitAfter(old, []byte("\n"))
	for range 1 + random.IntN(3) {
		lines[random.IntN(len(lines))] = []byte(fmt.Sprintf("changed %d\n", random.Uint64()))
	}
	return bytes.Join(lines, nil)
}

// CommitOf returns a commit of a tree, made at seconds since 1970.
func CommitOf(tree object.ID, seconds int, parents ...object.ID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, parent := range parents {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	fmt.Fprintf(&b,
		"author A U Thor <author@example.com> %d +0000\ncommitter A U Thor <author@example.com> %d +0000\n\nmessage\n",
		seconds, seconds)
	return b.Bytes()
}

// TreeOf returns a tree of entries, which the caller has sorted.
func TreeOf(entries ...object.TreeEntry) []byte { return object.AppendTree(nil, entries) }

// FileEntry returns the entry of a file in a tree.
func FileEntry(name string, id object.ID) object.TreeEntry {
	return object.TreeEntry{Mode: object.ModeBlob, Name: name, ID: id}
}
