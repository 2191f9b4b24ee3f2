package odb

import (
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// LayerID names a layer, and the file of a segment or a companion. IDs are UUIDs of version 7 and are never used again.
type LayerID [16]byte

// String returns the 32 hexadecimal digits that begin the names of the layer's files.
func (l LayerID) String() string { return hex.EncodeToString(l[:]) }

// newLayerID returns an ID that was never used. It panics only when the system has no random numbers, which crypto/rand does not
// survive either.
func newLayerID() LayerID { return LayerID(uuid.Must(uuid.NewV7())) }

// layerKind says what a layer or a companion is. The numbers are stored.
type layerKind uint8

const (
	layerHot     layerKind = 1
	layerSegment layerKind = 2

	// Companions.
	layerGraph    layerKind = 3 // of a segment: commit-graph rows
	layerFilter   layerKind = 4 // of a segment: changed-path filters of its commits
	layerBitmap   layerKind = 5 // of a segment: what commits reach in the layers up to this one
	layerBorrowed layerKind = 6 // of a layer that a fork took: what of it may be read
)

// Names of files: the layer's ID in hexadecimal and what the file is.
const (
	segmentSuffix  = ".segment"
	graphSuffix    = ".graph"
	filterSuffix   = ".filter"
	bitmapSuffix   = ".bitmap"
	borrowedSuffix = ".borrowed"
)

func segmentFile(layer LayerID) string   { return layer.String() + segmentSuffix }
func graphFile(companion LayerID) string { return companion.String() + graphSuffix }

// layerOfFile returns the ID in the name of a file of this package.
func layerOfFile(name string) (LayerID, bool) {
	var id LayerID
	if len(name) <= 2*len(id) {
		return id, false
	}
	digits, suffix := name[:2*len(id)], name[2*len(id):]
	switch suffix {
	case segmentSuffix, graphSuffix, filterSuffix, bitmapSuffix, borrowedSuffix:
	default:
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return LayerID{}, false
	}
	return id, true
}

// fileName returns the file of a layer or companion of that kind.
func (k layerKind) fileName(id LayerID) string {
	switch k {
	case layerSegment:
		return segmentFile(id)
	case layerGraph:
		return graphFile(id)
	case layerFilter:
		return id.String() + filterSuffix
	case layerBitmap:
		return id.String() + bitmapSuffix
	case layerBorrowed:
		return id.String() + borrowedSuffix
	default:
		panic(fmt.Sprintf("odb: layer kind %d has no file", k))
	}
}

// magic ends the files of a kind.
func (k layerKind) magic() string {
	switch k {
	case layerSegment:
		return segmentMagic
	case layerBitmap:
		return bitmapMagic
	case layerFilter:
		return filterMagic
	default:
		return graphMagic
	}
}
