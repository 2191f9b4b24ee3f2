package merge

import "context"

// combine brings together, for each rename, the versions of both sides: at the new path, or marked
// as a conflict at both.
func (m *threeWay) combine(ctx context.Context, renames []*pair) error {
	for i := 0; i < len(renames); i++ {
		p := renames[i]
		source := m.nodes[p.old.path]
		if source == nil || source.settled {
			continue
		}
		if i+1 < len(renames) && renames[i+1].old.path == p.old.path {
			i++
			if err := m.combineTwice(ctx, source, p, renames[i]); err != nil {
				return err
			}
			continue
		}
		target := m.nodes[p.new.path]
		if target == nil || target.settled {
			entangle(source, target)
			continue
		}
		if err := m.combineOnce(ctx, source, target, p.side); err != nil {
			return err
		}
	}
	return nil
}

// entangle makes a conflict of paths that renames lead to and away from at the same time, so that
// the right place of each is unknown. git dies of such a merge.
func entangle(nodes ...*node) {
	for _, n := range nodes {
		if n != nil && n.files != 0 {
			n.settled, n.absent, n.misplaced = false, false, true
			n.note(RenameCollides)
		}
	}
}

// combineTwice is for a file that both sides renamed: to the same path, or to two.
func (m *threeWay) combineTwice(ctx context.Context, source *node, p, q *pair) error {
	one, two := m.nodes[p.new.path], m.nodes[q.new.path]
	if one == nil || two == nil || one.settled || two.settled {
		entangle(source, one, two)
		return nil
	}
	if one == two {
		one.stages[base] = source.stages[base]
		one.files |= baseBit
		source.settled, source.absent = true, true
		return nil
	}
	names := [3]string{source.path, one.path, two.path}
	stages := [3]Version{source.stages[base], one.stages[ours], two.stages[theirs]}
	merged, clean, kind, err := m.mergeFiles(ctx, stages, names, markersOfRenames(m.depth))
	if err != nil {
		return err
	}
	// Of two binary files there is no merged version, and each keeps its own.
	keepsOwn := !clean && merged == one.stages[ours]
	one.stages[ours] = merged
	if !keepsOwn {
		two.stages[theirs] = merged
	}
	_ = kind
	for _, n := range [3]*node{source, one, two} {
		n.misplaced = true
		n.note(RenameRename)
	}
	return nil
}

// combineOnce is for a file that only one side renamed.
func (m *threeWay) combineOnce(ctx context.Context, source, target *node, side int) error {
	other := ours + theirs - side
	deleted := source.files == baseBit
	collides := target.files&(1<<other) != 0
	retyped := !deleted && source.stages[other].Mode.IsRegular() != target.stages[side].Mode.IsRegular()
	if retyped {
		collides = false // the other side's file stays where it was
	}
	switch {
	case collides && !deleted:
		var stages [3]Version
		stages[base], stages[other], stages[side] = source.stages[base], source.stages[other], target.stages[side]
		names := [3]string{source.path, source.path, source.path}
		names[side] = target.path
		merged, clean, _, err := m.mergeFiles(ctx, stages, names, markersOfRenames(m.depth))
		if err != nil {
			return err
		}
		target.stages[side] = merged
		if !clean {
			target.note(RenameCollides)
		}
	case collides:
		target.misplaced = true
		target.note(RenameDelete)
	default:
		target.stages[base], target.names[base] = source.stages[base], source.path
		target.files |= baseBit
		switch {
		case retyped:
			source.stages[base] = Version{}
			source.files &^= baseBit
		case deleted:
			target.misplaced = true
			target.note(RenameDelete)
		default:
			target.stages[other], target.names[other] = source.stages[other], source.path
			target.files |= 1 << other
		}
	}
	if !retyped {
		source.settled, source.absent = true, true
	}
	return nil
}

// markersOfRenames is the additional length of conflict markers in a file that may be merged once
// more under its new name.
func markersOfRenames(depth int) int { return 1 + 2*depth }
