package refs

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"packhorse/pack/object"
)

// A set with changes equals the set that is made anew, in every walk and in what it says it takes.
func TestSetWith(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := func() string { return fmt.Sprintf("refs/heads/%04d", rapid.IntRange(0, 3000).Draw(t, "name")) }
		want := overlay{}
		current, err := newSet(0, want.over(func(func(Ref, error) bool) {}, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		for sequence := range rapid.Uint64Range(1, 6).Draw(t, "steps") {
			changes := overlay{}
			first, run := rapid.IntRange(0, 3000).Draw(t, "first"), rapid.SampledFrom([]int{0, 1, 300, 1500}).Draw(t, "run")
			gone := rapid.Bool().Draw(t, "gone")
			for i := first; i < first+run; i++ {
				ref := &Ref{Name: fmt.Sprintf("refs/heads/%04d", i), ID: object.ID{byte(sequence)}}
				if changes[ref.Name] = ref; gone {
					changes[ref.Name] = nil
				}
			}
			for range 3 {
				ref := &Ref{Name: name(), ID: object.ID{byte(sequence), 1}}
				changes[ref.Name] = ref
			}
			current = current.with(sequence, changes)
			maps.Copy(want, changes)
			maps.DeleteFunc(want, func(_ string, ref *Ref) bool { return ref == nil })
		}

		anew, err := newSet(current.sequence, want.over(func(func(Ref, error) bool) {}, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		if current.bytes != anew.bytes {
			t.Fatalf("%d bytes, anew %d", current.bytes, anew.bytes)
		}
		for _, c := range current.chunks {
			if len(c.refs) == 0 || len(c.refs) > 2*chunkRefs {
				t.Fatalf("a chunk of %d refs", len(c.refs))
			}
		}
		start, end := name(), name()
		for _, bounds := range [][2]string{{"", ""}, {start, ""}, {"", end}, {start, end}} {
			var got, wanted []string
			for ref, err := range current.between(bounds[0], bounds[1]) {
				if err != nil || ref != *want[ref.Name] {
					t.Fatalf("got %+v, want %+v", ref, *want[ref.Name])
				}
				got = append(got, ref.Name)
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if name >= bounds[0] && (bounds[1] == "" || name < bounds[1]) {
					wanted = append(wanted, name)
				}
			}
			if !slices.Equal(got, wanted) {
				t.Fatalf("between %v: %d refs, want %d", bounds, len(got), len(wanted))
			}
		}
		for _, name := range []string{start, end} {
			ref, found := current.find(name)
			if wanted := want[name]; found != (wanted != nil) || found && ref != *wanted {
				t.Fatalf("%s: %+v, %v", name, ref, found)
			}
		}
	})
}

// The cache keeps what was read last, within its budget, and never an older set in place of a newer one.
func TestCache(t *testing.T) {
	t.Parallel()
	c := cache{bytesMax: 100}
	sized := func(sequence uint64, bytes int64) *set { return &set{sequence: sequence, bytes: bytes} }
	kept := func() (repos []byte) {
		for repo := range byte(9) {
			if _, ok := c.sets[RepoID{repo}]; ok {
				repos = append(repos, repo)
			}
		}
		return repos
	}
	steps := []struct {
		name string
		do   func()
		want []byte
		size int64
	}{
		{"room for all", func() { c.put(RepoID{1}, sized(1, 40)); c.put(RepoID{2}, sized(1, 40)) }, []byte{1, 2}, 80},
		{"the one read last stays", func() { c.get(RepoID{1}); c.put(RepoID{3}, sized(1, 40)) }, []byte{1, 3}, 80},
		{"an older set", func() { c.put(RepoID{1}, sized(5, 30)); c.put(RepoID{1}, sized(4, 1)) }, []byte{1, 3}, 70},
		{"too large", func() { c.put(RepoID{4}, sized(1, 101)) }, []byte{1, 3}, 70},
		{"one grows too large", func() { c.put(RepoID{3}, sized(2, 101)) }, []byte{1}, 30},
		{"one takes all", func() { c.put(RepoID{5}, sized(1, 100)) }, []byte{5}, 100},
	}
	for _, step := range steps {
		step.do()
		if got := kept(); !slices.Equal(got, step.want) || c.bytes != step.size || c.order.Len() != len(got) {
			t.Errorf("%s: %v of %d bytes, want %v of %d", step.name, got, c.bytes, step.want, step.size)
		}
	}
	if got := c.get(RepoID{9}); got != nil {
		t.Errorf("got %+v", got)
	}
}
