package odb_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// forkModel is a family of pools, and the objects that each may read.
type forkModel struct {
	*world
	random *rand.Rand
	all    map[object.ID]odbtest.Content
	pools  []*modelPool
	clock  int
}

// modelPool is one of them.
type modelPool struct {
	id  odb.PoolID
	may map[object.ID]bool
	// branches and tags are the tips of refs.
	branches, tags []object.ID
}

// reach adds the objects that an object reaches to a set.
func (m *forkModel) reach(into map[object.ID]bool, id object.ID) {
	if into[id] {
		return
	}
	into[id] = true
	o := m.all[id]
	m.Must(object.Links(o.Type, o.Data, func(id object.ID, _ object.Type) error {
		m.reach(into, id)
		return nil
	}))
}

// write commits the objects that build writes to a pool.
func (m *forkModel) write(p *modelPool, build func(d *odbtest.Draft)) {
	m.Pool = p.id
	d := m.Draft()
	build(d)
	maps.Copy(m.all, d.Objects)
	for id := range d.Objects {
		p.may[id] = true
	}
	d.Commit()
}

// commitTo puts a commit onto a branch, a merge or a root at times, with a text that another pool
// may have written too.
func (m *forkModel) commitTo(p *modelPool) {
	m.clock++
	m.write(p, func(d *odbtest.Draft) {
		text := bytes.Repeat(fmt.Appendf(nil, "text %d\n", m.random.IntN(40)), 20)
		blob := d.Write(object.TypeBlob, text, object.ZeroID)
		count := d.Write(object.TypeBlob, fmt.Appendf(nil, "%d\n", m.clock), object.ZeroID)
		tree := d.Write(object.TypeTree,
			odbtest.TreeOf(odbtest.FileEntry("a", blob), odbtest.FileEntry("b", count)), object.ZeroID)
		var parents []object.ID
		at := m.random.IntN(len(p.branches) + 1)
		if at < len(p.branches) {
			parents = append(parents, p.branches[at])
			if m.random.IntN(4) == 0 {
				parents = append(parents, p.branches[m.random.IntN(len(p.branches))])
			}
		}
		commit := d.Write(object.TypeCommit, odbtest.CommitOf(tree, m.clock-m.random.IntN(5), slices.Compact(parents)...),
			object.ZeroID)
		if at == len(p.branches) {
			p.branches = append(p.branches, commit)
		} else {
			p.branches[at] = commit
		}
		if m.random.IntN(5) == 0 {
			tag := fmt.Appendf(nil, "object %s\ntype commit\ntag t\ntagger A <a@b> %d +0000\n\ntag\n", commit, m.clock)
			p.tags = append(p.tags, d.Write(object.TypeTag, tag, object.ZeroID))
		}
	})
}

// goBack moves a branch back, as a force-push does, or deletes a branch or a tag.
func (m *forkModel) goBack(p *modelPool) {
	if len(p.branches) == 0 {
		return
	}
	at := m.random.IntN(len(p.branches))
	switch _, parents, _, err := object.CommitLinks(m.all[p.branches[at]].Data); {
	case err != nil:
		m.Fatal(err)
	case m.random.IntN(3) == 0 && len(p.tags) > 0:
		p.tags = p.tags[1:]
	case m.random.IntN(2) == 0 && len(parents) > 0:
		p.branches[at] = parents[0]
	default:
		p.branches = slices.Delete(p.branches, at, at+1)
	}
}

// fork adds a fork of a pool.
func (m *forkModel) fork(p *modelPool) *modelPool {
	m.Pool = p.id
	next := &modelPool{branches: slices.Clone(p.branches), tags: slices.Clone(p.tags), may: make(map[object.ID]bool)}
	tips := append(slices.Clone(p.branches), p.tags...)
	for _, tip := range tips {
		m.reach(next.may, tip)
	}
	next.id = m.forkOf(tips...)
	m.pools = append(m.pools, next)
	return next
}

// check asks a pool for all objects of all pools, and for one that no pool has.
func (m *forkModel) check(p *modelPool) {
	m.Helper()
	ctx := m.Context()
	m.Pool = p.id
	m.With(func(v *odb.View) {
		ids := slices.SortedFunc(maps.Keys(m.all), object.ID.Compare)
		m.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for i, id := range append(ids, object.ID{1}) {
			if has, err := v.Has(ctx, id); err != nil || has != p.may[id] {
				m.Fatalf("Has(%s), a %s, is %v, %v", id, m.all[id].Type, has, err)
			}
			if i%5 > 0 {
				continue
			}
			if found, err := v.Resolve(ctx, id.String()[:16]); err != nil || slices.Contains(found, id) != p.may[id] {
				m.Fatalf("Resolve(%s) is %v, %v", id, found, err)
			}
			if _, data, err := v.Read(ctx, id); (err == nil) != p.may[id] || err == nil && !bytes.Equal(data, m.all[id].Data) {
				m.Fatalf("Read(%s): %v", id, err)
			}
		}
		linked := v.Linked()
		for id := range p.may {
			if _, data, err := linked.Read(ctx, id); err != nil || !bytes.Equal(data, m.all[id].Data) {
				m.Fatalf("read %s as what is named: %v", id, err)
			}
		}
	})
}

// TestForksModel runs random operations on a family of pools: commits, force-pushes, deletions,
// forks and forks of forks, maintenance and restarts. At every time a fork has its own objects and
// those that its tips reach, and no others.
func TestForksModel(t *testing.T) {
	t.Parallel()
	var walks, grown uint64
	seeds, steps := uint64(6), 160
	if testing.Short() {
		seeds, steps = 1, 80
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, odb.Options{AuxiliaryCount: 30, Limits: odb.Limits{HotCount: 40}})
			m := &forkModel{
				world: w, random: rand.New(rand.NewPCG(seed, 7)), all: make(map[object.ID]odbtest.Content), clock: 1000,
			}
			base := &modelPool{id: w.Pool, may: make(map[object.ID]bool)}
			m.pools = []*modelPool{base}
			count := func() {
				stats := m.Store.Stats()
				walks, grown = walks+stats.VisibilityWalkCount, grown+stats.VisibilityGrownCount
			}
			for range steps {
				p := base
				if m.random.IntN(3) == 0 {
					p = m.pools[m.random.IntN(len(m.pools))]
				}
				switch n := m.random.IntN(100); {
				case n < 50:
					m.commitTo(p)
				case n < 56:
					m.goBack(p)
				case n < 86:
					if next := m.fork(p); m.random.IntN(2) == 0 {
						m.check(next)
					}
				case n < 90:
					m.check(p)
				case n < 93:
					m.Pool = p.id
					m.Compact(repack.CompactOptions{All: m.random.IntN(2) == 0})
				case n < 95:
					_, err := m.Store.Sweep(t.Context(), 0)
					m.Must(err)
				case n < 96:
					count()
					if m.random.IntN(2) == 0 {
						m.Crash(m.random)
					} else {
						m.Reopen()
					}
				case p != base && len(m.pools) > 2:
					b := kv.NewBatch()
					m.Store.DropPool(b, p.id)
					m.Apply(b)
					m.pools = slices.DeleteFunc(m.pools, func(other *modelPool) bool { return other == p })
				}
			}
			for _, p := range m.pools {
				m.check(p)
				report, err := m.Store.Fsck(t.Context(), p.id, odb.FsckOptions{})
				if err != nil || report.ProblemCount > 0 {
					t.Errorf("fsck: %+v, %v", report, err)
				}
			}
			count()
		})
	}
	if walks == 0 || grown < walks/4 {
		t.Errorf("of %d sets %d have grown from others", walks, grown)
	}
	t.Logf("of %d sets %d have grown from others", walks, grown)
}
