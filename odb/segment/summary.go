package segment

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

// Summary describes a segment as a whole: enough to send all of it without opening an object.
// Sections of the segment store it, each list sorted. A segment with a long list has none.
type Summary struct {
	// Tips are the objects that no other object of the segment names.
	Tips []object.ID
	// ThinBases are the bases that ingest added to complete a thin pack. They are not tips, and their
	// links do not count.
	ThinBases []object.ID
	// External are the external references: objects that objects of the segment name and that the
	// segment does not hold, or holds only as thin-pack bases.
	External []object.ID
}

// summaryCountMax bounds each list: a clone reads all of them.
const summaryCountMax = 1 << 16

// isLong reports whether a summary is too long to be stored.
func (o *Summary) isLong() bool {
	return max(len(o.Tips), len(o.ThinBases), len(o.External)) > summaryCountMax
}

// HasThinBase reports whether the segment holds an object only as the base of a delta.
func (o *Summary) HasThinBase(id object.ID) bool {
	_, ok := slices.BinarySearchFunc(o.ThinBases, id, object.ID.Compare)
	return ok
}

// List returns the list that a section stores.
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

// SummarySections are the sections of a summary.
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

// Note adds an object that a pack holds or names. Calls come in the order of the IDs.
func (o *Summary) Note(id object.ID, isHeld, isNamed bool) {
	switch {
	case o.isLong():
	case !isHeld:
		o.External = append(o.External, id)
	case !isNamed:
		o.Tips = append(o.Tips, id)
	}
}

// AddThinBase adds an object that ingest appended to the objects of a pack, and that Note counted
// as one of them. The empty tree, which git knows without storing it, is no thin-pack base: it is
// stored because an object names it.
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

// NamedIDs collects the IDs that the objects of a segment name while a writer adds them one by one.
// It is nil once there are too many for a summary.
type NamedIDs map[object.ID]struct{}

// Add adds the links of an object with the content data.
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

// Summary returns the summary of a segment that holds ids, nil if it is unknown.
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
