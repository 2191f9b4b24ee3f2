package odb_test

import (
	"errors"
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

// TestReadTree reads trees, what is none, and what need not be stored.
func TestReadTree(t *testing.T) {
	t.Parallel()
	h := newIngestHost(t, odb.Options{})
	q := h.view().NewQuarantine(t.Context())
	defer func() { must(t, q.Close()) }()
	blob, err := q.Write(t.Context(), object.TypeBlob, []byte("content"), object.ZeroID)
	must(t, err)
	content := object.AppendTree(nil, []object.TreeEntry{{Mode: object.ModeBlob, Name: "file", ID: blob}})
	tree, err := q.Write(t.Context(), object.TypeTree, content, object.ZeroID)
	must(t, err)
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
