package merge

import (
	"bytes"
	"context"

	"packhorse/engine/diff/lines"
	"packhorse/pack/object"
)

const (

	// binaryPrefix is how far into a file a NUL makes it binary.
	binaryPrefix = 8000
	// linesMax is the size in bytes from which git takes a file for binary.
	linesMax = 1023 << 20
	// readMax is how large a file may be that is read whole.
	readMax = 32 << 20
)

// mergeFiles merges three versions of a file, a symbolic link or a submodule, of which the base may
// be absent. names is where each lies. It returns the merged version, and if the sides do not
// agree, why.
func (m *threeWay) mergeFiles(
	ctx context.Context, stages [3]Version, names [3]string, extraMarkers int,
) (v Version, clean bool, kind Kind, err error) {
	o, a, b := stages[base], stages[ours], stages[theirs]
	if a.Mode&object.ModeMask != b.Mode&object.ModeMask {
		return a, false, DistinctTypes, nil
	}
	clean = true
	if a.Mode == b.Mode || a.Mode == o.Mode {
		v.Mode = b.Mode
	} else { // two files, of which one is executable
		v.Mode = a.Mode
		clean = b.Mode == o.Mode
	}
	if !clean {
		kind = BothChanged
	}
	sameType := o.Mode&object.ModeMask == a.Mode&object.ModeMask
	switch {
	case a.ID == b.ID, a.ID == o.ID:
		v.ID = b.ID
	case b.ID == o.ID:
		v.ID = a.ID
	case a.Mode.IsRegular():
		if !sameType {
			o = Version{}
		}
		var conflict Kind
		v.ID, conflict, err = m.mergeContents(ctx, [3]object.ID{o.ID, a.ID, b.ID}, names, extraMarkers)
		if conflict != 0 {
			clean, kind = false, conflict
		}
	case a.Mode.IsGitlink():
		v.ID, clean, kind = a.ID, false, Submodule
		if m.depth > 0 {
			if v.ID = o.ID; !sameType {
				v = o
			}
		}
	default: // symbolic links
		v.ID, clean, kind = a.ID, false, Symlink
		if m.depth > 0 {
			v = o
		}
	}
	return v, clean, kind, err
}

// contentKey is what the merge of three blobs depends on. One without conflicts does not depend on
// the markers, which are zero then.
type contentKey struct {
	ids     [3]object.ID
	markers ContentOptions
}

// mergedContent is the outcome of a merge of three blobs.
type mergedContent struct {
	id       object.ID
	conflict Kind // 0 for none
}

// mergeContents merges by lines, or finds what an earlier merge of the same contents came to, and
// returns the merged blob, with markers where the sides conflict. A binary file is not merged: the
// result is ours, or in a virtual base that of the base.
func (m *threeWay) mergeContents(
	ctx context.Context, ids [3]object.ID, names [3]string, extraMarkers int,
) (object.ID, Kind, error) {
	markers := ContentOptions{Ours: m.Ours, Theirs: m.Theirs, MarkerSize: MarkerSizeDefault + extraMarkers}
	if names[base] != names[ours] || names[ours] != names[theirs] {
		markers.Ours += ":" + names[ours]
		markers.Theirs += ":" + names[theirs]
	}
	for _, key := range [...]contentKey{{ids: ids}, {ids, markers}} {
		if known, ok := m.objects.contents[key]; ok {
			return known.id, known.conflict, nil
		}
	}
	from := m.objects.bases[ids[base]]
	var contents [3][]byte
	for side, id := range ids {
		if side == base && from != nil {
			continue
		}
		content, binary, err := m.lines(ctx, id)
		if err != nil {
			return object.ZeroID, 0, err
		}
		if binary {
			return m.keepBinary(ids)
		}
		contents[side] = content
	}
	if from == nil {
		from = lines.NewBase(lines.Split(contents[base]))
		m.objects.keepBase(ctx, ids[base], from)
	}
	merged, conflicts, err := Content(ctx, from, contents[ours], contents[theirs], markers)
	if err != nil {
		return object.ZeroID, 0, err
	}
	id, err := m.objects.add(object.TypeBlob, merged, ids[ours])
	if err != nil {
		return object.ZeroID, 0, err
	}
	key, outcome := contentKey{ids: ids}, mergedContent{id: id}
	if conflicts > 0 {
		key.markers, outcome.conflict = markers, BothChanged
		if ids[base].IsZero() {
			outcome.conflict = AddAdd
		}
	}
	m.objects.contents[key] = outcome
	return id, outcome.conflict, nil
}

// keepBinary settles three files of which one is binary.
func (m *threeWay) keepBinary(ids [3]object.ID) (object.ID, Kind, error) {
	if m.depth == 0 {
		return ids[ours], Binary, nil
	}
	if ids[base].IsZero() {
		id, err := m.objects.add(object.TypeBlob, nil, object.ZeroID)
		return id, 0, err
	}
	return ids[base], 0, nil
}

// IsBinary reports whether a file that begins with data counts as binary, which has no lines to
// merge.
func IsBinary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), binaryPrefix)], 0) >= 0
}

// lines returns a blob's content, and whether it is to be taken for binary.
func (m *threeWay) lines(ctx context.Context, id object.ID) (content []byte, binary bool, err error) {
	if id.IsZero() {
		return nil, false, nil
	}
	size, err := m.objects.blobSize(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if size > linesMax {
		return nil, true, nil
	}
	if size > min(readMax, m.BytesMax) {
		content, _, err := m.objects.begin(ctx, id, binaryPrefix)
		if err == nil && !IsBinary(content) {
			err = ErrTooLarge
		}
		return nil, true, err
	}
	content, err = m.objects.blob(ctx, id)
	if err != nil {
		return nil, false, err
	}
	return content, IsBinary(content), nil
}
