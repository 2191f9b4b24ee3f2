package merge

import (
	"bytes"
	"fmt"

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

// compareEntries returns the differences between three trees, in the order in which git finds them,
// and the runs of stored entries that are the same in all of them.
//
// That order is that of the names as they come first in any of the trees. Where a name is a file
// here and a folder there, the two are at different places, and the second is read ahead.
func compareEntries(trees [3][]byte) (different []triple, same [][]byte, err error) {
	var readers [3]entryReader
	for side, data := range trees {
		readers[side] = entryReader{rest: data}
		readers[side].load()
	}
	for {
		if n := commonEntries(&readers); n > 0 {
			same = append(same, readers[base].rest[:n:n])
			for side := range readers {
				readers[side].skip(n)
			}
		}
		var first []byte
		found := false
		for side := range readers {
			if r := &readers[side]; r.ok && (!found || bytes.Compare(r.it.Name, first) < 0) {
				first, found = r.it.Name, true
			}
		}
		if !found {
			break
		}
		t := triple{name: string(first)}
		for side := range readers {
			t.versions[side] = readers[side].take(t.name)
		}
		different = append(different, t)
	}
	for side := range readers {
		if err := readers[side].it.Err(); err != nil {
			return nil, nil, fmt.Errorf("read tree: %w", err)
		}
	}
	return different, same, nil
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

// commonEntries returns the length of the whole entries that all three trees continue with.
func commonEntries(readers *[3]entryReader) int {
	for side := range readers {
		if len(readers[side].ahead) > 0 {
			return 0
		}
	}
	return object.CommonEntries(readers[base].rest, readers[ours].rest, readers[theirs].rest)
}
