package engine_test

import "packhorse/pack/object"

// holdRemoval holds a repository that shares no objects to what the states of its window reach,
// just after a maintenance: their commits and files are there, and those of no other state.
func (m *historyModel) holdRemoval(r *modelRepo) {
	m.t.Helper()
	if r.shared {
		return
	}
	needed := map[object.ID]bool{}
	for s := max(r.floor, 1); s < len(r.states); s++ {
		for _, id := range r.states[s].refs {
			m.need(needed, id)
		}
	}
	view, err := r.Objects(m.t.Context())
	must(m.t, err)
	for commit := range r.has {
		for _, id := range m.objectsOf(commit) {
			if there, err := view.Has(m.t.Context(), id); err != nil || there != needed[id] {
				m.t.Errorf("%s, from %d of %d on, has %s of commit %s: %t, %v, needed: %t", r.name, r.floor, len(r.states)-1, id,
					commit, there, err, needed[id])
			}
		}
		if !needed[commit] {
			m.did["removed"]++
			delete(r.has, commit)
		}
	}
	must(m.t, view.Close())
}

// need marks a commit with its files, and its ancestors.
func (m *historyModel) need(needed map[object.ID]bool, id object.ID) {
	for ids := []object.ID{id}; len(ids) > 0; {
		id, ids = ids[0], ids[1:]
		if needed[id] {
			continue
		}
		for _, part := range m.objectsOf(id) {
			needed[part] = true
		}
		ids = append(ids, m.parents[id]...)
	}
}

// objectsOf is a commit and its files.
func (m *historyModel) objectsOf(commit object.ID) (ids []object.ID) {
	ids = append(ids, commit)
	for _, file := range m.files[commit] {
		ids = append(ids, file.ID)
	}
	return ids
}
