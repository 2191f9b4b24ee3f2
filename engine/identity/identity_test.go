package identity_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/identity"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

const id = "000102030405060708090a0b0c0d0e0f"

var plain = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// TestOpen opens stores in each state, and looks at what is stored afterwards. A row of nil is
// absent.
func TestOpen(t *testing.T) {
	t.Parallel()
	marked := func(state identity.State) []byte {
		return identity.Row{ID: id, Mark: identity.Mark{State: state, Migration: "m", Run: "r", Place: "elsewhere"}}.Encode()
	}
	tests := map[string]struct {
		row   []byte
		want  error
		after []byte // nil: as before
	}{
		"plain":            {row: plain},
		"leaving":          {row: marked(identity.Leaving), after: plain},
		"arriving":         {row: marked(identity.Arriving), want: identity.ErrUnfinished},
		"left":             {row: marked(identity.Left), want: identity.ErrMoved},
		"short":            {row: plain[:15], want: kv.ErrCorrupt},
		"no mark":          {row: append(bytes.Clone(plain), 16), want: kv.ErrCorrupt},
		"a mark of others": {row: append(bytes.Clone(plain), `{"state":"other"}`...), want: kv.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := stored(t, test.row)
			got, err := identity.Open(t.Context(), keys)
			if !errors.Is(err, test.want) || err == nil && got != id {
				t.Errorf("got %q, %v", got, err)
			}
			if test.want != nil && !errors.Is(test.want, kv.ErrCorrupt) && !strings.Contains(err.Error(), "elsewhere") {
				t.Errorf("%v does not name the other store", err)
			}
			want := test.row
			if test.after != nil {
				want = test.after
			}
			if after, err := keys.Get(t.Context(), identity.Key()); err != nil || !bytes.Equal(after, want) {
				t.Errorf("the row is %q, %v, afterwards, and not %q", after, err, want)
			}
		})
	}
}

// TestOpenNew opens a store without an ID twice.
func TestOpenNew(t *testing.T) {
	t.Parallel()
	keys := stored(t, nil)
	first, err := identity.Open(t.Context(), keys)
	if err != nil || len(first) != 2*identity.Size {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := identity.Open(t.Context(), keys); err != nil || again != first {
		t.Errorf("%q, and then %q, %v", first, again, err)
	}
}

// stored opens a store with a row, until the test ends.
func stored(t *testing.T, row []byte) kv.Store {
	t.Helper()
	keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	if row == nil {
		return keys
	}
	b := kv.NewBatch()
	b.Put(identity.Key(), row)
	if _, err := keys.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return keys
}
