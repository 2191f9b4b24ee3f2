package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// examiner examines the objects of a pack one after another: it hashes and checks them, and notes
// their links. Each goroutine has one; their Ingest collects the findings.
type examiner struct {
	in      *Ingest
	found   []finding
	links   linkNotes
	commits commitNotes
	nested  treeNesting
	done    ordinalSet
	// dotfiles are blobs whose names require a check of their content.
	dotfiles map[odb.Dotfile]struct{}
}

// foundMax is the number of findings that an examiner holds before it passes them on.
const foundMax = 256

// newExaminer returns an examiner for about count objects.
func newExaminer(in *Ingest, count int) *examiner {
	return &examiner{
		in: in, links: linkNotes{set: in.links, recent: newRecentLinks(count)}, dotfiles: make(map[odb.Dotfile]struct{}),
	}
}

// entryFacts are the index fields of an entry that do not follow from its content.
type entryFacts struct {
	ordinal    uint32
	base       uint32
	offset     int64
	packedSize int64
	crc        uint32
	baseOffset int64 // -1 for a whole entry
}

// object examines an object in memory and returns its ID.
func (x *examiner) object(ctx context.Context, facts entryFacts, t object.Type, data []byte) (object.ID, error) {
	id, err := object.Hash(t, data)
	if err != nil {
		return id, fmt.Errorf("%s at offset %d: %w", t, facts.offset, err)
	}
	if err := x.note(ctx, facts.ordinal, id, t, data); err != nil {
		return id, badObject(id, t, err)
	}
	return id, x.known(ctx, facts, id, t, int64(len(data)))
}

// known adds an object that has been hashed and needs no further check.
func (x *examiner) known(ctx context.Context, facts entryFacts, id object.ID, t object.Type, size int64) error {
	x.found = append(x.found, finding{
		row: segment.Row{
			ID: id, Type: t, Size: size, Offset: facts.offset, PackedSize: facts.packedSize, Base: facts.baseOffset,
			CRC32: facts.crc,
		},
		ordinal: facts.ordinal,
		base:    facts.base,
	})
	x.done = x.done.grown(facts.ordinal)
	x.done.set(facts.ordinal)
	if err := x.links.object(ctx, id, t, facts.ordinal); err != nil {
		return err
	}
	if len(x.found) < foundMax {
		return nil
	}
	return x.handIn(ctx)
}

func (x *examiner) handIn(ctx context.Context) error {
	err := x.in.keep(ctx, x.found)
	x.found = x.found[:0]
	return err
}

// note checks an object and collects its links.
func (x *examiner) note(ctx context.Context, ordinal uint32, id object.ID, t object.Type, data []byte) error {
	switch t {
	case object.TypeTree:
		return x.noteTree(ctx, ordinal, id, data)
	case object.TypeCommit:
		return x.noteCommit(ctx, ordinal, id, data)
	case object.TypeTag:
		return x.noteTag(ctx, ordinal, id, data)
	case object.TypeBlob:
	}
	return nil
}

func (x *examiner) noteCommit(ctx context.Context, ordinal uint32, id object.ID, data []byte) error {
	if err := x.in.judge(id, object.Check(object.TypeCommit, data)); err != nil {
		return err
	}
	tree, parents, seconds, err := object.CommitLinks(data)
	if err != nil {
		return err
	}
	if err := x.links.link(ctx, tree, object.TypeTree, ordinal); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := x.links.link(ctx, parent, object.TypeCommit, ordinal); err != nil {
			return err
		}
	}
	x.commits.add(id, tree, parents, seconds)
	return nil
}

func (x *examiner) noteTag(ctx context.Context, ordinal uint32, id object.ID, data []byte) error {
	if err := x.in.judge(id, object.Check(object.TypeTag, data)); err != nil {
		return err
	}
	target, want, err := object.TagLink(data)
	if err != nil {
		return err
	}
	return x.links.link(ctx, target, want, ordinal)
}

func (x *examiner) noteTree(ctx context.Context, ordinal uint32, id object.ID, data []byte) error {
	err := object.CheckTree(data, object.TreeCheck{NameMax: odb.PathComponentBytesMax, Found: x.foundDotfile})
	if err := x.in.judge(id, err); err != nil {
		return err
	}
	nameMax := 0
	it := object.IterTree(data)
	for it.Next() {
		nameMax = max(nameMax, len(it.Name))
		want, ok := entryType(it.Mode)
		if !ok {
			continue
		}
		if want == object.TypeTree {
			x.nested.link(it.ID, len(it.Name))
		}
		if err := x.links.link(ctx, it.ID, want, ordinal); err != nil {
			return err
		}
	}
	x.nested.tree(id, nameMax)
	return it.Err() // only a tolerated tree has one
}

func (x *examiner) foundDotfile(_ []byte, file object.Dotfile, mode object.Mode, id object.ID) {
	x.dotfiles[odb.NewDotfile(file, mode, id)] = struct{}{}
}

// assumeTree marks the links of a stored tree as noted: the pool is closed, so their targets exist.
func (x *examiner) assumeTree(data []byte) {
	for it := object.IterTree(data); it.Next(); {
		if want, ok := entryType(it.Mode); ok {
			x.links.assume(it.ID, want)
		}
	}
}

// entryType returns the type of object that a tree entry must name, and false for an entry whose
// object need not be here: a gitlink, or a mode that git treats as one.
func entryType(m object.Mode) (object.Type, bool) {
	t := m.Type()
	return t, t != object.TypeCommit
}

// finish passes the remaining findings on.
func (x *examiner) finish(ctx context.Context) error {
	err := errors.Join(x.handIn(ctx), x.links.flush(ctx))
	in := x.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.commits.join(&x.commits)
	maps.Copy(in.dotfiles, x.dotfiles)
	in.nested.join(&x.nested)
	return err
}
