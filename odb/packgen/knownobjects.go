package packgen

import (
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// knownObjects is a set of objects of an inventory that holds all that they reach.
type knownObjects struct {
	packed   objectSet
	unpacked []object.ID // sorted; some may lie in a segment today
}

func newKnownObjects(inv *inventory, known odb.Reached) *knownObjects {
	set := &knownObjects{packed: inv.newSet(), unpacked: known.Unpacked}
	copy(set.packed.words, known.Words)
	return set
}

// has reports whether a handle, which is that of id, is in the set. Nothing is in a nil one.
func (k *knownObjects) has(h handle, id object.ID) bool {
	if k == nil {
		return false
	}
	if k.packed.has(h) {
		return true
	}
	_, found := slices.BinarySearchFunc(k.unpacked, id, object.ID.Compare)
	return found
}
