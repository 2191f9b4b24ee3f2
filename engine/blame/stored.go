package blame

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"packhorse/engine/diff/lines"
	"packhorse/odb"
)

// Path histories keep changes as numbers, three uvarints each: the lines between the end of the
// change before and this one, the lines that were replaced, and those that they were replaced by.

// storedMax is the size in bytes up to which changes are kept: such files have little in common.
const storedMax = 64 << 10

// NewLineDiff returns an [odb.LineDiff] that compares as blames do. Its result is empty for files
// that differ in very many places. Errors: that of ctx.
func NewLineDiff() odb.LineDiff {
	var last []byte // split before, which most texts are compared with next
	var lastText lines.Text
	return func(ctx context.Context, before, after []byte) ([]byte, error) {
		text := lastText
		if unsafe.SliceData(after) != unsafe.SliceData(last) || len(after) != len(last) {
			text = lines.SplitNear(after, lastText)
		}
		last, lastText = before, lines.SplitNear(before, text)
		changes, err := lines.Diff(ctx, lastText, text, lineDiff)
		if err != nil {
			return nil, err
		}
		if stored := encodeChanges(changes); len(stored) <= storedMax {
			return stored, nil
		}
		return nil, nil
	}
}

func encodeChanges(changes []lines.Change) []byte {
	var stored []byte
	end := 0
	for _, c := range changes {
		for _, n := range [3]int{c.OldStart - end, c.OldCount, c.NewCount} {
			stored = binary.AppendUvarint(stored, uint64(n))
		}
		end = c.OldStart + c.OldCount
	}
	return stored
}

var errStored = errors.New("blame: stored changes are malformed")

// decodeChanges decodes the output of encodeChanges, nil if it is empty.
func decodeChanges(stored []byte) ([]lines.Change, error) {
	var changes []lines.Change
	oldEnd, newEnd := 0, 0
	for first := true; len(stored) > 0; first = false {
		var numbers [3]int
		for i := range numbers {
			n, size := binary.Uvarint(stored)
			if size <= 0 || n > math.MaxInt32 {
				return nil, errStored
			}
			numbers[i], stored = int(n), stored[size:]
		}
		gap, oldCount, newCount := numbers[0], numbers[1], numbers[2]
		c := lines.Change{OldStart: oldEnd + gap, OldCount: oldCount, NewStart: newEnd + gap, NewCount: newCount}
		oldEnd, newEnd = c.OldStart+oldCount, c.NewStart+newCount
		if oldCount+newCount == 0 || gap == 0 && !first || oldEnd > math.MaxInt32 || newEnd > math.MaxInt32 {
			return nil, errStored
		}
		changes = append(changes, c)
	}
	return changes, nil
}
