package lru_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"packhorse/odb/lru"
)

// entry is a value in the model.
type entry struct{ key, value, bytes int }

// model is a cache that is right at sight: the youngest entry comes last.
type model struct {
	entries             []entry
	bytesMax, valueMost int
}

func (m *model) take(key int) (entry, bool) {
	i := slices.IndexFunc(m.entries, func(e entry) bool { return e.key == key })
	if i < 0 {
		return entry{}, false
	}
	e := m.entries[i]
	m.entries = slices.Delete(m.entries, i, i+1)
	return e, true
}

func (m *model) get(key int) (int, bool) {
	e, ok := m.take(key)
	if ok {
		m.entries = append(m.entries, e)
	}
	return e.value, ok
}

func (m *model) bytes() (sum int) {
	for _, e := range m.entries {
		sum += e.bytes
	}
	return sum
}

func (m *model) put(e entry) {
	m.take(e.key)
	if e.bytes > m.valueMost {
		return
	}
	for m.entries = append(m.entries, e); m.bytes() > m.bytesMax; {
		m.entries = m.entries[1:]
	}
}

// TestCacheAgainstModel does the same at random to a cache and to the model.
func TestCacheAgainstModel(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	m := &model{bytesMax: 100, valueMost: 60}
	c := lru.New[int, int](100, 60)
	for step := range 20_000 {
		key, bytes := random.IntN(12), random.IntN(70)
		switch random.IntN(5) {
		case 0:
			got, ok := c.Get(key)
			if want, there := m.get(key); got != want || ok != there {
				t.Fatalf("step %d: get %d gives %d, %v; want %d, %v", step, key, got, ok, want, there)
			}
		case 1:
			got, ok := c.Take(key)
			if want, there := m.take(key); got != want.value || ok != there {
				t.Fatalf("step %d: take %d gives %d, %v; want %+v, %v", step, key, got, ok, want, there)
			}
		case 2:
			c.PutUnless(key, step, int64(bytes), func(old int) bool { return old%2 == 0 })
			if i := slices.IndexFunc(m.entries, func(e entry) bool { return e.key == key }); i < 0 || m.entries[i].value%2 != 0 {
				m.put(entry{key, step, bytes})
			}
		default:
			c.Put(key, step, int64(bytes))
			m.put(entry{key, step, bytes})
		}
		if c.Len() != len(m.entries) || c.Bytes() != int64(m.bytes()) {
			t.Fatalf("step %d: %d values of %d bytes, want %d of %d", step, c.Len(), c.Bytes(), len(m.entries), m.bytes())
		}
	}
}

// TestList empties a list from its oldest end.
func TestList(t *testing.T) {
	t.Parallel()
	var l lru.List[string, int]
	if _, _, ok := l.Oldest(); ok || l.Len() != 0 {
		t.Error("an empty list has an oldest value")
	}
	if _, ok := l.Remove("a"); ok {
		t.Error("an empty list has a value")
	}
	for i, key := range []string{"a", "b", "c", "a"} {
		l.Put(key, i, 10)
	}
	l.Peek("b")
	l.Get("c")
	var order []string
	for key, _, ok := l.Oldest(); ok; key, _, ok = l.Oldest() {
		order = append(order, key)
		l.Remove(key)
	}
	if want := []string{"b", "a", "c"}; !slices.Equal(order, want) || l.Bytes() != 0 || l.Len() != 0 {
		t.Errorf("emptied in the order %q, want %q; %d bytes are left", order, want, l.Bytes())
	}
}

// TestCacheIsShared uses one cache from several goroutines.
func TestCacheIsShared(t *testing.T) {
	t.Parallel()
	c := lru.New[int, int](1000, 1000)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 1000 {
				key := (i * (worker + 1)) % 50
				c.Put(key, key, 30)
				if value, ok := c.Get(key); ok && value != key {
					t.Errorf("key %d has value %d", key, value)
				}
				c.Take(key + 1)
			}
		})
	}
	group.Wait()
	if c.Bytes() > 1000 || c.Bytes() != int64(30*c.Len()) {
		t.Errorf("%d values of %d bytes", c.Len(), c.Bytes())
	}
}
