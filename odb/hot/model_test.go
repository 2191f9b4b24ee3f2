package hot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// TestCopiesAgainstTheTable lets two processes write to, freeze and drop layers, with batches that
// conflict and batches that are applied as one, and compares what their copies say with a map.
func TestCopiesAgainstTheTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: vfs.NewMem(), MemoryBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := keys.Close(); err != nil {
				t.Error(err)
			}
		}()
		m := &model{T: t, keys: keys, remote: rapid.Bool().Draw(t, "remote")}
		for i := range m.processes {
			m.processes[i] = hot.NewCopies(keys, hot.Options{
				BytesMax:      rapid.SampledFrom([]int64{1000, 5000, 1 << 20}).Draw(t, "budget"),
				LayerBytesMax: rapid.SampledFrom([]int64{3000, 1 << 20}).Draw(t, "layer budget"),
				Remote:        m.remote,
				Damaged:       func(layer segment.LayerID, err error) { t.Errorf("layer %s: %v", layer, err) },
			})
		}
		m.begin()
		t.Repeat(map[string]func(*rapid.T){
			"write":   m.write,
			"freeze":  m.freeze,
			"drop":    m.drop,
			"merge":   m.merge,
			"look":    m.look,
			"load":    m.load,
			"advance": m.advance,
			"":        func(*rapid.T) {},
		})
		for process := range m.processes {
			for _, l := range m.layers {
				m.compare(m.reader(process, l), l)
			}
		}
	})
}

// model is what a store has.
type model struct {
	*rapid.T
	keys      kv.Store
	remote    bool // so the writers call Add
	processes [2]*hot.Copies
	layers    []*modelLayer // the last one takes writes
}

type modelLayer struct {
	id     segment.LayerID
	frozen bool
	rows   map[object.ID]hot.Row
}

// begin adds a layer, perhaps one that an older release has written to.
func (m *model) begin() {
	l := &modelLayer{id: segment.NewLayerID(), rows: make(map[object.ID]hot.Row)}
	m.layers = append(m.layers, l)
	b := kv.NewBatch()
	for _, id := range rapid.SliceOfN(idOf, 0, 5).Draw(m.T, "rows of an older release") {
		m.put(b, l, id)
	}
	m.apply(b)
}

var idOf = rapid.Custom(func(t *rapid.T) object.ID {
	return object.ID{byte(rapid.IntRange(0, 39).Draw(t, "object") * 6)}
})

// put adds an object to a layer and to b; every third one is a commit with its rows.
func (m *model) put(b *kv.Batch, l *modelLayer, id object.ID) {
	row := hot.Row{Value: fmt.Appendf(nil, "value of %s in %s", id, l.id)}
	b.Put(hot.ObjectKey(l.id, id), row.Value)
	if id[0]%9 == 0 {
		row.Graph = hot.EncodeRow(id, &segment.GraphRow{Generation: uint32(id[0]) + 1})
		row.Filter = hot.EncodeFilter(id, []byte{id[0], 1, 2})
		b.Put(hot.GraphKey(l.id, id), row.Graph)
		b.Put(hot.FilterKey(l.id, id), row.Filter)
	}
	l.rows[id] = row
}

func (m *model) apply(b *kv.Batch) {
	if _, err := m.keys.Apply(context.Background(), b); err != nil {
		m.Fatal(err)
	}
}

func (m *model) reader(process int, l *modelLayer) *hot.Reader {
	return &hot.Reader{ID: l.id, Keys: m.keys, Copies: m.processes[process], Frozen: l.frozen}
}

// prepared is a batch that adds objects to a layer, as Stage makes it.
type prepared struct {
	process int
	layer   *modelLayer
	before  []byte
	count   uint64
	ids     []object.ID
}

// prepare looks which of some objects are absent, and compares that with the model.
func (m *model) prepare(t *rapid.T) *prepared {
	ctx := context.Background()
	p := &prepared{process: rapid.IntRange(0, 1).Draw(t, "process"), layer: m.layers[len(m.layers)-1]}
	rows, err := m.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{hot.CountKey(p.layer.id)}})
	if err == nil {
		p.before = rows.Values[0]
		p.count, err = hot.DecodeCount(p.layer.id, p.before)
	}
	r := m.reader(p.process, p.layer)
	if err == nil {
		err = r.CatchUp(ctx, p.count)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range rapid.SliceOfNDistinct(idOf, 1, 6, rapid.ID).Draw(t, "objects") {
		has, err := r.Has(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, want := p.layer.rows[id]; has != want {
			t.Fatalf("Has(%s) = %v, want %v", id, has, want)
		}
		if !has {
			p.ids = append(p.ids, id)
		}
	}
	m.processes[p.process].Layer(p.layer.id).Prepared(p.count)
	return p
}

// write prepares one or two batches, and applies them one after the other, or as one.
func (m *model) write(t *rapid.T) {
	ctx := context.Background()
	parts := []*prepared{m.prepare(t)}
	if rapid.Bool().Draw(t, "two") {
		parts = append(parts, m.prepare(t))
	}
	together := len(parts) == 2 && parts[0].process == parts[1].process && rapid.Bool().Draw(t, "together")
	b := kv.NewBatch()
	var done []*prepared
	for i, p := range parts {
		if len(p.ids) == 0 {
			continue
		}
		if !m.remote && i > 0 && !together {
			break // nothing but the head of a repository keeps the second from being applied
		}
		if m.remote {
			if _, err := hot.Add(b, p.layer.id, p.before, p.ids); err != nil {
				t.Fatal(err)
			}
		}
		if !together && i > 0 && len(done) > 0 { // the first has moved the number on
			if _, err := m.keys.Apply(ctx, b); !errors.Is(err, kv.ErrConflict) {
				t.Fatalf("a batch whose absences no longer hold: %v", err)
			}
			break
		}
		for _, id := range p.ids {
			m.put(b, p.layer, id)
		}
		done = append(done, p)
		if !together {
			m.apply(b)
			b = kv.NewBatch()
		}
	}
	if together {
		m.apply(b)
	}
	for _, p := range done {
		if !rapid.Bool().Draw(t, "told") {
			continue
		}
		added := make(map[object.ID]hot.Row)
		for _, id := range p.ids {
			added[id] = p.layer.rows[id]
		}
		m.processes[p.process].Layer(p.layer.id).Added(p.count, added)
		if rapid.Bool().Draw(t, "in between") {
			m.prepare(t)
		}
	}
}

func (m *model) freeze(*rapid.T) {
	m.layers[len(m.layers)-1].frozen = true
	m.begin()
}

// drop deletes a frozen layer, which one of the processes does.
func (m *model) drop(t *rapid.T) {
	if len(m.layers) == 1 {
		t.Skip("nothing to drop")
	}
	i := rapid.IntRange(0, len(m.layers)-2).Draw(t, "layer")
	b := kv.NewBatch()
	hot.Delete(b, m.layers[i].id)
	m.apply(b)
	m.processes[rapid.IntRange(0, 1).Draw(t, "process")].Drop(m.layers[i].id)
	m.layers = append(m.layers[:i:i], m.layers[i+1:]...)
}

// merge replaces two frozen layers by one, of which the process that does it may have a copy.
func (m *model) merge(t *rapid.T) {
	if len(m.layers) < 3 {
		t.Skip("nothing to merge")
	}
	ctx := context.Background()
	i := rapid.IntRange(0, len(m.layers)-3).Draw(t, "older layer")
	process := rapid.IntRange(0, 1).Draw(t, "process")
	merged := &modelLayer{id: segment.NewLayerID(), frozen: true, rows: make(map[object.ID]hot.Row)}
	var contents []hot.Content
	for _, l := range m.layers[i : i+2] {
		size := 0
		for id, row := range l.rows {
			for _, value := range [][]byte{row.Value, row.Graph, row.Filter} {
				if value != nil {
					size += len(hot.ObjectKey(l.id, id)) + len(value)
				}
			}
			if _, again := merged.rows[id]; !again {
				merged.rows[id] = row
			}
		}
		r := m.reader(process, l)
		if _, ok, err := r.ReadAll(ctx, len(l.rows), size-1); err != nil || ok && len(l.rows) > 0 {
			t.Fatalf("ReadAll of more than it may: %v, %v", ok, err)
		}
		if _, ok, err := r.ReadAll(ctx, len(l.rows)-1, size); err != nil || ok && len(l.rows) > 0 {
			t.Fatalf("ReadAll of more objects than it may: %v, %v", ok, err)
		}
		content, ok, err := r.ReadAll(ctx, len(l.rows), size)
		if err != nil || !ok || content.Count != len(l.rows) || content.Size != size {
			t.Fatalf("ReadAll of %d objects, %d bytes: %d, %d, %v, %v", len(l.rows), size, content.Count, content.Size, ok, err)
		}
		contents = append(contents, content)
	}
	b := kv.NewBatch()
	rows := hot.Merge(b, merged.id, contents)
	m.apply(b)
	if rapid.Bool().Draw(t, "copied") {
		m.processes[process].Put(merged.id, rows)
	}
	m.layers = append(append(m.layers[:i:i], merged), m.layers[i+2:]...)
}

func (m *model) any(t *rapid.T) (*hot.Reader, *modelLayer) {
	l := rapid.SampledFrom(m.layers).Draw(t, "layer")
	return m.reader(rapid.IntRange(0, 1).Draw(t, "process"), l), l
}

func (m *model) look(t *rapid.T) {
	r, l := m.any(t)
	m.compare(r, l)
}

// compare reads all objects. Only what was added since the copy is up to date may be absent so far.
func (m *model) compare(r *hot.Reader, l *modelLayer) {
	ctx := context.Background()
	for i := range 40 {
		id := object.ID{byte(i * 6)}
		want, there := l.rows[id]
		if there && r.Lacks(id) {
			m.Fatalf("Lacks(%s)", id)
		}
		value, state, err := r.Value(ctx, id)
		if err == nil && state == hot.AbsentSoFar {
			if l.frozen {
				m.Fatalf("%s is absent so far from a frozen layer", id)
			}
			value, err = r.Stored(ctx, id)
		}
		if err != nil || !bytes.Equal(value, want.Value) || (state == hot.Held && !there) {
			m.Fatalf("Value(%s) = %q, %v, want %q", id, value, err, want.Value)
		}
		row, state, err := r.Graph(ctx, id)
		if err == nil && state == hot.AbsentSoFar {
			row, state, err = r.StoredGraph(ctx, id)
		}
		if err != nil || (state == hot.Held) != (want.Graph != nil) ||
			state == hot.Held && row.Generation != uint32(id[0])+1 {
			m.Fatalf("Graph(%s) = %v, %v, %v, want %x", id, row, state, err, want.Graph)
		}
		filter, err := r.Filter(ctx, id)
		if err != nil || filter != nil && want.Filter == nil || l.frozen && (filter == nil) != (want.Filter == nil) {
			m.Fatalf("Filter(%s) = %x, %v, want %x", id, filter, err, want.Filter)
		}
	}
	err := hot.CheckAdditions(ctx, &hot.Reader{ID: l.id, Keys: m.keys}, func(_ object.ID, err error) error { return err })
	if err != nil {
		m.Fatal(err)
	}
}

func (m *model) load(t *rapid.T) {
	r, l := m.any(t)
	if err := r.Layer().Load(context.Background(), l.frozen); err != nil {
		t.Fatal(err)
	}
}

// advance brings a copy up to date in one read of the store.
func (m *model) advance(t *rapid.T) {
	r, l := m.any(t)
	tail, advance := r.Behind()
	if advance == nil || !m.remote {
		return
	}
	rows, err := m.keys.Read(context.Background(), kv.ReadSet{Ranges: []kv.ScanOptions{tail}})
	if err != nil {
		t.Fatal(err)
	}
	advance(rows.Pages[0])
	for id := range l.rows {
		if has, err := r.Has(context.Background(), id); err != nil || !has {
			t.Fatalf("Has(%s) = %v, %v after the copy came up to date", id, has, err)
		}
	}
}
