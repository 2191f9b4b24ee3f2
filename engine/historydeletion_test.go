package engine_test

import (
	"errors"
	"slices"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// deleteAndBack deletes a repository, lets time pass, and brings it back: its refs and all of its
// states are as they were.
func (m *historyModel) deleteAndBack(r *modelRepo, now map[string]object.ID) bool {
	deleted, err := m.host.DeleteRepository(m.t.Context(), acme, r.name)
	must(m.t, err)
	for len(r.states) <= int(deleted.Sequence) {
		r.states = append(r.states, modelState{now, m.time()})
	}
	at := slices.Index(m.repos, r)
	m.repos = slices.Delete(m.repos, at, at+1)
	for range m.random.IntN(4) {
		m.now.Add(m.random.Int64N(int64(2 * time.Hour / time.Millisecond)))
		[]func(*modelRepo, map[string]object.ID) bool{m.maintain, m.restart, m.losePower, m.readAny}[m.random.IntN(4)](
			m.repos[m.random.IntN(len(m.repos))], nil)
	}
	if _, err := m.host.Repository(m.t.Context(), enginetest.Org, r.name); !errors.Is(err, engine.ErrNotFound) {
		m.t.Errorf("%s is deleted, and opening it is %v", r.name, err)
	}
	page, err := m.host.DeletedRepositories(m.t.Context(), enginetest.Org, engine.ListOptions{Limit: 10})
	must(m.t, err)
	if len(page.Items) != 1 || page.Items[0].Name != r.name {
		m.t.Errorf("%s is deleted, and %v are listed", r.name, page.Items)
	}
	_, err = m.host.Undelete(m.t.Context(), acme, engine.UndeleteRequest{Name: r.name})
	must(m.t, err)
	m.repos = slices.Insert(m.repos, at, r)
	m.reopen(r)
	return true
}
