package segment_test

import (
	"errors"
	"testing"

	"packhorse/odb/segment"
)

func TestRegistration(t *testing.T) {
	t.Parallel()
	want := segment.Registration{
		Pool: [16]byte{1, 2, 3}, Kind: segment.KindSegment, Count: 300, Bytes: 1 << 40,
	}
	stored := want.Encode()
	if got, err := segment.DecodeRegistration(stored); got != want || err != nil {
		t.Errorf("decoded %+v, %v, want %+v", got, err, want)
	}
	hot, format := want, want.Encode()
	hot.Kind, format[0] = segment.KindHot, 2
	bad := map[string][]byte{
		"empty": nil, "no file": hot.Encode(), "format": format, "a byte more": append(want.Encode(), 0),
	}
	for i := range stored {
		bad["cut "+string(rune('a'+i))] = stored[:i]
	}
	for name, value := range bad {
		if _, err := segment.DecodeRegistration(value); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v, want ErrFormat", name, err)
		}
	}
}
