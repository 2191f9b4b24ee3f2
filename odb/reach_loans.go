package odb

import (
	"context"

	"packhorse/pack/object"
)

// Reachability is the [Reach] of stores.
type Reachability struct{}

// Reach implements [Reach].
func (Reachability) Reach(ctx context.Context, v *View, wants, haves []object.ID) (*Reached, error) {
	inv, err := newInventory(ctx, v)
	if err != nil {
		return nil, err
	}
	defer inv.close()
	request := &PackRequest{Wants: wants, Haves: haves}
	r := newReaching(inv, request, &progressMeter{})
	find := r.find
	if len(haves) > 0 {
		find = r.run // by what has changed, whatever the size of the rest
	}
	if err := find(ctx, request); err != nil {
		return nil, err
	}
	set := &Reached{Words: r.send.words[:len(inv.layers)]}
	for _, g := range inv.segments {
		set.Counts = append(set.Counts, g.Count)
	}
	set.Loose = make([]object.ID, 0, r.send.count(inv.looseLayer()))
	err = r.send.each(inv.looseLayer(), func(number uint32) error {
		set.Loose = append(set.Loose, inv.loose.id(number))
		return nil
	})
	return set, err
}

// Leads implements [Reach].
func (Reachability) Leads(ctx context.Context, v *View, tips, commits []object.ID) (bool, error) {
	hide, err := newHistory(v).commitsOf(ctx, tips)
	if err != nil {
		return false, err
	}
	for _, err := range Walk(ctx, v, WalkOptions{Tips: commits, Hide: hide}) {
		return false, err // at least one is not reached
	}
	return true, nil
}
