package packgen_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// TestReachFromKnownObjects asks for what tips reach from what earlier commits reach. Both together
// have what git lists for the tips. The walk gives nothing that these do not reach, and nothing
// again but root trees, so it has not walked what was known, even at another path.
func TestReachFromKnownObjects(t *testing.T) {
	t.Parallel()
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 51, CommitCount: 120})
			h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: layout.hotCount, HotBytes: 64 << 20}})
			layout.fill(h, g)
			v := h.View()
			roots := maps.Collect(elements(g.IDs("", "log", "--all", "--format=%T")))
			r := rand.New(rand.NewPCG(51, 7))
			for range oracle.CaseCount(t, 20, 5) {
				haves, wants := odbtest.Pick(r, g.Commits(), 1+r.IntN(3)), odbtest.Pick(r, g.Tips(), 1+r.IntN(3))
				known := reach(h, v, haves, nil, odb.Reached{})
				found := reach(h, v, wants, haves, known)
				listed := g.IDs(odbtest.Lines("", wants), "rev-list", "--objects", "--no-object-names", "--stdin")
				wanted := maps.Collect(elements(listed))
				got := idsOf(h, v, known)
				for id := range idsOf(h, v, found) {
					if !wanted[id] {
						t.Errorf("%s is not reached", id)
					}
					if got[id] && !roots[id] {
						t.Errorf("%s was known", id)
					}
					got[id] = true
				}
				for id := range wanted {
					if !got[id] {
						t.Errorf("%s is not found from %s, with what %s reach", id, wants, haves)
					}
				}
			}
		})
	}
}

func reach(h *odbtest.Pool, v *odb.View, wants, haves []object.ID, known odb.Reached) odb.Reached {
	h.Helper()
	found, err := packgen.Reachability{}.Reach(h.Context(), v, wants, haves, known)
	h.Must(err)
	return *found
}

func elements(ids []object.ID) func(yield func(object.ID, bool) bool) {
	return func(yield func(object.ID, bool) bool) {
		for _, id := range ids {
			if !yield(id, true) {
				return
			}
		}
	}
}

// idsOf returns the IDs of a set of objects of v.
func idsOf(h *odbtest.Pool, v *odb.View, set odb.Reached) map[object.ID]bool {
	h.Helper()
	if !slices.IsSortedFunc(set.Unpacked, object.ID.Compare) {
		h.Errorf("the unpacked objects are not sorted: %s", set.Unpacked)
	}
	ids := maps.Collect(elements(set.Unpacked))
	for i, l := range v.Segments() {
		g, err := l.Acquire(h.Context())
		h.Must(err)
		for ordinal := range g.Count {
			if word := ordinal / 64; word < len(set.Words[i]) && set.Words[i][word]>>(ordinal%64)&1 != 0 {
				id, err := g.ID(h.Context(), uint32(ordinal))
				h.Must(err)
				ids[id] = true
			}
		}
		l.Release(g)
	}
	return ids
}
