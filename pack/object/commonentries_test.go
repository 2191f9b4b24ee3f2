package object_test

import (
	"bytes"
	"testing"

	"packhorse/pack/object"
)

func TestCommonPrefixAndSuffix(t *testing.T) {
	t.Parallel()
	filler := bytes.Repeat([]byte("0123456789abcdefghij"), 200)
	for _, size := range []int{0, 1, 7, 8, 9, 63, 1024, 1025, len(filler)} {
		same := filler[:size]
		for _, ends := range [][2]string{{"", ""}, {"x", ""}, {"", "y"}, {"x", "y"}, {"longer x", "y"}} {
			a, b := append(bytes.Clone(same), ends[0]...), append(bytes.Clone(same), ends[1]...)
			if n := object.CommonPrefix(a, b); n != size {
				t.Errorf("%d bytes, then %q: a prefix of %d", size, ends, n)
			}
			a, b = append([]byte(ends[0]), same...), append([]byte(ends[1]), same...)
			if n := object.CommonSuffix(a, b); n != size {
				t.Errorf("%q, then %d bytes: a suffix of %d", ends, size, n)
			}
		}
	}
}
