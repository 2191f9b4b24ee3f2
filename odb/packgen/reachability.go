package packgen

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/progress"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Reachability implements [odb.Reach] with the walks and bitmaps of this package.
type Reachability struct{}

// Reach implements [odb.Reach].
func (Reachability) Reach(
	ctx context.Context, v *odb.View, wants, haves []object.ID, known odb.Reached,
) (*odb.Reached, error) {
	inv, err := newInventory(ctx, v)
	if err != nil {
		return nil, err
	}
	defer inv.close()
	request := &Request{Wants: wants, Haves: haves}
	r := newReaching(inv, request, &progress.Meter{})
	find := r.find
	if len(haves) > 0 {
		r.known = newKnownObjects(inv, known)
		find = r.run // the cost follows the change, not the size of the pool
	}
	if err := find(ctx, request); err != nil {
		return nil, err
	}
	set := &odb.Reached{Words: r.send.words[:len(inv.layers)]}
	for _, g := range inv.segments {
		set.Counts = append(set.Counts, g.Count)
	}
	set.Unpacked = make([]object.ID, 0, r.send.count(inv.unpackedLayer()))
	err = r.send.each(inv.unpackedLayer(), func(number uint32) error {
		set.Unpacked = append(set.Unpacked, inv.unpacked.ID(number))
		return nil
	})
	set.Unpacked = segment.SortIDs(set.Unpacked)
	return set, err
}

// Leads implements [odb.Reach].
func (Reachability) Leads(ctx context.Context, v *odb.View, tips, commits []object.ID) (bool, error) {
	hide, err := revwalk.NewGraph(v).CommitsOf(ctx, tips)
	if err != nil {
		return false, err
	}
	for _, err := range revwalk.Walk(ctx, v, revwalk.WalkOptions{Tips: commits, Hide: hide}) {
		return false, err // at least one is not reached
	}
	return true, nil
}
