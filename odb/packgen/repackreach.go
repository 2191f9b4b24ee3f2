package packgen

import (
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
)

// TakeReachable chooses those layers of own that hold an object which roots do not reach, and all
// hot layers of own. It takes the objects of these layers that roots reach. It returns the number
// of objects in the chosen layers, and how many of them it took.
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
		if l.Hot { // a delta in a hot layer may have its base in any other
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

// keepOwn adds to live the pool's own copies of objects that a borrowed segment holds, too. The
// walk met only one copy of each. A fork can always read its own copy, but only visible objects of
// a borrowed segment.
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
				return fmt.Errorf("find own copies of borrowed objects: %w", err)
			}
		}
	}
	return nil
}
