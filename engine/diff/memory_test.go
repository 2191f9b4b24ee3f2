package diff_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

// memory holds objects by ID and counts how often each is read.
type memory struct {
	tb      testing.TB
	objects map[object.ID]stored

	mu    sync.Mutex // guards reads: renames are looked for on several goroutines
	reads map[object.ID]int
}

type stored struct {
	kind object.Type
	data []byte
}

func newMemory(tb testing.TB) *memory {
	tb.Helper()
	return &memory{tb: tb, objects: map[object.ID]stored{}, reads: map[object.ID]int{}}
}

func (m *memory) Read(_ context.Context, id object.ID) (object.Type, []byte, error) {
	o, ok := m.objects[id]
	if !ok {
		return 0, nil, &odb.NotFoundError{Object: id}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[id]++
	return o.kind, o.data, nil
}

func (m *memory) ReadTree(ctx context.Context, id object.ID) ([]byte, error) {
	if id.IsZero() || id == object.EmptyTreeID {
		return nil, nil
	}
	t, data, err := m.Read(ctx, id)
	if err == nil && t != object.TypeTree {
		err = &odb.TypeError{Object: id, Type: t, Want: object.TypeTree}
	}
	return data, err
}

func (m *memory) Stat(_ context.Context, id object.ID) (odb.Info, error) {
	o, ok := m.objects[id]
	if !ok {
		return odb.Info{}, &odb.NotFoundError{Object: id}
	}
	return odb.Info{Type: o.kind, Size: int64(len(o.data))}, nil
}

func (m *memory) Open(context.Context, object.ID) (*odb.Object, error) {
	return nil, errors.New("memory: no streams here")
}

func (m *memory) write(kind object.Type, data []byte) object.ID {
	m.tb.Helper()
	id, err := object.Hash(kind, data)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.objects[id] = stored{kind, data}
	return id
}

// leaf is a file: its content behind a mode that is not the usual one and a colon, as in
// "120000:target".
func (m *memory) leaf(text string) (object.Mode, object.ID) {
	m.tb.Helper()
	if head, rest, ok := strings.Cut(text, ":"); ok && len(head) == len("100755") {
		bits, err := strconv.ParseUint(head, 8, 32)
		if err != nil {
			m.tb.Fatal(err)
		}
		mode := object.Mode(bits)
		if mode.IsGitlink() {
			id, err := object.ParseID(rest)
			if err != nil {
				m.tb.Fatal(err)
			}
			return mode, id
		}
		return mode, m.write(object.TypeBlob, []byte(rest))
	}
	return object.ModeBlob, m.write(object.TypeBlob, []byte(text))
}

// tree writes the files and returns their root.
func (m *memory) tree(files map[string]string) object.ID {
	m.tb.Helper()
	folders := map[string]map[string]string{}
	var entries []object.TreeEntry
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name, below, nested := strings.Cut(path, "/")
		if !nested {
			mode, id := m.leaf(files[path])
			entries = append(entries, object.TreeEntry{Name: name, Mode: mode, ID: id})
			continue
		}
		if folders[name] == nil {
			folders[name] = map[string]string{}
		}
		folders[name][below] = files[path]
	}
	for name, inside := range folders {
		entries = append(entries, object.TreeEntry{Name: name, Mode: object.ModeTree, ID: m.tree(inside)})
	}
	object.SortTree(entries)
	return m.write(object.TypeTree, object.AppendTree(nil, entries))
}
