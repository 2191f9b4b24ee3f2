package blame

import (
	"bytes"
	"testing"

	"packhorse/engine/diff/lines"
)

// FuzzStoredChanges holds that stored changes are refused, or are changes in order with lines
// between them; and that encoding returns what was decoded, but for numbers with leading zeros. It
// is a look inside: a path history returns whole files only.
func FuzzStoredChanges(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeChanges([]lines.Change{{OldCount: 1}, {OldStart: 4, OldCount: 300, NewStart: 3, NewCount: 2}}))
	f.Add([]byte{0, 0, 1, 0, 1, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1})
	f.Fuzz(func(t *testing.T, stored []byte) {
		changes, err := decodeChanges(stored)
		if err != nil {
			if changes != nil {
				t.Errorf("%+v beside %v", changes, err)
			}
			return
		}
		oldEnd, newEnd := 0, 0
		for i, c := range changes {
			gap := c.OldStart - oldEnd
			if gap < 0 || gap == 0 && i > 0 || c.NewStart-newEnd != gap || c.OldCount < 0 || c.NewCount < 0 ||
				c.OldCount+c.NewCount == 0 {
				t.Errorf("change %d, %+v, stands behind %d and %d", i, c, oldEnd, newEnd)
			}
			oldEnd, newEnd = c.OldStart+c.OldCount, c.NewStart+c.NewCount
		}
		again := encodeChanges(changes)
		if len(again) > len(stored) || len(again) == len(stored) && !bytes.Equal(again, stored) {
			t.Errorf("%x is %x again", stored, again)
		}
	})
}
