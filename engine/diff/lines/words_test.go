package lines_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"packhorse/engine/diff/lines"
)

func TestPairs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a,", 2000)
	tests := map[string]struct {
		before, after string
		want          []lines.Pair
	}{
		"a word": {
			before: "x := first(1)\n", after: "x := second(1)\n",
			want: []lines.Pair{{0, 0, []lines.ByteRange{{5, 10}}, []lines.ByteRange{{5, 11}}}},
		},
		"bytes of UTF-8": {
			before: "für grün alt\n", after: "für gelb neu\n",
			want: []lines.Pair{{0, 0, []lines.ByteRange{{5, 10}, {11, 14}}, []lines.ByteRange{{5, 9}, {10, 13}}}},
		},
		"only added": {
			before: "f(a)\n", after: "f(a, b)\n",
			want: []lines.Pair{{0, 0, nil, []lines.ByteRange{{3, 6}}}},
		},
		"the line feed does not count": {before: "a", after: "a\n", want: []lines.Pair{{}}},
		"pairs end with the shorter side": {
			before: "same\none\ntwo\n", after: "same\nuno\n",
			want: []lines.Pair{{1, 1, []lines.ByteRange{{0, 3}}, []lines.ByteRange{{0, 3}}}},
		},
		"no lines on one side": {before: "a\n", after: "a\nb\n"},
		"a long line is not looked into": {
			before: "(" + long + ")\n", after: "(b," + long + "c;)\n",
			want: []lines.Pair{{0, 0, []lines.ByteRange{{1, 4001}}, []lines.ByteRange{{1, 4005}}}},
		},
		"invalid bytes are words": {
			before: "\xff\xfe\n", after: "\xff\xfd\n",
			want: []lines.Pair{{0, 0, []lines.ByteRange{{1, 2}}, []lines.ByteRange{{1, 2}}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := lines.Split([]byte(tt.before)), lines.Split([]byte(tt.after))
			changes, err := lines.Diff(t.Context(), before, after, lines.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []lines.Pair
			for p, err := range lines.Pairs(t.Context(), before, after, changes) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestPairsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text := lines.Split([]byte("a\n"))
	for _, err := range lines.Pairs(ctx, text, text, []lines.Change{{0, 1, 0, 1}}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	}
}
