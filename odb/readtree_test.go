package odb_test

import (
	"errors"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestReadTree reads trees that are stored, that are implied, missing, and no trees.
func TestReadTree(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	q := h.View().NewQuarantine(t.Context())
	defer func() { odbtest.Must(t, q.Close()) }()
	blob, err := q.Write(t.Context(), object.TypeBlob, []byte("content"), object.ZeroID)
	odbtest.Must(t, err)
	content := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: "file", ID: blob}})
	tree, err := q.Write(t.Context(), object.TypeTree, content, object.ZeroID)
	odbtest.Must(t, err)
	missing := object.ID{1}
	for name, test := range map[string]struct {
		id   object.ID
		want string
		err  error
	}{
		"tree":       {tree, string(content), nil},
		"empty tree": {object.EmptyTreeID, "", nil},
		"no folder":  {object.ZeroID, "", nil},
		"blob":       {blob, "", odb.ErrCorrupt},
		"missing":    {missing, "", odb.ErrNotFound},
	} {
		got, err := q.View().ReadTree(t.Context(), test.id)
		if string(got) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, test.want, test.err)
		}
	}
	_, err = q.View().ReadTree(t.Context(), blob)
	if e, ok := errors.AsType[*odb.TypeError](err); !ok || *e != (odb.TypeError{blob, object.TypeBlob, object.TypeTree}) {
		t.Errorf("a blob gives %v", err)
	}
}
