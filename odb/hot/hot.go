// Package hot is the hot tier below pools: the rows of small objects in the key-value store.
//
// A hot layer is a range of keys in each of a few tables. It knows keys and bytes, and nothing of
// pools or views: start at [Value] for the stored form of an object, at [ObjectKey] for the keys.
// The bytes are those of docs/formats.md, "Hot objects".
package hot
