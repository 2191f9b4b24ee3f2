// Package hot is the hot tier below pools: the rows of small objects in the key-value store, and
// copies of them in memory.
//
// A hot layer is a range of keys in each of a few tables. The package knows keys and bytes, and
// nothing of pools or views. Its bytes are those of docs/formats.md, "Hot objects". The map of the
// package, by file:
//
//	keys, value, row     tables; the stored forms of objects, graph rows and path filters
//	additions            the rows that say which objects a transaction has added to a layer
//	copies, copy, load   copies of layers: their budget, lookups, how they come up to date
//	rows                 the memory of a copy
//	idfilter             what lets lookups pass by the copies that lack an object
//
// # Copies
//
// A lookup in the store costs a round trip where the store is behind a network, and more than a
// lookup in memory everywhere. [Copies] holds whole layers. The rows of a layer never change and
// none is ever removed while the layer exists, so what a copy holds is right for ever. What it
// lacks was absent when the layer had the number of additions to which the copy was brought; of a
// frozen layer it is absent for good.
//
// Where reads are dear, a transaction that adds objects requires the number of additions and counts
// it up; see [Add]. So an absence that was found at one number still holds when a batch that
// requires this number becomes visible, whatever other processes do. Elsewhere writers ask the
// store.
package hot
