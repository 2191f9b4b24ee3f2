package odbtest

import (
	"fmt"
	"math/rand/v2"

	"packhorse/pack/object"
)

// Growing is a history of a few files, each in a folder of its own.
type Growing struct {
	// Tip is the newest commit.
	Tip object.ID

	world          *World
	random         *rand.Rand
	files          [][]byte
	blobs, folders []object.ID
	root           object.ID
	count          int
}

// NewGrowing returns a history without commits.
func NewGrowing(w *World, random *rand.Rand, fileCount int) *Growing {
	g := &Growing{
		world: w, random: random, files: make([][]byte, fileCount), blobs: make([]object.ID, fileCount),
		folders: make([]object.ID, fileCount),
	}
	for i := range g.files {
		g.files[i] = Text(random, 3000)
	}
	return g
}

// Grow commits versions of one file after the other, each in a transaction of its own.
func (g *Growing) Grow(versionCount int) {
	g.world.Helper()
	for range versionCount {
		d := g.world.Draft()
		i := g.count % len(g.files)
		g.files[i] = Edited(g.random, g.files[i])
		g.blobs[i] = d.Write(object.TypeBlob, g.files[i], g.blobs[i])
		g.folders[i] = d.Write(object.TypeTree, TreeOf(FileEntry("file.go", g.blobs[i])), g.folders[i])
		var entries []object.TreeEntry
		for j, folder := range g.folders {
			if !folder.IsZero() {
				entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: fmt.Sprintf("folder%d", j), ID: folder})
			}
		}
		g.root = d.Write(object.TypeTree, TreeOf(entries...), g.root)
		var parents []object.ID
		if !g.Tip.IsZero() {
			parents = append(parents, g.Tip)
		}
		g.Tip = d.Write(object.TypeCommit, CommitOf(g.root, 1_000_000+g.count, parents...), g.Tip)
		d.Commit()
		g.count++
	}
}

// Grow commits versions of six new files on top of a parent, which may be zero, and returns the
// newest commit.
func (w *World) Grow(random *rand.Rand, parent object.ID, versionCount int) object.ID {
	w.Helper()
	g := NewGrowing(w, random, 6)
	g.Tip = parent
	g.Grow(versionCount)
	return g.Tip
}
