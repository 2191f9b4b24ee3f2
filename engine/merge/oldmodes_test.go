package merge_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// TestOldModes merges trees with modes that old tools wrote, in entries that stay, that we changed
// and that they changed: git writes the modes of today.
func TestOldModes(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	random := rand.New(rand.NewPCG(11, 12))
	blob := func(text string) object.ID { return written(t, git, "blob", text) }
	store := func(entries []object.TreeEntry) object.ID {
		return written(t, git, "tree", string(object.AppendTree(nil, entries)))
	}
	commit := func(tree object.ID, parents ...string) string {
		args := []string{"commit-tree", tree.String(), "-m", "c"}
		for _, parent := range parents {
			args = append(args, "-p", parent)
		}
		return git.Git(args...)
	}
	const cases, names = 12, 14
	var pairs []pair
	for range cases {
		var trees [3][]object.TreeEntry
		for n := range names {
			e := object.TreeEntry{Name: fmt.Sprintf("n%02d", n)}
			switch random.IntN(4) {
			case 0:
				e.Mode = 0o100664
			case 1:
				e.Mode, e.Padding = object.ModeTree, uint8(random.IntN(2))
			default:
				e.Mode = object.ModeBlob
			}
			folder := func() object.ID {
				return store([]object.TreeEntry{{Mode: 0o100664, Name: "f", ID: blob(fmt.Sprint(random.IntN(1000)))}})
			}
			value := func() object.ID {
				if e.Mode.IsTree() {
					return folder()
				}
				return blob(fmt.Sprint(random.IntN(1000)))
			}
			e.ID = value()
			base, changed := e, e
			changed.ID = value()
			ours, theirs := base, base
			switch random.IntN(6) {
			case 0, 1:
				ours = changed
			case 2:
				theirs = changed
			case 3:
				ours.Padding, ours.Mode = 0, ours.Mode.Canonical()
			default:
			}
			for side, entry := range [3]object.TreeEntry{base, ours, theirs} {
				trees[side] = append(trees[side], entry)
			}
		}
		at := commit(store(trees[0]))
		p := pair{commit(store(trees[1]), at), commit(store(trees[2]), at)}
		git.Git("update-ref", fmt.Sprint("refs/heads/ours", len(pairs)), p.ours)
		git.Git("update-ref", fmt.Sprint("refs/heads/theirs", len(pairs)), p.theirs)
		pairs = append(pairs, p)
	}
	if trees, paths, _ := compareMerges(t, git, pairs, t.Errorf); trees+paths > 0 {
		t.Errorf("%d other trees, %d other paths", trees, paths)
	}
}

// written stores an object in git, whatever git thinks of it.
func written(tb testing.TB, git *oracle.Repository, kind, content string) object.ID {
	tb.Helper()
	id, err := object.ParseID(git.Write(kind, []byte(content)))
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
