package object_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// entry returns the stored form of a tree entry.
func entry(mode, name, hex string) string {
	id, err := object.ParseID(hex)
	if err != nil {
		panic(err)
	}
	return mode + " " + name + "\x00" + string(id[:])
}

// parseTree returns the entries of a tree in stored order, sorted or not.
func parseTree(data []byte) (entries []object.TreeEntry, err error) {
	it := object.IterTree(data)
	for it.Next() {
		entries = append(entries, object.TreeEntry{Mode: it.Mode, Padding: it.Padding, Name: string(it.Name), ID: it.ID})
	}
	return entries, it.Err()
}

func TestTreeRoundTrip(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"empty":             "",
		"plain":             entry("100644", "a", hexA) + entry("40000", "b", hexB),
		"zero-padded modes": entry("040000", "a", hexA) + entry("000100644", "b", hexA),
		"odd modes": entry("100664", "a", hexA) + entry("0", "b", hexA) + entry("00", "c", hexA) +
			entry("37777777777", "d", hexA),
		"unsorted":  entry("100644", "b", hexA) + entry("100644", "a", hexA),
		"odd names": entry("100644", "", hexA) + entry("100644", " a\nb\xff/", hexA),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := parseTree([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(object.AppendTree([]byte("x"), entries)); got != "x"+data {
				t.Errorf("got %q, want %q", got, "x"+data)
			}
		})
	}
}

// TestAppendFolders compares the folders of random trees with what the iterator gives.
func TestAppendFolders(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	modes := []string{"100644", "100644", "100644", "100755", "120000", "160000", "40000", "040000", "0100644"}
	for range 500 {
		var tree, want strings.Builder
		for i := range random.IntN(12) {
			mode := modes[random.IntN(len(modes))]
			one := entry(mode, fmt.Sprint("name", i), hexA)
			tree.WriteString(one)
			if strings.HasSuffix(mode, "40000") {
				want.WriteString(one)
			}
		}
		got, err := object.AppendFolders([]byte("before"), []byte(tree.String()))
		if err != nil || string(got) != "before"+want.String() {
			t.Fatalf("folders of %q: %q, %v", tree.String(), got, err)
		}
	}
	cut := entry("40000", "a", hexA) + entry("100644", "b", hexA)
	if _, err := object.AppendFolders(nil, []byte(cut[:len(cut)-1])); !errors.Is(err, object.ErrMalformed) {
		t.Errorf("a tree that is cut off: %v", err)
	}
}

func TestTreeIterMalformed(t *testing.T) {
	t.Parallel()
	good := entry("100644", "a", hexA)
	tests := map[string]string{
		"no mode":            " a\x00" + strings.Repeat("x", 20),
		"no octal":           entry("100648", "a", hexA),
		"no space":           "100644a\x00" + strings.Repeat("x", 20),
		"mode only":          "100644",
		"no NUL":             "100644 a",
		"ID cut off":         good[:len(good)-1],
		"second cut off":     good + good[:10],
		"mode too large":     entry("40000000000", "a", hexA),
		"mode much too long": entry(strings.Repeat("0", 400)+"100644", "a", hexA),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseTree([]byte(data)); !errors.Is(err, object.ErrMalformed) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTreeIterDoesNotAllocate(t *testing.T) {
	data := []byte(entry("100644", "a", hexA) + entry("040000", "b", hexB) + entry("160000", "c", hexB))
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		it := object.IterTree(data)
		for it.Next() {
			sum += len(it.Name) + int(it.ID[0])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSortTreeAgreesWithGit(t *testing.T) {
	t.Parallel()
	r := oracle.New(t)
	blob := r.Write("blob", []byte("content"))
	tree := r.Write("tree", nil)
	random := rand.New(rand.NewPCG(3, 4))
	parts := []string{"a", "b", ".", "-", "0", "a.b", "A", "\xff", " ", "\x01"}
	for round := range 20 {
		names := map[string]bool{}
		var entries []object.TreeEntry
		var listing strings.Builder
		for range 30 {
			var name strings.Builder
			for range 1 + random.IntN(3) {
				name.WriteString(parts[random.IntN(len(parts))])
			}
			if n := name.String(); names[n] || n == "." || n == ".." {
				continue
			}
			names[name.String()] = true
			e := object.TreeEntry{Mode: object.ModeBlob, Name: name.String(), ID: mustID(t, blob)}
			if random.IntN(2) == 0 {
				e.Mode, e.ID = object.ModeTree, mustID(t, tree)
			}
			entries = append(entries, e)
			fmt.Fprintf(&listing, "%s %s %s\t%s\x00", e.Mode, e.Mode.Type(), e.ID, e.Name)
		}
		object.SortTree(entries)
		want := strings.TrimSpace(string(r.Input([]byte(listing.String()), "mktree", "-z")))
		got, err := object.Hash(object.TypeTree, object.AppendTree(nil, entries))
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Fatalf("round %d: tree %s, git has %s: %q", round, got, want, entries)
		}
	}
}

func TestCompareEntries(t *testing.T) {
	t.Parallel()
	// In the order of a tree; a slash marks the trees.
	sorted := []string{"a", "a-", "a.b", "a/", "a0", "a0/", "aa", "b/"}
	for i, a := range sorted {
		for j, b := range sorted {
			aName, aTree := strings.CutSuffix(a, "/")
			bName, bTree := strings.CutSuffix(b, "/")
			got := object.CompareEntries(aName, aTree, bName, bTree)
			if sign(got) != sign(i-j) {
				t.Errorf("%s against %s: %d", a, b, got)
			}
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }
