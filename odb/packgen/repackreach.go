package packgen

import (
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
)

// TakeReachable chooses those of own that hold something that roots do not lead to, and all hot
// ones of them, and takes what roots lead to. It returns how many objects the chosen layers have,
// and how many of these are taken.
func (r *Repack) TakeReachable(
	ctx context.Context, own []odb.OwnLayer, roots []object.ID,
) (total, taken int, err error) {
	request := Request{Wants: roots}
	walk := newReaching(r.plan.inv, &request, &r.plan.progress)
	if err := walk.run(ctx, &request); err != nil {
		return 0, 0, fmt.Errorf("mark: %w", err)
	}
	live := &walk.send
	if err := r.keepOwn(ctx, live); err != nil {
		return 0, 0, fmt.Errorf("mark: %w", err)
	}
	for _, l := range own {
		if l.Hot { // a delta that stays hot may have its base in any of them
			r.Choose(l.ID)
			total += l.Count
		}
	}
	err = r.eachHot(ctx, func(h handle) {
		if live.has(h) && r.plan.send.add(h) {
			taken++
		}
	})
	if err != nil {
		return 0, 0, err
	}
	for _, l := range own {
		for i, other := range r.plan.inv.layers {
			if other.ID != l.ID || live.count(i) == l.Count {
				continue
			}
			r.Choose(l.ID)
			r.plan.send.words[i] = live.words[i]
			total += l.Count
			taken += live.count(i)
		}
	}
	return total, taken, nil
}

// keepOwn adds to what is live the pool's own copies of what a borrowed segment holds too. The walk
// met the first of an object's places, and a fork may read its own copy for certain, not what it
// took.
func (r *Repack) keepOwn(ctx context.Context, live *objectSet) error {
	layers := r.plan.inv.layers
	for i, borrowed := range layers {
		if !r.View().IsBorrowed(borrowed) {
			continue
		}
		for j := i + 1; j < len(layers); j++ {
			if r.View().IsBorrowed(layers[j]) {
				continue
			}
			if err := live.addDuplicates(ctx, i, j); err != nil {
				return fmt.Errorf("look for own copies of what is borrowed: %w", err)
			}
		}
	}
	return nil
}
