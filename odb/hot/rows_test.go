package hot

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"testing"

	"packhorse/pack/object"
)

// TestRows compares rows with a map, and checks that what was handed out stays as it was.
func TestRows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	part := func() []byte {
		switch size := random.IntN(5); size {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return bytes.Repeat([]byte{byte(random.Uint32())}, 1+random.IntN(blockMax*3/2))
		default:
			return bytes.Repeat([]byte{byte(random.Uint32())}, 1+random.IntN(200))
		}
	}
	rows, want := newRows(), make(map[object.ID]Row)
	var handed [][2][]byte // with a copy
	for range 3000 {
		id := object.ID{byte(random.IntN(200))}
		row := want[id]
		switch random.IntN(4) {
		case 0:
			row = Row{Value: part(), Graph: part(), Filter: part()}
			rows.put(id, row)
		case 1:
			row.Value = part()
			rows.putPart(id, TableObject, row.Value)
		case 2:
			row.Graph = part()
			rows.putPart(id, TableGraph, row.Graph)
		default:
			row.Filter = part()
			rows.putPart(id, TableFilter, row.Filter)
		}
		want[id] = row
		got, _ := rows.get(id)
		handed = append(handed, [2][]byte{got.Value, bytes.Clone(got.Value)})
		_ = append(got.Value, 'x') // goes elsewhere
	}
	same := func(a, b Row) bool {
		equal := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
		return equal(a.Value, b.Value) && equal(a.Graph, b.Graph) && equal(a.Filter, b.Filter)
	}
	if got := maps.Collect(rows.all()); !maps.EqualFunc(got, want, same) || rows.count() != len(want) {
		t.Errorf("%d rows differ from %d", rows.count(), len(want))
	}
	for _, value := range handed {
		if !bytes.Equal(value[0], value[1]) {
			t.Fatal("memory that was handed out has changed")
		}
	}
	if _, ok := rows.get(object.ID{201}); ok || rows.has(object.ID{201}) {
		t.Error("a row that was never put")
	}
}
