package odb

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

// outline is what a segment is as a whole: enough to send all of it without opening an object. It is kept in sections of the segment, its
// lists sorted; a segment whose lists would be long has none.
type outline struct {
	// tips are the objects that no other object of the segment names.
	tips []object.ID
	// fill are the bases that were added to complete a thin pack. They are not tips, and what they name does not count.
	fill []object.ID
	// outside are the objects that objects of the segment name and that are not in it, or only as fill.
	outside []object.ID
}

// outlineCountMax bounds each list: a clone reads all of them.
const outlineCountMax = 1 << 16

// isLong reports whether an outline is too long to be kept.
func (o *outline) isLong() bool {
	return max(len(o.tips), len(o.fill), len(o.outside)) > outlineCountMax
}

// fills reports whether an object is there only as the base of a delta.
func (o *outline) fills(id object.ID) bool {
	_, ok := slices.BinarySearchFunc(o.fill, id, object.ID.Compare)
	return ok
}

// list returns the IDs that a section holds.
func (o *outline) list(kind sectionKind) *[]object.ID {
	switch kind {
	case sectionTips:
		return &o.tips
	case sectionFill:
		return &o.fill
	default:
		return &o.outside
	}
}

var outlineSections = [...]sectionKind{sectionTips, sectionFill, sectionOutside}

// write appends the sections of an outline, unless it is long.
func (o *outline) write(sections *sectionWriter) {
	if o.isLong() {
		return
	}
	for _, kind := range outlineSections {
		sections.begin(kind)
		for _, id := range sortIDs(*o.list(kind)) {
			sections.add(id[:])
		}
	}
}

// outline returns the outline of the segment, or false if it has none. There is always a tip.
func (g *segment) outline(ctx context.Context) (outline, bool, error) {
	var o outline
	if g.sections[sectionTips].count() == 0 {
		return o, false, nil
	}
	for _, kind := range outlineSections {
		ids := make([]object.ID, g.sections[kind].count())
		for i := range ids {
			item, err := g.item(ctx, kind, i)
			if err != nil {
				return o, false, err
			}
			ids[i] = object.ID(item)
		}
		*o.list(kind) = ids
	}
	return o, true, nil
}

// note takes in an object that a pack holds or names.
func (o *outline) note(id object.ID, isHeld, isNamed bool) {
	switch {
	case o.isLong():
	case !isHeld:
		o.outside = append(o.outside, id)
	case !isNamed:
		o.tips = append(o.tips, id)
	}
}

// addFill takes in an object that was added to a segment behind those of the pack, and that note took for one of them. The empty tree, which
// git knows without having it, is not fill: it is there because something names it.
func (o *outline) addFill(id object.ID) {
	if id == object.EmptyTreeID {
		if at, ok := slices.BinarySearchFunc(o.outside, id, object.ID.Compare); ok {
			o.outside = slices.Delete(o.outside, at, at+1)
		}
		return
	}
	o.fill = append(o.fill, id)
	if at, ok := slices.BinarySearchFunc(o.tips, id, object.ID.Compare); ok {
		o.tips = slices.Delete(o.tips, at, at+1)
	} else {
		o.outside = append(o.outside, id)
	}
}

// namedIDs gathers what the objects of a segment name while they are written one by one; nil once that is too much for an outline.
type namedIDs map[object.ID]struct{}

// add takes in the links of an object.
func (n *namedIDs) add(t object.Type, data []byte) {
	if *n == nil {
		return
	}
	err := object.Links(t, data, func(id object.ID, _ object.Type) error {
		(*n)[id] = struct{}{}
		return nil
	})
	if err != nil || len(*n) > 4*outlineCountMax {
		*n = nil
	}
}

// outline returns the outline of a segment that holds ids, nil if it is not known.
func (n namedIDs) outline(ids []object.ID) *outline {
	if n == nil {
		return nil
	}
	o := &outline{}
	inside := make(map[object.ID]struct{}, len(ids))
	for _, id := range ids {
		inside[id] = struct{}{}
		if _, named := n[id]; !named {
			o.tips = append(o.tips, id)
		}
	}
	for id := range n {
		if _, ok := inside[id]; !ok {
			o.outside = append(o.outside, id)
		}
	}
	return o
}
