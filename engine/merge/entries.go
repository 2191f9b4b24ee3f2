package merge

import (
	"bytes"
	"fmt"
	"iter"

	"packhorse/pack/object"
)

// triple is a name that is not the same in three trees, zero in those that do not have it.
type triple struct {
	name     string
	versions [3]Version
}

// files and folders are masks of the trees that have the name as such.
func (t *triple) masks() (files, folders uint8) {
	for side, v := range t.versions {
		switch {
		case v.Mode == 0:
		case v.Mode.IsTree():
			folders |= 1 << side
		default:
			files |= 1 << side
		}
	}
	return files, folders
}

// agreeing is the mask of the trees that have the same under the name: 0, two of them, or all.
func (t *triple) agreeing() uint8 {
	agree := func(a, b int) bool { return t.versions[a].Mode != 0 && t.versions[a] == t.versions[b] }
	switch {
	case agree(base, ours) && agree(base, theirs):
		return allBits
	case agree(base, ours):
		return baseBit | oursBit
	case agree(base, theirs):
		return baseBit | theirsBit
	case agree(ours, theirs):
		return oursBit | theirsBit
	default:
		return 0
	}
}

// difference is a name that is not the same in three trees, or a run of names that only we changed.
type difference struct {
	triple
	ours *oursRun // nil for a name
}

// oursRun is a run of entries that are the same in base and theirs; ours has the same modes and
// names, and perhaps other objects.
type oursRun struct {
	base, ours []byte // entries as they are stored
	folders    bool   // we changed a folder
	index      int    // of ours among the runs of the folder
}

// names returns the names of the run, also those that we did not change.
func (r *oursRun) names() iter.Seq[*triple] {
	return func(yield func(*triple) bool) {
		was, is := object.IterTree(r.base), object.IterTree(r.ours)
		for was.Next() && is.Next() {
			v := Version{was.Mode.Canonical(), was.ID}
			t := &triple{name: string(was.Name), versions: [3]Version{v, {is.Mode.Canonical(), is.ID}, v}}
			if !yield(t) {
				return
			}
		}
	}
}

// compareEntries returns the differences between three trees, in the order in which git finds them,
// and the runs of stored entries that stay: those that are the same in all of them, and those of
// ours that only we changed.
//
// That order is that of the names as they come first in any of the trees. Where a name is a file
// here and a folder there, the two are at different places, and the second is read ahead.
func compareEntries(trees [3][]byte) (different []difference, runs [][]byte, err error) {
	var c comparison
	for side, data := range trees {
		c.readers[side] = entryReader{rest: data}
		c.readers[side].load()
	}
	c.alike = [3]int{ours: notCompared, theirs: notCompared}
	for {
		if n := c.common(); n > 0 {
			runs = append(runs, c.readers[base].rest[:n:n])
			c.skip(n)
		}
		if run := c.oursRun(); run != nil {
			run.index = len(runs)
			runs = append(runs, run.ours)
			different = append(different, difference{ours: run})
			c.skip(len(run.ours))
			continue
		}
		t, found := c.next()
		if !found {
			break
		}
		different = append(different, difference{triple: t})
	}
	for side := range c.readers {
		if err := c.readers[side].it.Err(); err != nil {
			return nil, nil, fmt.Errorf("read tree: %w", err)
		}
	}
	return different, runs, nil
}

// comparison reads three trees side by side.
type comparison struct {
	readers [3]entryReader
	// alike is for each side the number of bytes with which it and the base go on alike, or
	// notCompared. Each byte is compared once: a tree may have a million entries.
	alike [3]int
}

const notCompared = -1

// alikeFor returns the bytes with which base and a side go on alike; 0 where names have been read
// ahead.
func (c *comparison) alikeFor(side int) int {
	if len(c.readers[base].ahead) > 0 || len(c.readers[side].ahead) > 0 {
		return 0
	}
	if c.alike[side] == notCompared {
		c.alike[side] = object.CommonPrefix(c.readers[base].rest, c.readers[side].rest)
	}
	return c.alike[side]
}

// common returns the length of the whole entries that all three trees go on with.
func (c *comparison) common() int {
	n := min(c.alikeFor(ours), c.alikeFor(theirs))
	return object.WholeEntries(c.readers[base].rest[:n])
}

// oursRun returns the run of entries that is next, nil if it is empty. Its entries have the same
// modes and names in all three trees.
func (c *comparison) oursRun() *oursRun {
	alike := c.alikeFor(theirs)
	if len(c.readers[ours].ahead) > 0 {
		return nil
	}
	was, is := c.readers[base].rest, c.readers[ours].rest
	end, folders := 0, false
	for {
		isTree, known := usualMode(was[end:])
		name := bytes.IndexByte(was[end:], 0)
		id := end + name + 1
		next := id + object.IDSize
		if !known || name < 0 || next > min(alike, len(is)) || !bytes.Equal(was[end:id], is[end:id]) {
			break
		}
		folders = folders || isTree && !bytes.Equal(was[id:next], is[id:next])
		end = next
	}
	if end == 0 {
		return nil
	}
	return &oursRun{base: was[:end:end], ours: is[:end:end], folders: folders}
}

// usualMode reports whether an entry begins with one of the modes that git writes, and whether that
// is a folder's.
func usualMode(entry []byte) (isTree, ok bool) {
	const folder, length = "40000 ", len("100644 ")
	if len(entry) < length {
		return false, false
	}
	switch string(entry[:length]) {
	case "100644 ", "100755 ", "120000 ", "160000 ":
		return false, true
	}
	return true, string(entry[:len(folder)]) == folder
}

// next takes the name that comes first in any of the trees.
func (c *comparison) next() (t triple, found bool) {
	var first []byte
	var sizes [3]int
	for side := range c.readers {
		r := &c.readers[side]
		if r.ok && (!found || bytes.Compare(r.it.Name, first) < 0) {
			first, found = r.it.Name, true
		}
		sizes[side] = len(r.rest)
	}
	if !found {
		return t, false
	}
	t.name = string(first)
	for side := range c.readers {
		t.versions[side] = c.readers[side].take(t.name)
		sizes[side] -= len(c.readers[side].rest)
	}
	c.passed(sizes)
	return t, true
}

// skip skips n bytes of whole entries in each tree.
func (c *comparison) skip(n int) {
	for side := range c.readers {
		c.readers[side].skip(n)
	}
	c.passed([3]int{n, n, n})
}

// passed notes that the readers have gone on by as many bytes.
func (c *comparison) passed(sizes [3]int) {
	for side := ours; side <= theirs; side++ {
		if sizes[side] == sizes[base] && sizes[side] <= c.alike[side] {
			c.alike[side] -= sizes[side]
		} else {
			c.alike[side] = notCompared
		}
	}
}

// entryReader reads a tree.
type entryReader struct {
	rest []byte // from the current entry on
	it   object.TreeIter
	ok   bool
	// ahead are names behind the current entry that have been taken.
	ahead map[string]bool
}

// load reads the current entry, or the next that was not taken yet.
func (r *entryReader) load() {
	for {
		r.it = object.IterTree(r.rest)
		if r.ok = r.it.Next(); !r.ok || !r.ahead[string(r.it.Name)] {
			return
		}
		r.rest = r.it.Rest()
	}
}

// skip skips n bytes of whole entries.
func (r *entryReader) skip(n int) {
	r.rest = r.rest[n:]
	r.load()
}

// take returns the entry of a name that is not behind the current one.
func (r *entryReader) take(name string) Version {
	if !r.ok {
		return Version{}
	}
	if string(r.it.Name) == name {
		v := Version{r.it.Mode.Canonical(), r.it.ID}
		r.rest = r.it.Rest()
		r.load()
		return v
	}
	for it := r.it; mayFollow(it.Name, name); {
		if !it.Next() {
			break
		}
		if string(it.Name) == name {
			if r.ahead == nil {
				r.ahead = make(map[string]bool)
			}
			r.ahead[name] = true
			return Version{it.Mode.Canonical(), it.ID}
		}
	}
	return Version{}
}

// mayFollow reports whether an entry called name may follow current: as a folder it is sorted as if
// a slash followed.
func mayFollow(current []byte, name string) bool {
	return len(current) > len(name) && string(current[:len(name)]) == name && current[len(name)] < '/'
}
