package diff_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/diff"
	"packhorse/odb"
	"packhorse/pack/object"
)

// told lists changes as "M path", "R060 old new" and so on.
func told(t *testing.T, changes iter.Seq2[diff.Change, error]) []string {
	t.Helper()
	list := []string{}
	for c, err := range changes {
		if err != nil {
			t.Fatal(err)
		}
		if c.Status == diff.Renamed {
			list = append(list, fmt.Sprintf("R%03d %s %s", diff.Percent(c.Score), c.Old.Path, c.New.Path))
			continue
		}
		list = append(list, fmt.Sprintf("%c %s", c.Status, c.Path()))
	}
	return list
}

const someCommit = "0123456789012345678901234567890123456789"

func TestTrees(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		old, new map[string]string
		paths    []string
		want     []string
	}{
		"nothing": {
			old: map[string]string{"a": "1", "d/b": "2"}, new: map[string]string{"a": "1", "d/b": "2"},
		},
		"order is that of trees": {
			old:  map[string]string{"x": ""},
			new:  map[string]string{"x": "", "a.b": "1", "a/z": "2", "a0": "3", "a-": "4"},
			want: []string{"A a-", "A a.b", "A a/z", "A a0"},
		},
		"a file becomes a folder": {
			old: map[string]string{"a": "1", "a.b": "1"}, new: map[string]string{"a/a": "1", "a/b": "2"},
			want: []string{"D a", "D a.b", "A a/a", "A a/b"},
		},
		"kinds of changes": {
			old: map[string]string{
				"content": "1", "mode": "1", "link": "1", "gone": "1", "module": "160000:" + someCommit, "odd": "100664:1",
			},
			new: map[string]string{
				"content": "2", "mode": "100755:1", "link": "120000:1", "new": "x", "module": "160000:f" +
					someCommit[1:], "odd": "1",
			},
			want: []string{"M content", "D gone", "T link", "M mode", "M module", "A new"},
		},
		"deep": {
			old: map[string]string{
				"a/b/c/d": "1", "a/b/e": "1",
			}, new: map[string]string{"a/b/c/d": "2", "a/b/e": "1", "a/b/c/f/g": "3"},
			want: []string{"M a/b/c/d", "A a/b/c/f/g"},
		},
		"paths name files and folders": {
			old:   map[string]string{"a/b/c": "1", "a/bc": "1", "d": "1", "e/f": "1", "e.f": "1"},
			new:   map[string]string{"a/b/c": "2", "a/bc": "2", "d": "2", "e/f": "2", "e.f": "2"},
			paths: []string{"a/b", "e/f", "missing/file"},
			want:  []string{"M a/b/c", "M e/f"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(t)
			got := told(t, diff.Trees(context.Background(), m, m.tree(test.old), m.tree(test.new), test.paths))
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestTreesOpensNothingThatIsEqual(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	files := map[string]string{"same/deep/file": "1", "also/same": "2", "changed/in/here": "3"}
	old := m.tree(files)
	files["changed/in/here"] = "4"
	told(t, diff.Trees(context.Background(), m, old, m.tree(files), nil))
	for _, folder := range []map[string]string{{"deep/file": "1"}, {"same": "2"}} {
		if id := m.tree(folder); m.reads[id] != 0 {
			t.Errorf("the folder with %v was read", folder)
		}
	}
	for id, o := range m.objects {
		if o.kind == object.TypeBlob && m.reads[id] != 0 {
			t.Errorf("blob %q was read", o.data)
		}
	}
}

func TestTreesWithAnEmptySide(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	tree := m.tree(map[string]string{"a": "1", "d/b": "2"})
	for _, empty := range []object.ID{object.ZeroID, object.EmptyTreeID} {
		if got := told(t, diff.Trees(context.Background(), m, empty, tree, nil)); !slices.Equal(got,
			[]string{"A a", "A d/b"}) {
			t.Errorf("from nothing: %q", got)
		}
		if got := told(t, diff.Changes(context.Background(), m, tree, empty, nil)); !slices.Equal(got,
			[]string{"D a", "D d/b"}) {
			t.Errorf("to nothing: %q", got)
		}
	}
}

func TestTreesEnds(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	before := m.tree(map[string]string{"a": "1", "b": "1"})
	after := m.tree(map[string]string{"a": "2", "b": "2"})
	seen := 0
	for _, err := range diff.Trees(context.Background(), m, before, after, nil) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("%d changes before the first break", seen)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for c, err := range diff.Changes(ctx, m, before, after, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v after the context's end", c, err)
		}
	}
	deep := m.write(object.TypeTree, nil)
	for range 3000 {
		deep = m.write(object.TypeTree,
			object.AppendTree(nil, []object.TreeEntry{{Name: "d", Mode: object.ModeTree, ID: deep}}))
	}
	missing := m.tree(map[string]string{strings.Repeat("m/", 3) + "x": "1"})
	delete(m.objects, m.tree(map[string]string{"m/x": "1"}))
	for tree, want := range map[object.ID]error{
		deep: diff.ErrTooDeep, missing: odb.ErrNotFound, m.write(object.TypeBlob, nil): odb.ErrCorrupt,
	} {
		var got error
		for _, got = range diff.Trees(context.Background(), m, before, tree, nil) {
			continue
		}
		if !errors.Is(got, want) {
			t.Errorf("error %v, want %v", got, want)
		}
	}
}
