package odb_test

import (
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// TestSearchIsBounded fetches many versions of one large file, the deltas of which are too much to
// be kept.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 80 MiB")
	}
	// Of the deltas that are made for one pack 32 MiB are kept, and what each of two workers makes
	// last.
	const size, deltaBytesMax = 2 << 20, 32 << 20
	w := newWorld(t, odb.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	data := noise(random, size)
	var first, tip object.ID
	for n := range 44 {
		d := w.draft()
		copy(data[n*1000:], noise(random, size/2-size/16)) // a delta is worth it up to half of the whole
		tree := d.write(object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "data", ID: d.writeFrom(data)}),
			object.ZeroID)
		if tip.IsZero() {
			tip = d.write(object.TypeCommit, commitOf(tree, n), object.ZeroID)
			first = tip
		} else {
			tip = d.write(object.TypeCommit, commitOf(tree, n, tip), object.ZeroID)
		}
		d.commit()
	}
	w.with(func(v *odb.View) {
		plan, err := packgen.Plan(t.Context(), v,
			packgen.Request{Wants: []object.ID{tip}, Haves: []object.ID{first}, OFSDelta: true, Thin: true}, nil)
		w.must(err)
		if made := plan.DeltaBytes(); made < deltaBytesMax/2 || made > deltaBytesMax+size {
			t.Errorf("%d bytes of deltas, up to %d may be kept", made, deltaBytesMax)
		}
		_, err = plan.WriteTo(t.Context(), io.Discard, nil)
		w.must(err)
		w.must(plan.Close())
	})
}
