package segment

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

// Summary is what a segment is as a whole: enough to send all of it without opening an object. It
// is kept in sections of the segment, its lists sorted; a segment whose lists would be long has
// none.
type Summary struct {
	// Tips are the objects that no other object of the segment names.
	Tips []object.ID
	// ThinBases are the bases that were added to complete a thin pack. They are not tips, and what
	// they name does not count.
	ThinBases []object.ID
	// External are the objects that objects of the segment name and that are not in it, or only as
	// thin bases.
	External []object.ID
}

// summaryCountMax bounds each list: a clone reads all of them.
const summaryCountMax = 1 << 16

// isLong reports whether a summary is too long to be kept.
func (o *Summary) isLong() bool {
	return max(len(o.Tips), len(o.ThinBases), len(o.External)) > summaryCountMax
}

// HasThinBase reports whether an object is there only as the base of a delta.
func (o *Summary) HasThinBase(id object.ID) bool {
	_, ok := slices.BinarySearchFunc(o.ThinBases, id, object.ID.Compare)
	return ok
}

// List returns the IDs that a section holds.
func (o *Summary) List(kind SectionKind) *[]object.ID {
	switch kind {
	case sectionTips:
		return &o.Tips
	case SectionThinBases:
		return &o.ThinBases
	default:
		return &o.External
	}
}

// SummarySections are the sections that hold a summary.
var SummarySections = [...]SectionKind{sectionTips, SectionThinBases, SectionExternal}

// write appends the sections of a summary, unless it is long.
func (o *Summary) write(sections *SectionWriter) {
	if o.isLong() {
		return
	}
	for _, kind := range SummarySections {
		sections.Begin(kind)
		for _, id := range SortIDs(*o.List(kind)) {
			sections.Add(id[:])
		}
	}
}

// Summary returns the summary of the segment, or false if it has none. There is always a tip.
func (g *Segment) Summary(ctx context.Context) (Summary, bool, error) {
	var o Summary
	if g.sections[sectionTips].count() == 0 {
		return o, false, nil
	}
	for _, kind := range SummarySections {
		ids := make([]object.ID, g.sections[kind].count())
		for i := range ids {
			item, err := g.Item(ctx, kind, i)
			if err != nil {
				return o, false, err
			}
			ids[i] = object.ID(item)
		}
		*o.List(kind) = ids
	}
	return o, true, nil
}

// Note takes in an object that a pack holds or names.
func (o *Summary) Note(id object.ID, isHeld, isNamed bool) {
	switch {
	case o.isLong():
	case !isHeld:
		o.External = append(o.External, id)
	case !isNamed:
		o.Tips = append(o.Tips, id)
	}
}

// AddThinBase takes in an object that was added to a segment behind those of the pack, and that
// note took for one of them. The empty tree, which git knows without having it, is no thin base: it
// is there because something names it.
func (o *Summary) AddThinBase(id object.ID) {
	if id == object.EmptyTreeID {
		if at, ok := slices.BinarySearchFunc(o.External, id, object.ID.Compare); ok {
			o.External = slices.Delete(o.External, at, at+1)
		}
		return
	}
	o.ThinBases = append(o.ThinBases, id)
	if at, ok := slices.BinarySearchFunc(o.Tips, id, object.ID.Compare); ok {
		o.Tips = slices.Delete(o.Tips, at, at+1)
	} else {
		o.External = append(o.External, id)
	}
}

// NamedIDs gathers what the objects of a segment name while they are written one by one; nil once
// that is too much for a summary.
type NamedIDs map[object.ID]struct{}

// Add takes in the links of an object.
func (n *NamedIDs) Add(t object.Type, data []byte) {
	if *n == nil {
		return
	}
	err := object.Links(t, data, func(id object.ID, _ object.Type) error {
		(*n)[id] = struct{}{}
		return nil
	})
	if err != nil || len(*n) > 4*summaryCountMax {
		*n = nil
	}
}

// Summary returns the summary of a segment that holds ids, nil if it is not known.
func (n NamedIDs) Summary(ids []object.ID) *Summary {
	if n == nil {
		return nil
	}
	o := &Summary{}
	inside := make(map[object.ID]struct{}, len(ids))
	for _, id := range ids {
		inside[id] = struct{}{}
		if _, named := n[id]; !named {
			o.Tips = append(o.Tips, id)
		}
	}
	for id := range n {
		if _, ok := inside[id]; !ok {
			o.External = append(o.External, id)
		}
	}
	return o
}
