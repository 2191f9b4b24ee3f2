package auth

// generations is a bounded map. A full generation becomes the previous one, and the one before that
// is dropped; entries of the previous generation that are used move to the current one. Its user
// guards it.
type generations[K comparable, V any] struct {
	max               int // entries of a generation
	current, previous map[K]V
}

func (g *generations[K, V]) get(key K) (V, bool) {
	if value, ok := g.current[key]; ok {
		return value, true
	}
	value, ok := g.previous[key]
	if ok {
		delete(g.previous, key)
		g.put(key, value)
	}
	return value, ok
}

func (g *generations[K, V]) put(key K, value V) {
	if g.current == nil || len(g.current) >= g.max {
		g.previous, g.current = g.current, make(map[K]V)
	}
	g.current[key] = value
}

func (g *generations[K, V]) remove(key K) {
	delete(g.current, key)
	delete(g.previous, key)
}
