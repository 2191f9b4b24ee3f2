package merge

import (
	"context"
	"fmt"

	"packhorse/engine/diff"
	"packhorse/pack/object"
)

// comparer computes the similarity of files.
type comparer struct {
	objects *objects
	prints  map[object.ID]*diff.Fingerprint
	sizes   map[object.ID]int64
	held    int64 // memory of prints, in bytes
}

// heldMax bounds the contents whose fingerprints are kept, which are at most as large; beyond it
// all are forgotten and made again.
const heldMax = 64 << 20

func newComparer(o *objects) *comparer {
	return &comparer{objects: o, prints: make(map[object.ID]*diff.Fingerprint), sizes: make(map[object.ID]int64)}
}

// score returns the similarity of two files, or 0 if their sizes show that it is below least.
func (c *comparer) score(ctx context.Context, a, b *file, least int) (int, error) {
	if !regular(a, b) {
		return 0, nil
	}
	sizeA, err := c.size(ctx, a.ID)
	if err != nil {
		return 0, err
	}
	sizeB, err := c.size(ctx, b.ID)
	if err != nil {
		return 0, err
	}
	if !diff.MayScore(sizeA, sizeB, least) {
		return 0, nil
	}
	printA, err := c.print(ctx, a.ID, sizeA)
	if err != nil {
		return 0, err
	}
	printB, err := c.print(ctx, b.ID, sizeB)
	if err != nil {
		return 0, err
	}
	return diff.Score(printA, printB), nil
}

func (c *comparer) size(ctx context.Context, id object.ID) (int64, error) {
	if size, ok := c.sizes[id]; ok {
		return size, nil
	}
	size, err := c.objects.blobSize(ctx, id)
	c.sizes[id] = size
	return size, err
}

func (c *comparer) print(ctx context.Context, id object.ID, size int64) (*diff.Fingerprint, error) {
	if found, ok := c.prints[id]; ok {
		return found, nil
	}
	found, err := c.objects.fingerprint(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("compare files: %w", err)
	}
	if c.held += size; c.held > heldMax {
		clear(c.prints)
		c.held = size
	}
	c.prints[id] = found
	return found, nil
}
