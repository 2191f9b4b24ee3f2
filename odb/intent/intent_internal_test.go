package intent

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	want := row{server: ServerID{1, 2}, files: []noted{{name: "a.segment", upload: "id"}, {name: "b.graph"}}}
	value := want.encode()
	got, err := decode(value)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for size := range value {
		if got, err := decode(value[:size]); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%d of %d bytes: %+v, %v", size, len(value), got, err)
		}
	}
	for what, bad := range map[string][]byte{
		"more bytes": append(want.encode(), 0), "no file": (&row{}).encode(),
		"no name": (&row{files: []noted{{upload: "id"}}}).encode(), "a later format": append([]byte{2}, value[1:]...),
	} {
		if got, err := decode(bad); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// alone is a process that shares the stores with none.
type alone struct{}

func (alone) Own(context.Context) (ServerID, error) { return ServerID{1}, nil }
func (alone) Live(context.Context) (map[ServerID]struct{}, error) {
	return map[ServerID]struct{}{{1}: {}}, nil
}

// TestProbe leaves the note of a probe that was killed, and has collectors leave it alone for a
// while, since its process may be at it.
func TestProbe(t *testing.T) {
	t.Parallel()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: vfs.NewMem(), MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keys.Close() }()
	var probed string
	ask := func(want int, answer error) {
		t.Helper()
		err := Probe(t.Context(), keys, func(name string) error {
			probed = name
			return answer
		})
		if !errors.Is(err, answer) {
			t.Error(err)
		}
		names := map[string]bool{probed: false}
		err = Named(t.Context(), keys, names)
		counts, countErr := Count(t.Context(), keys)
		if names[probed] != (want > 0) || counts[nobody] != want || !IsProbe(probed) || errors.Join(err, countErr) != nil {
			t.Errorf("%q: %v, %v, %v", probed, names, counts, err)
		}
	}
	ask(0, nil)
	ask(1, file.ErrUnavailable)
	f := Open(keys, nil, nil, alone{}, slog.New(slog.DiscardHandler)) // nothing is asked of the files
	defer f.End()
	if err := f.Collect(t.Context(), 0); err != nil || f.Stats().WaitingCount != 1 {
		t.Errorf("%+v, %v", f.Stats(), err)
	}
}
