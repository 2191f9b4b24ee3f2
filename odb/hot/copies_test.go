package hot_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// table is a hot layer in a store in memory, and copies of it.
type table struct {
	testing.TB
	keys   kv.Store
	copies *hot.Copies
	id     segment.LayerID
	damage []error
}

func newTable(tb testing.TB, options hot.Options) *table {
	tb.Helper()
	keys, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: vfs.NewMem(), MemoryBytes: 8 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := keys.Close(); err != nil {
			tb.Error(err)
		}
	})
	t := &table{TB: tb, keys: keys, id: segment.NewLayerID()}
	options.Damaged = func(_ segment.LayerID, err error) { t.damage = append(t.damage, err) }
	if options.BytesMax == 0 {
		options.BytesMax, options.LayerBytesMax = 64<<20, 32<<20
	}
	t.copies = hot.NewCopies(keys, options)
	return t
}

func (t *table) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t *table) reader(frozen bool) *hot.Reader {
	return &hot.Reader{ID: t.id, Keys: t.keys, Copies: t.copies, Frozen: frozen}
}

// stage adds objects to b as Stage does, and returns what tells the copies once b is applied.
func (t *table) stage(b *kv.Batch, ids ...object.ID) (added func()) {
	t.Helper()
	rows, err := t.keys.Read(t.Context(), kv.ReadSet{Keys: [][]byte{hot.CountKey(t.id)}})
	t.must(err)
	count, err := hot.DecodeCount(t.id, rows.Values[0])
	t.must(err)
	_, err = hot.Add(b, t.id, rows.Values[0], ids)
	t.must(err)
	contents := make(map[object.ID]hot.Row)
	for _, id := range ids {
		contents[id] = hot.Row{Value: valueOf(id)}
		b.Put(hot.ObjectKey(t.id, id), contents[id].Value)
	}
	t.copies.Layer(t.id).Prepared(count)
	return func() { t.copies.Layer(t.id).Added(count, contents) }
}

func (t *table) apply(b *kv.Batch) {
	t.Helper()
	_, err := t.keys.Apply(context.Background(), b)
	t.must(err)
}

func (t *table) write(ids ...object.ID) {
	t.Helper()
	b := kv.NewBatch()
	added := t.stage(b, ids...)
	t.apply(b)
	added()
}

// upToDate returns a reader whose copy includes all additions, as Stage reads.
func (t *table) upToDate() *hot.Reader {
	t.Helper()
	value, err := t.keys.Get(t.Context(), hot.CountKey(t.id))
	t.must(err)
	count, err := hot.DecodeCount(t.id, value)
	t.must(err)
	r := t.reader(false)
	t.must(r.CatchUp(t.Context(), count))
	return r
}

func (t *table) has(r *hot.Reader, id object.ID) bool {
	t.Helper()
	has, err := r.Has(t.Context(), id)
	t.must(err)
	return has
}

func valueOf(id object.ID) []byte { return fmt.Appendf(nil, "value of %s", id) }

func numbered(i int) object.ID {
	var id object.ID
	binary.BigEndian.PutUint32(id[:], uint32(i)*2654435761) // spread as hashes are
	binary.BigEndian.PutUint32(id[4:], uint32(i))
	return id
}

// Batches that were prepared at the same number may be applied as one. Whoever is told first does
// not know what else was in it.
func TestAddedTogether(t *testing.T) {
	t.Parallel()
	tests := map[string]func(tab *table) (told, other func()){
		"both after the copy": func(tab *table) (told, other func()) {
			tab.must(tab.copies.Layer(tab.id).Load(t.Context(), false))
			tab.write(numbered(1))
			tab.upToDate()
			b := kv.NewBatch()
			told, other = tab.stage(b, numbered(2)), tab.stage(b, numbered(3))
			tab.apply(b)
			return told, other
		},
		"one before the copy": func(tab *table) (told, other func()) {
			tab.write(numbered(1))
			b := kv.NewBatch()
			other = tab.stage(b, numbered(3))
			tab.copies.Drop(tab.id) // with what it knew of this batch
			tab.must(tab.copies.Layer(tab.id).Load(t.Context(), false))
			told = tab.stage(b, numbered(2))
			tab.apply(b)
			return told, other
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := newTable(t, hot.Options{Remote: true})
			told, other := test(tab)
			told()
			if r := tab.upToDate(); !tab.has(r, numbered(2)) || !tab.has(r, numbered(3)) || !r.IsCopied() {
				t.Error("an object of the batch is said to be absent")
			}
			other()
			if r := tab.upToDate(); !tab.has(r, numbered(3)) || tab.has(r, numbered(4)) {
				t.Error("the copy is wrong after both were told")
			}
		})
	}
}

// A batch that relies on an absence is refused when another batch has added to the layer.
func TestAbsenceIsRequired(t *testing.T) {
	t.Parallel()
	tab := newTable(t, hot.Options{})
	for range 2 { // the first addition, and one more
		b := kv.NewBatch()
		tab.stage(b, numbered(1))
		tab.write(numbered(2))
		if _, err := tab.keys.Apply(t.Context(), b); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("the batch is applied: %v", err)
		}
	}
}

// meddled calls a function after every read of several things.
type meddled struct {
	kv.Store
	reads int
	after func()
}

func (s *meddled) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	rows, err := s.Store.Read(ctx, set)
	s.reads++
	s.after()
	return rows, err
}

// TestLargeLayer copies a layer of many pages while commits are added to it.
func TestLargeLayer(t *testing.T) {
	t.Parallel()
	tab := newTable(t, hot.Options{})
	const count = 6000
	for i := 0; i < count; i += 500 {
		ids := make([]object.ID, 0, 500)
		for j := range 500 {
			ids = append(ids, numbered(i+j))
		}
		tab.write(ids...)
	}
	next := count
	keys := &meddled{Store: tab.keys}
	keys.after = func() {
		for range 50 {
			b := kv.NewBatch()
			tab.stage(b, numbered(next))
			b.Put(hot.GraphKey(tab.id, numbered(next)), hot.EncodeRow(numbered(next), &segment.GraphRow{Generation: 7}))
			tab.apply(b)
			next++
		}
	}
	copies := hot.NewCopies(keys, hot.Options{BytesMax: 64 << 20, LayerBytesMax: 32 << 20, Remote: true})
	l := copies.Layer(tab.id)
	if err := l.Load(t.Context(), false); err != nil || !l.IsCopied() {
		t.Fatalf("the layer is not copied: %v", err)
	}
	if keys.reads > 6 {
		t.Errorf("%d reads copy a layer of %d objects", keys.reads, count)
	}
	keys.after = func() {}
	value, err := tab.keys.Get(t.Context(), hot.CountKey(tab.id))
	tab.must(err)
	number, err := hot.DecodeCount(tab.id, value)
	tab.must(err)
	r := &hot.Reader{ID: tab.id, Keys: keys, Copies: copies}
	tab.must(r.CatchUp(t.Context(), number))
	for i := range next {
		value, state, err := r.Value(t.Context(), numbered(i))
		if err != nil || state != hot.Held || string(value) != string(valueOf(numbered(i))) {
			t.Fatalf("object %d: %q, %v, %v", i, value, state, err)
		}
		if row, state, err := r.Graph(t.Context(), numbered(i)); i >= count &&
			(err != nil || state != hot.Held || row.Generation != 7) {
			t.Fatalf("graph row %d: %v, %v, %v", i, row, state, err)
		}
	}
	if has, err := r.Has(t.Context(), numbered(next)); has || err != nil {
		t.Errorf("an object that is not there: %v, %v", has, err)
	}
}

// Copies stay within their budgets, and lookups go on without them.
func TestBudget(t *testing.T) {
	t.Parallel()
	tab := newTable(t, hot.Options{BytesMax: 40_000, LayerBytesMax: 20_000, Remote: true})
	layers := make([]segment.LayerID, 4)
	for i := range layers {
		layers[i] = segment.NewLayerID()
		tab.id = layers[i]
		for j := range 50 {
			tab.write(numbered(j))
		}
	}
	for i := range 12 {
		tab.id = layers[i%len(layers)]
		r := tab.reader(true)
		if value, state, err := r.Value(t.Context(), numbered(7)); err != nil || state != hot.Held ||
			string(value) != string(valueOf(numbered(7))) {
			t.Fatalf("%q, %v, %v", value, state, err)
		}
		if bytes := tab.copies.Bytes(); !r.IsCopied() || bytes > 40_000 {
			t.Fatalf("copied: %v, %d bytes in memory", r.IsCopied(), bytes)
		}
	}
	for j := range 100 {
		tab.write(numbered(100 + j))
	}
	if r := tab.reader(false); r.IsCopied() || !tab.has(r, numbered(150)) || tab.has(r, numbered(300)) {
		t.Error("a layer that has become too large is still copied, or cannot be read")
	}
}

// A store that is near is copied after many lookups only.
func TestWorth(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		count   int
		before  int // lookups while the layer takes writes
		frozen  bool
		lookups int
	}{
		"few":         {count: 64, frozen: true, lookups: 8},
		"frozen late": {count: 64, before: 50, frozen: true, lookups: 1},
		"one more":    {count: 65, frozen: true, lookups: 128},
		"few, so far": {count: 64, lookups: 128},
		"small":       {count: 500, lookups: 128},
		"large":       {count: 5000, lookups: 1024},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := newTable(t, hot.Options{})
			for i := 0; i < test.count; i += 500 {
				var ids []object.ID
				for j := i; j < min(i+500, test.count); j++ {
					ids = append(ids, numbered(j))
				}
				tab.write(ids...)
			}
			for i := range test.before {
				tab.has(tab.reader(false), numbered(i))
			}
			r := tab.reader(test.frozen)
			for i := range test.lookups {
				if r.IsCopied() {
					t.Fatalf("the layer is copied after %d lookups", i)
				}
				if !tab.has(r, numbered(i%test.count)) {
					t.Fatalf("object %d is absent", i)
				}
			}
			if !r.IsCopied() {
				t.Errorf("the layer is not copied after %d lookups", test.lookups)
			}
		})
	}
}

// A damaged row of additions is told, and the layer read from the store.
func TestDamagedAdditions(t *testing.T) {
	t.Parallel()
	for _, row := range []string{"number", "addition"} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			tab := newTable(t, hot.Options{Remote: true})
			tab.write(numbered(1))
			r := tab.reader(false)
			if row == "addition" {
				tab.has(r, numbered(1)) // before the damage
			}
			other := hot.NewCopies(tab.keys, hot.Options{})
			writer := *tab
			writer.copies = other
			writer.write(numbered(2))
			b := kv.NewBatch()
			for pair, err := range tab.keys.Scan(t.Context(), hot.Additions(tab.id)) {
				tab.must(err)
				if isNumber := len(pair.Key) == len(hot.CountKey(tab.id)); isNumber == (row == "number") {
					value := append([]byte(nil), pair.Value...)
					value[3] ^= 4
					b.Put(pair.Key, value)
				}
			}
			tab.apply(b)
			tab.must(r.CatchUp(t.Context(), 2))
			if !tab.has(r, numbered(2)) || tab.has(r, numbered(3)) {
				t.Error("the store is not read instead of the copy")
			}
			r = tab.reader(true)
			if !tab.has(r, numbered(2)) || len(tab.damage) != 1 || !errors.Is(tab.damage[0], segment.ErrFormat) {
				t.Errorf("damage: %v", tab.damage)
			}
			found := 0
			tab.must(hot.CheckAdditions(t.Context(), &hot.Reader{ID: tab.id, Keys: tab.keys},
				func(object.ID, error) error { found++; return nil }))
			if found == 0 {
				t.Error("fsck finds nothing")
			}
		})
	}
}

// TestConcurrentUse reads and writes a layer in many goroutines while its copy comes and goes.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	tab := newTable(t, hot.Options{Remote: true})
	tab.write(numbered(0))
	const count = 200
	var written sync.WaitGroup
	written.Go(func() {
		for i := 1; i < count; i++ {
			tab.write(numbered(i))
			if i%50 == 0 {
				tab.copies.Drop(tab.id)
			}
		}
	})
	for range 3 {
		written.Go(func() {
			for i := range count {
				r := tab.reader(false)
				_, state, err := r.Value(t.Context(), numbered(0))
				if err != nil || state != hot.Held {
					t.Errorf("object 0 at lookup %d: %v, %v", i, state, err)
					return
				}
			}
		})
	}
	written.Wait()
	for i := range count {
		if !tab.has(tab.upToDate(), numbered(i)) {
			t.Errorf("object %d is absent", i)
		}
	}
}
