package refs

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// A set with changes equals a newly made set, in every walk and in its reported size.
func TestSetWith(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := func() string { return fmt.Sprintf("refs/heads/%04d", rapid.IntRange(0, 3000).Draw(t, "name")) }
		want := overlay{}
		current, err := newSet(Version{}, want.over(func(func(Ref, error) bool) {}, "", ""))
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
			current = current.with(Version{Sequence: sequence}, changes)
			maps.Copy(want, changes)
			maps.DeleteFunc(want, func(_ string, ref *Ref) bool { return ref == nil })
		}

		anew, err := newSet(current.version, want.over(func(func(Ref, error) bool) {}, "", ""))
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

// The cache never keeps an older set in place of a newer one, and drops an older one that has
// become too large.
func TestCacheKeepsLaterSets(t *testing.T) {
	t.Parallel()
	s := &Store{cache: lru.New[setKey, *set](100, 100)}
	for _, step := range []struct{ sequence, bytes, want uint64 }{
		{5, 30, 5}, {4, 1, 5}, {5, 1, 5}, {6, 100, 6}, {7, 101, 0}, {3, 10, 3},
	} {
		s.keep(setKey{repo: RepoID{1}}, &set{version: Version{Sequence: step.sequence}, bytes: int64(step.bytes)})
		got, ok := s.cache.Get(setKey{repo: RepoID{1}})
		if ok != (step.want > 0) || ok && got.version.Sequence != step.want {
			t.Errorf("after sequence %d of %d bytes: %+v, want sequence %d", step.sequence, step.bytes, got, step.want)
		}
	}
}
