package refs

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"packhorse/pack/invariants"
)

// set is all refs of a repository as of one version, decoded, in the order of their names. They are
// immutable; a changed set copies only the chunks that differ, so that it costs little time and
// memory.
type set struct {
	version Version
	chunks  []chunk // none is empty
	bytes   int64   // of memory, about
	// stale is set once the repository has gone on: a hint, which may come late or never.
	stale atomic.Bool

	ordered [Ephemeral + 1]branchOrder // by namespace
}

// branchOrder is the branches of a namespace in the order of their creation, once they were asked
// for.
type branchOrder struct {
	once sync.Once
	refs []*Ref
}

// branches returns up to limit branches of a namespace whose place in the order of creation is not
// below first, in that order.
func (s *set) branches(ns Namespace, first Creation, limit int) []Ref {
	order := &s.ordered[ns]
	order.once.Do(func() {
		prefix := ns.BranchPrefix()
		at, index := s.seek(prefix)
		for ; at < len(s.chunks); at, index = at+1, 0 {
			for i := index; i < len(s.chunks[at].refs); i++ {
				ref := &s.chunks[at].refs[i]
				if !strings.HasPrefix(ref.Name, prefix) {
					break
				}
				order.refs = append(order.refs, ref)
			}
		}
		slices.SortFunc(order.refs, func(a, b *Ref) int { return a.Created.compare(b.Created) })
	})
	from, _ := slices.BinarySearchFunc(order.refs, first, func(ref *Ref, place Creation) int {
		return ref.Created.compare(place)
	})
	rest := order.refs[from:]
	branches := make([]Ref, min(max(limit, 0), len(rest)))
	for i := range branches {
		branches[i] = *rest[i]
	}
	return branches
}

// setKey is the key of a set in the cache: the present refs of a repository, with sequence 0, or
// those of a sequence of the past.
type setKey struct {
	repo     RepoID
	sequence uint64
}

// chunk is a run of refs.
type chunk struct {
	refs  []Ref
	bytes int64
}

// chunkRefs is the size of the chunks of a new set. A chunk that grew to twice as much is split.
const chunkRefs = 256

// refBytes is the memory of a ref, with an allowance for its share of the rest.
const refBytes = int64(unsafe.Sizeof(Ref{})) + 16

// setBytes returns the approximate memory of a set.
func setBytes(count, nameBytes uint64) int64 { return int64(count)*refBytes + int64(nameBytes) }

// newSet builds a set of rows in order.
func newSet(version Version, rows iter.Seq2[Ref, error]) (*set, error) {
	s := &set{version: version}
	var refs []Ref
	for ref, err := range rows {
		if err != nil {
			return nil, err
		}
		if len(refs) == chunkRefs {
			s.add(refs)
			refs = nil
		}
		refs = append(refs, ref)
	}
	s.add(refs)
	return s, nil
}

// add puts refs behind the others.
func (s *set) add(refs []Ref) {
	for len(refs) > 0 {
		count := len(refs)
		if count > 2*chunkRefs {
			count = chunkRefs
		}
		added := chunk{refs: refs[:count:count]}
		for i := range added.refs {
			added.bytes += refBytes + int64(len(added.refs[i].Name))
		}
		s.addChunk(added)
		refs = refs[count:]
	}
}

func (s *set) addChunk(c chunk) {
	if invariants.Enabled {
		s.check(&c)
	}
	s.chunks = append(s.chunks, c)
	s.bytes += c.bytes
}

// check checks that a chunk may follow: its names are in order behind all others, as seek relies
// on.
func (s *set) check(c *chunk) {
	last := ""
	if n := len(s.chunks); n > 0 {
		refs := s.chunks[n-1].refs
		last = refs[len(refs)-1].Name
	}
	invariants.Check(len(c.refs) > 0, "refs: an empty chunk behind %q", last)
	for i := range c.refs {
		invariants.Check(last < c.refs[i].Name, "refs: %q stands behind %q", c.refs[i].Name, last)
		last = c.refs[i].Name
	}
}

// seek returns the place of the first ref whose name is not below name: its chunk and its index in
// that, or the count of chunks.
func (s *set) seek(name string) (at, index int) {
	at, _ = slices.BinarySearchFunc(s.chunks, name, func(c chunk, name string) int {
		return strings.Compare(c.refs[len(c.refs)-1].Name, name)
	})
	if at < len(s.chunks) {
		index, _ = slices.BinarySearchFunc(s.chunks[at].refs, name, compareName)
	}
	return at, index
}

func compareName(ref Ref, name string) int { return strings.Compare(ref.Name, name) }

// find returns the ref of a name.
func (s *set) find(name string) (Ref, bool) {
	at, index := s.seek(name)
	if at == len(s.chunks) || s.chunks[at].refs[index].Name != name {
		return Ref{}, false
	}
	return s.chunks[at].refs[index], true
}

// between walks the refs with start <= name < end; an empty end reaches to the last one.
func (s *set) between(start, end string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		at, index := s.seek(start)
		for ; at < len(s.chunks); at, index = at+1, 0 {
			for _, ref := range s.chunks[at].refs[index:] {
				if end != "" && ref.Name >= end || !yield(ref, nil) {
					return
				}
			}
		}
	}
}

// with returns the set with changes, as of another version. It shares the chunks that nothing
// falls into.
func (s *set) with(version Version, changes overlay) *set {
	next := &set{version: version, chunks: make([]chunk, 0, len(s.chunks)+1)}
	names := slices.Sorted(maps.Keys(changes))
	for i, c := range s.chunks {
		// A name falls into the last chunk that does not begin behind it, or into the first one.
		count := len(names)
		if i < len(s.chunks)-1 {
			count, _ = slices.BinarySearch(names, s.chunks[i+1].refs[0].Name)
		}
		if count == 0 {
			next.addChunk(c)
			continue
		}
		next.add(replaced(c.refs, names[:count], changes))
		names = names[count:]
	}
	next.add(replaced(nil, names, changes))
	return next
}

// replaced returns refs with the changes of names.
func replaced(refs []Ref, names []string, changes overlay) []Ref {
	merged := make([]Ref, 0, len(refs)+len(names))
	for _, name := range names {
		at, found := slices.BinarySearchFunc(refs, name, compareName)
		merged = append(merged, refs[:at]...)
		if ref := changes[name]; ref != nil {
			merged = append(merged, *ref)
		}
		if found {
			at++
		}
		refs = refs[at:]
	}
	return append(merged, refs...)
}
