// Package demo makes the repository that packhorse dev --demo begins with: a small project with a
// history that is worth looking at.
//
// Start at [Make], which returns a pack and the refs that lead into it. The content is the same
// each time, and so are all IDs: names, times and texts are constants. story.go tells the history,
// builder.go makes objects of it. The package knows git's objects and nothing of servers.
package demo

import (
	"bytes"
	"fmt"

	"packhorse/pack"
	"packhorse/pack/object"
)

// Ref is a ref of the repository.
type Ref struct {
	Name string
	ID   object.ID
}

// Repository is the content of the repository.
type Repository struct {
	// Pack has every object, none as a delta.
	Pack []byte
	// Refs are in the order in which they came to be.
	Refs []Ref
}

// Make returns the repository. The default branch is main.
func Make() (*Repository, error) {
	b := newBuilder()
	tell(b)
	if b.err != nil {
		return nil, fmt.Errorf("make the demo repository: %w", b.err)
	}
	var packed bytes.Buffer
	w := pack.NewWriter(&packed, uint32(len(b.objects)))
	for _, o := range b.objects {
		deflated := pack.Deflate(nil, o.data, pack.LevelFast)
		header := pack.EntryHeader{Kind: pack.EntryKind(o.kind), Size: int64(len(o.data))}
		if _, err := w.WriteDeflatedFrom(header, bytes.NewReader(deflated), int64(len(deflated))); err != nil {
			return nil, fmt.Errorf("pack the demo repository: %w", err)
		}
	}
	if _, err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the demo repository: %w", err)
	}
	return &Repository{Pack: packed.Bytes(), Refs: b.refs()}, nil
}
