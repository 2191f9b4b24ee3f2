package object_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"packhorse/pack/object"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind object.Type
		data string
		want []string
		err  error
	}{
		"blob": {kind: object.TypeBlob, data: treeLine},
		"root": {
			kind: object.TypeCommit, data: treeLine + authorLine + commitLine + "\nx\n", want: []string{"tree " + hexA},
		},
		"merge": {
			kind: object.TypeCommit,
			data: treeLine + parentLine + parentLine + authorLine,
			want: []string{"tree " + hexA, "commit " + hexB, "commit " + hexB},
		},
		"commit": {kind: object.TypeCommit, data: "x", err: object.ErrMalformed},
		"tree": {
			kind: object.TypeTree,
			data: entry("100644", "a", hexC) + entry("120000", "b", hexC) + entry("160000", "c", hexB) +
				entry("040000", "d", hexA) + entry("20000", "e", hexC),
			want: []string{"blob " + hexC, "blob " + hexC, "tree " + hexA},
		},
		"tree cut off": {
			kind: object.TypeTree, data: entry("100644", "a", hexC) + "1", want: []string{"blob " + hexC},
			err: object.ErrMalformed,
		},
		"tag": {
			kind: object.TypeTag, data: "object " + hexB + "\ntype commit\ntag x\n\n", want: []string{"commit " + hexB},
		},
		"tag of tag": {kind: object.TypeTag, data: "object " + hexD + "\ntype tag\n", want: []string{"tag " + hexD}},
		"bad tag":    {kind: object.TypeTag, data: "object " + hexB + "\ntype x\n", err: object.ErrMalformed},
		"no type":    {data: "x", err: object.ErrUnknownType},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			err := object.Links(test.kind, []byte(test.data), func(id object.ID, want object.Type) error {
				got = append(got, fmt.Sprintf("%s %s", want, id))
				return nil
			})
			if !errors.Is(err, test.err) || !slices.Equal(got, test.want) {
				t.Errorf("%v, %v; want %v, %v", got, err, test.want, test.err)
			}
			if len(test.want) == 0 {
				return
			}
			stop := errors.New("stop")
			err = object.Links(test.kind, []byte(test.data), func(object.ID, object.Type) error { return stop })
			if !errors.Is(err, stop) {
				t.Errorf("the visitor's error is lost: %v", err)
			}
		})
	}
}
