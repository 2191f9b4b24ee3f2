package engine_test

import (
	"maps"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/pack/object"
)

// crashInside cuts the power at a file operation of a write. Afterwards it has happened, in all of
// its repositories, or it has not; and it has if it was over before.
func (m *historyModel) crashInside(r *modelRepo, now map[string]object.ID) bool {
	disk := &powerCut{disk: m.fs, random: rand.New(rand.NewPCG(m.random.Uint64(), 5)), lucky: m.random.IntN(2) == 0}
	m.shut()
	m.open(disk.wrap())
	before := make([]int, len(m.repos))
	for i, other := range m.repos {
		before[i] = len(other.states)
	}
	was := maps.Clone(now)
	writes := []func(*modelRepo, map[string]object.ID) bool{
		m.push, m.commit, m.merge, m.restore, m.branch, m.tag, m.addNote, m.transact, m.transact, m.undo, m.pick, m.land,
	}
	disk.arm(1 + m.random.IntN(8))
	wrote := writes[m.random.IntN(len(writes))](r, now)
	over := disk.isOn()
	rest := disk.rest().(*vfs.MemFS)
	m.shut()
	m.fs = rest
	m.open(m.fs)
	head, err := r.Sequence(m.t.Context())
	must(m.t, err)
	happened := int(head) >= len(r.states)
	if wrote && over && !happened && !maps.Equal(was, now) {
		m.t.Errorf("%s: a write that was acknowledged is lost", r.name)
	}
	if !wrote || !happened {
		clear(now)
		maps.Copy(now, was)
	}
	if wrote && !over {
		m.did[map[bool]string{false: "crash before", true: "crash after"}[happened]]++
	}
	for i, other := range m.repos {
		if other == r {
			continue
		}
		if !happened { // nor did its part there
			other.states = other.states[:before[i]]
		}
		m.note(other, other.states[len(other.states)-1].refs)
	}
	return true
}
