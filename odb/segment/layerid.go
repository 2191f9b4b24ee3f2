package segment

import (
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// LayerID names a layer, the file of a segment, or an auxiliary file. It is a UUID of version 7 and
// is never reused.
type LayerID [16]byte

// String returns the 32 hexadecimal digits that begin the names of the layer's files.
func (l LayerID) String() string { return hex.EncodeToString(l[:]) }

// NewLayerID returns a new ID. It panics only when the system has no random numbers; crypto/rand
// panics then, too.
func NewLayerID() LayerID { return LayerID(uuid.Must(uuid.NewV7())) }

// LayerKind is the kind of a layer or of an auxiliary file. The numbers are stored.
type LayerKind uint8

// The kinds. Those from KindGraph on are auxiliary: KindBorrowed and KindVisibility to the layers
// that a fork took, the others to a segment. KindHot and KindVisibility are rows, the others files.
const (
	KindHot      LayerKind = 1 // the rows of small objects
	KindSegment  LayerKind = 2 // a packfile with its index
	KindGraph    LayerKind = 3 // commit-graph rows
	KindFilter   LayerKind = 4 // changed-path filters of the commits
	KindBitmap   LayerKind = 5 // the objects that commits reach in the layers up to this one
	KindBorrowed LayerKind = 6 // what KindVisibility is, in the form of older releases
	KindHistory  LayerKind = 7 // the histories of files that many of the commits changed
	KindTrigram  LayerKind = 8 // the trigrams of the files of the newest commits

	KindVisibility LayerKind = 9 // the objects of a borrowed layer that a fork may read
)

// Known reports whether k is one of the kinds.
func (k LayerKind) Known() bool { return k >= KindHot && k <= KindVisibility }

// HasFile reports whether k is a kind of file. The other kinds are rows.
func (k LayerKind) HasFile() bool { return k.Known() && k != KindHot && k != KindVisibility }

// The suffixes of file names. A layer's ID in hexadecimal stands before them.
const (
	segmentSuffix  = ".segment"
	graphSuffix    = ".graph"
	filterSuffix   = ".filter"
	bitmapSuffix   = ".bitmap"
	borrowedSuffix = ".borrowed"
	historySuffix  = ".history"
	trigramSuffix  = ".trigram"
)

// FileName returns the name of the file of a segment.
func FileName(layer LayerID) string { return layer.String() + segmentSuffix }

// GraphFile returns the name of the file of graph rows.
func GraphFile(id LayerID) string { return id.String() + graphSuffix }

// LayerOfFile returns the ID in the name of a file of this package, or false for another name.
func LayerOfFile(name string) (LayerID, bool) {
	var id LayerID
	if len(name) <= 2*len(id) {
		return id, false
	}
	digits, suffix := name[:2*len(id)], name[2*len(id):]
	switch suffix {
	case segmentSuffix, graphSuffix, filterSuffix, bitmapSuffix, borrowedSuffix, historySuffix, trigramSuffix:
	default:
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return LayerID{}, false
	}
	return id, true
}

// FileName returns the name of the file of the layer or auxiliary file id of kind k.
func (k LayerKind) FileName(id LayerID) string {
	switch k {
	case KindSegment:
		return FileName(id)
	case KindGraph:
		return GraphFile(id)
	case KindFilter:
		return id.String() + filterSuffix
	case KindBitmap:
		return id.String() + bitmapSuffix
	case KindBorrowed:
		return id.String() + borrowedSuffix
	case KindHistory:
		return id.String() + historySuffix
	case KindTrigram:
		return id.String() + trigramSuffix
	default:
		panic(fmt.Sprintf("odb: layer kind %d has no file", k))
	}
}

// sectioned are the kinds of sectioned files.
var sectioned = [...]LayerKind{KindSegment, KindGraph, KindFilter, KindBitmap, KindHistory, KindTrigram}

// magic returns the magic at the end of files of a kind.
func (k LayerKind) magic() string {
	switch k {
	case KindSegment:
		return segmentMagic
	case KindBitmap:
		return bitmapMagic
	case KindFilter:
		return FilterMagic
	case KindHistory:
		return HistoryMagic
	case KindTrigram:
		return TrigramMagic
	default:
		return graphMagic
	}
}
