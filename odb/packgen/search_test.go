package packgen_test

import (
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// TestSearchIsBounded fetches many versions of one large file with deltas too large to keep.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 80 MiB")
	}
	// A pack keeps 32 MiB of deltas, and the last one of each of two workers.
	const size, deltaBytesMax = 2 << 20, 32 << 20
	w := odbtest.NewWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	data := odbtest.Noise(random, size)
	var first, tip object.ID
	for n := range 44 {
		d := w.Draft()
		copy(data[n*1000:], odbtest.Noise(random, size/2-size/16)) // a delta is worth it up to half of the whole
		tree := d.Write(object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("data", d.WriteFrom(data))), object.ZeroID)
		if tip.IsZero() {
			tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, n), object.ZeroID)
			first = tip
		} else {
			tip = d.Write(object.TypeCommit, odbtest.CommitOf(tree, n, tip), object.ZeroID)
		}
		d.Commit()
	}
	w.With(func(v *odb.View) {
		plan, err := packgen.Plan(t.Context(), v,
			packgen.Request{Wants: []object.ID{tip}, Haves: []object.ID{first}, OFSDelta: true, Thin: true}, nil)
		w.Must(err)
		if made := plan.DeltaBytes(); made < deltaBytesMax/2 || made > deltaBytesMax+size {
			t.Errorf("%d bytes of deltas, up to %d may be kept", made, deltaBytesMax)
		}
		_, err = plan.WriteTo(t.Context(), io.Discard, nil)
		w.Must(err)
		w.Must(plan.Close())
	})
}
