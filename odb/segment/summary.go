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
func (s *Summary) isLong() bool {
	return max(len(s.Tips), len(s.ThinBases), len(s.External)) > summaryCountMax
}

// HasThinBase reports whether the segment holds an object only as the base of a delta.
func (s *Summary) HasThinBase(id object.ID) bool {
	_, ok := slices.BinarySearchFunc(s.ThinBases, id, object.ID.Compare)
	return ok
}

// List returns the list that a section stores.
func (s *Summary) List(kind SectionKind) *[]object.ID {
	switch kind {
	case sectionTips:
		return &s.Tips
	case SectionThinBases:
		return &s.ThinBases
	default:
		return &s.External
	}
}

// SummarySections are the sections of a summary.
var SummarySections = [...]SectionKind{sectionTips, SectionThinBases, SectionExternal}

// write appends the sections of a summary, unless it is long.
func (s *Summary) write(sections *SectionWriter) {
	if s.isLong() {
		return
	}
	for _, kind := range SummarySections {
		sections.Begin(kind)
		for _, id := range SortIDs(*s.List(kind)) {
			sections.Add(id[:])
		}
	}
}

// Summary returns the summary of the segment, or false if it has none. There is always a tip.
func (g Segment) Summary(ctx context.Context) (Summary, bool, error) {
	var s Summary
	if g.sections[sectionTips].count() == 0 {
		return s, false, nil
	}
	for _, kind := range SummarySections {
		ids := make([]object.ID, g.sections[kind].count())
		for i := range ids {
			item, err := g.Item(ctx, kind, i)
			if err != nil {
				return s, false, err
			}
			ids[i] = object.ID(item)
		}
		*s.List(kind) = ids
	}
	return s, true, nil
}

// Note adds an object that a pack holds or names. Calls come in the order of the IDs.
func (s *Summary) Note(id object.ID, isHeld, isNamed bool) {
	switch {
	case s.isLong():
	case !isHeld:
		s.External = append(s.External, id)
	case !isNamed:
		s.Tips = append(s.Tips, id)
	}
}

// AddThinBase adds an object that ingest appended to the objects of a pack, and that Note counted
// as one of them. The empty tree, which git knows without storing it, is no thin-pack base: it is
// stored because an object names it.
func (s *Summary) AddThinBase(id object.ID) {
	if id == object.EmptyTreeID {
		if at, ok := slices.BinarySearchFunc(s.External, id, object.ID.Compare); ok {
			s.External = slices.Delete(s.External, at, at+1)
		}
		return
	}
	s.ThinBases = append(s.ThinBases, id)
	if at, ok := slices.BinarySearchFunc(s.Tips, id, object.ID.Compare); ok {
		s.Tips = slices.Delete(s.Tips, at, at+1)
	} else {
		s.External = append(s.External, id)
	}
}

// NamedIDs collects the IDs that the objects of a segment name while a writer adds them one by one.
// It is nil once there are too many for a summary.
type NamedIDs map[object.ID]struct{}

// Add adds the links of an object with the content data. before is the content of an object of the
// same type whose links have been added, nil if there is none.
func (n *NamedIDs) Add(t object.Type, data, before []byte) {
	if *n == nil {
		return
	}
	if t == object.TypeTree {
		data = object.OwnEntries(data, before)
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
	s := &Summary{}
	inside := make(map[object.ID]struct{}, len(ids))
	for _, id := range ids {
		inside[id] = struct{}{}
		if _, named := n[id]; !named {
			s.Tips = append(s.Tips, id)
		}
	}
	for id := range n {
		if _, ok := inside[id]; !ok {
			s.External = append(s.External, id)
		}
	}
	return s
}
