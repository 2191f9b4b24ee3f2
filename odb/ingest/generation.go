package ingest

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// commitNotes are the commits of a pack from which graph rows are made.
type commitNotes struct {
	commits []commitNote
	parents []object.ID
}

type commitNote struct {
	id, tree   object.ID
	seconds    int64
	end        uint32 // the end of its parents in parents; they begin at first
	first      uint32
	generation uint32
}

func (n *commitNotes) add(id, tree object.ID, parents []object.ID, seconds int64) {
	first := uint32(len(n.parents))
	n.parents = append(n.parents, parents...)
	n.commits = append(n.commits,
		commitNote{id: id, tree: tree, seconds: seconds, first: first, end: uint32(len(n.parents))})
}

// join adds the notes of another examiner.
func (n *commitNotes) join(other *commitNotes) {
	shift := uint32(len(n.parents))
	for _, commit := range other.commits {
		commit.first += shift
		commit.end += shift
		n.commits = append(n.commits, commit)
	}
	n.parents = append(n.parents, other.parents...)
	*other = commitNotes{}
}

func (n *commitNotes) parentsOf(c *commitNote) []object.ID { return n.parents[c.first:c.end:c.end] }

func (n *commitNotes) row(c *commitNote) *odb.GraphRow {
	return &odb.GraphRow{Tree: c.tree, Parents: n.parentsOf(c), Seconds: c.seconds, Generation: c.generation}
}

// number sorts the commits by ID, removes repetitions, and computes the generation of each from
// those of its parents: in the pack, or stored in the pool that v reads.
func (n *commitNotes) number(ctx context.Context, v *odb.View) error {
	slices.SortFunc(n.commits, func(a, b commitNote) int { return a.id.Compare(b.id) })
	n.commits = slices.CompactFunc(n.commits, func(a, b commitNote) bool { return a.id == b.id })
	w := generationWalk{notes: n, view: v, known: newOrdinalSet(len(n.commits)), stored: make(map[object.ID]uint32)}
	for i := range n.commits {
		if err := w.number(ctx, uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

// find returns the index of a commit in the sorted list.
func (n *commitNotes) find(id object.ID) (uint32, bool) {
	at, ok := slices.BinarySearchFunc(n.commits, id, func(c commitNote, id object.ID) int { return c.id.Compare(id) })
	return uint32(at), ok
}

// generationWalk numbers parents before children. It has a stack of its own: history is longer than
// a goroutine's stack should be.
type generationWalk struct {
	notes       *commitNotes
	view        *odb.View
	known       ordinalSet
	stored      map[object.ID]uint32 // generations of stored parents
	stack       []uint32
	generations []uint32
}

func (w *generationWalk) number(ctx context.Context, start uint32) error {
	w.stack = append(w.stack[:0], start)
	for len(w.stack) > 0 {
		at := w.stack[len(w.stack)-1]
		if w.known.has(at) {
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		ready, err := w.gather(ctx, &w.notes.commits[at])
		if err != nil {
			return err
		}
		if ready {
			w.notes.commits[at].generation = segment.NextGeneration(w.generations)
			w.known.set(at)
			w.stack = w.stack[:len(w.stack)-1]
		}
	}
	return nil
}

// gather adds the parents' generations to generations, or pushes the parents that have none yet
// onto the stack.
func (w *generationWalk) gather(ctx context.Context, c *commitNote) (ready bool, err error) {
	w.generations = w.generations[:0]
	ready = true
	for _, parent := range w.notes.parentsOf(c) {
		at, inPack := w.notes.find(parent)
		switch {
		case !inPack:
			stored, err := w.storedGeneration(ctx, parent)
			if err != nil {
				return false, fmt.Errorf("generation of commit %s: %w", c.id, err)
			}
			w.generations = append(w.generations, stored)
		case w.known.has(at):
			w.generations = append(w.generations, w.notes.commits[at].generation)
		default:
			w.stack = append(w.stack, at)
			ready = false
		}
	}
	return ready, nil
}

func (w *generationWalk) storedGeneration(ctx context.Context, id object.ID) (uint32, error) {
	if generation, ok := w.stored[id]; ok {
		return generation, nil
	}
	row, err := w.view.Graph(ctx, id)
	if err != nil {
		return 0, err
	}
	w.stored[id] = row.Generation
	return row.Generation, nil
}
