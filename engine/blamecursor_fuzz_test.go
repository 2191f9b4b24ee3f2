package engine

import (
	"encoding/base64"
	"errors"
	"reflect"
	"testing"

	"packhorse/engine/blame"
)

// FuzzBlameCursor reads cursors of any bytes, and writes again what was read.
func FuzzBlameCursor(f *testing.F) {
	request := &BlameRequest{Path: "dir/a", Ranges: []string{"1,9"}}
	r := new(Repository)
	from := r.blameCursor(request)
	from.left = []blame.Pending{
		{Index: 4, Source: 7, Count: 2},
		{Index: 1, Source: 9, Count: 3},
		{Index: 8, Count: 1, Path: "b"},
		{Index: 9, Count: 1, Path: "b", Commit: [20]byte{1}},
	}
	for i := range from.left[:2] {
		from.left[i].Path = request.Path
	}
	seed, err := base64.RawURLEncoding.DecodeString(from.text())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:30])
	f.Add(append(seed, seed[29:]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := r.blameCursor(request)
		if err := c.parse(base64.RawURLEncoding.EncodeToString(data)); err != nil {
			if !errors.Is(err, ErrInvalidCursor) {
				t.Errorf("a refused cursor: %v", err)
			}
			return
		}
		if len(c.left) == 0 || len(c.left) > blame.PendingMax {
			t.Errorf("%d runs are left", len(c.left))
		}
		again := r.blameCursor(request)
		if err := again.parse(c.text()); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v was written and read as %+v, %v", c, again, err)
		}
	})
}
