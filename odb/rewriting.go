package odb

import (
	"slices"
	"sync"

	"packhorse/odb/segment"
)

// rewriting holds the layers that maintenance may be replacing. A fork does not merge them: the
// rewrite would be in vain.
type rewriting struct {
	mu    sync.Mutex // guards marks and what they hold
	marks map[PoolID][]*rewriteMark
}

// rewriteMark is a rewrite that goes on.
type rewriteMark struct {
	of   *rewriting
	pool PoolID
	// frozen are the layers that it may replace. nil stands for all: it has not chosen yet.
	frozen map[segment.LayerID]struct{}
}

// begin marks all layers of a pool.
func (r *rewriting) begin(pool PoolID) *rewriteMark {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.marks == nil {
		r.marks = make(map[PoolID][]*rewriteMark)
	}
	mark := &rewriteMark{of: r, pool: pool}
	r.marks[pool] = append(r.marks[pool], mark)
	return mark
}

// narrow leaves the frozen layers of a manifest marked. The last hot layer takes writes.
func (mark *rewriteMark) narrow(m *manifest) {
	open, _ := m.hot()
	frozen := make(map[segment.LayerID]struct{}, len(m.layers))
	for _, l := range m.layers {
		if l.id != open {
			frozen[l.id] = struct{}{}
		}
	}
	mark.of.mu.Lock()
	defer mark.of.mu.Unlock()
	mark.frozen = frozen
}

func (mark *rewriteMark) end() {
	r := mark.of
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.marks[mark.pool], func(m *rewriteMark) bool { return m == mark })
	if r.marks[mark.pool] = rest; len(rest) == 0 {
		delete(r.marks, mark.pool)
	}
}

// newer returns those of the places of layers in a pool's manifest that come after the last marked
// one.
func (r *rewriting) newer(pool PoolID, m *manifest, places []int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, mark := range r.marks[pool] {
		if mark.frozen == nil {
			return nil
		}
		for i, place := range slices.Backward(places) {
			if _, marked := mark.frozen[m.layers[place].id]; marked {
				places = places[i+1:]
				break
			}
		}
	}
	return places
}
