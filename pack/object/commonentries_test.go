package object_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/pack/object"
)

func TestCommonPrefixAndSuffix(t *testing.T) {
	t.Parallel()
	filler := bytes.Repeat([]byte("0123456789abcdefghij"), 200)
	for _, size := range []int{0, 1, 7, 8, 9, 63, 1024, 1025, len(filler)} {
		same := filler[:size]
		for _, ends := range [][2]string{{"", ""}, {"x", ""}, {"", "y"}, {"x", "y"}, {"longer x", "y"}} {
			a, b := append(bytes.Clone(same), ends[0]...), append(bytes.Clone(same), ends[1]...)
			if n := object.CommonPrefix(a, b); n != size {
				t.Errorf("%d bytes, then %q: a prefix of %d", size, ends, n)
			}
			a, b = append([]byte(ends[0]), same...), append([]byte(ends[1]), same...)
			if n := object.CommonSuffix(a, b); n != size {
				t.Errorf("%q, then %d bytes: a suffix of %d", ends, size, n)
			}
		}
	}
}

// TestOwnEntries compares trees that differ in some places.
func TestOwnEntries(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	entry := func(name string) object.TreeEntry {
		e := object.TreeEntry{Mode: object.ModeBlob, Name: name}
		for i := range e.ID {
			e.ID[i] = byte(random.IntN(3)) // ends of entries that look like ends of others
		}
		return e
	}
	for range 500 {
		var tree, other []object.TreeEntry
		for i := range random.IntN(20) {
			e := entry(fmt.Sprintf("%02d", i))
			tree, other = append(tree, e), append(other, e)
			switch random.IntN(8) {
			case 0:
				tree[len(tree)-1] = entry(e.Name)
			case 1:
				tree = tree[:len(tree)-1]
			case 2:
				other = other[:len(other)-1]
			default:
			}
		}
		data := object.AppendTree(nil, tree)
		own := object.OwnEntries(data, object.AppendTree(nil, other))
		told := make(map[string]bool)
		it := object.IterTree(own)
		for it.Next() {
			told[string(it.Name)] = true
		}
		if err := it.Err(); err != nil || !bytes.Contains(data, own) {
			t.Fatalf("%q is no part of %q: %v", own, data, err)
		}
		for _, e := range tree {
			if !told[e.Name] && !slices.Contains(other, e) {
				t.Errorf("%s is not in the other tree, and not told", e.Name)
			}
		}
		if slices.Equal(tree, other) && len(own) > 0 {
			t.Errorf("%q of equal trees", own)
		}
	}
}

// TestOwnEntriesOfOtherNames has a name that ends like another entry.
func TestOwnEntriesOfOtherNames(t *testing.T) {
	t.Parallel()
	id := object.ID{1, 2, 3}
	last := object.TreeEntry{Mode: object.ModeBlob, Name: "z", ID: object.ID{4}}
	tree := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: "n", ID: id}, last})
	other := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeGitlink, Name: "a100644 n", ID: id}, last})
	want := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: "n", ID: id}})
	if own := object.OwnEntries(tree, other); !bytes.Equal(own, want) {
		t.Errorf("%q, want %q", own, want)
	}
}
