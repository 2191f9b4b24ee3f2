package hot_test

import (
	"bytes"
	"testing"

	"packhorse/odb/hot"
	"packhorse/pack/object"
)

// FuzzFilter checks that a path filter of the hot tier reads as it was written, and that no
// other value reads as one.
func FuzzFilter(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5})
	f.Add(bytes.Repeat([]byte{0x5a}, 70_001))
	id, other := object.ID{1}, object.ID{2}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		got, err := hot.DecodeFilter(id, hot.EncodeFilter(id, data))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%x reads as %x, %v", data, got, err)
		}
		if got, err := hot.DecodeFilter(id, data); err == nil && !bytes.Equal(hot.EncodeFilter(id, got), data) {
			t.Errorf("value %x reads as %x", data, got)
		}
		if got, err := hot.DecodeFilter(other, hot.EncodeFilter(id, data)); err == nil {
			t.Errorf("the filter of another commit reads as %x", got)
		}
	})
}
