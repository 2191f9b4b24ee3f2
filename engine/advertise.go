package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"packhorse/pack/object"
	"packhorse/refs"
)

// Advertisement is the refs of a namespace at one instant, as git clients see them. The caller
// closes it.
type Advertisement struct {
	names    *refs.Snapshot
	space    refs.Namespace
	headName string
	headID   object.ID
}

// Advertise returns the refs of a namespace; everything in it is durable.
func (r *Repository) Advertise(ctx context.Context, ns refs.Namespace) (*Advertisement, error) {
	names, err := r.allNames(ctx, r.defaultRef(ns))
	if err != nil {
		return nil, err
	}
	branch, ref, err := r.head(ctx, names, ns)
	if err != nil && !errors.Is(err, refs.ErrNotFound) {
		return nil, errors.Join(fmt.Errorf("look up the default branch: %w", err), names.Close())
	}
	return &Advertisement{names: names, space: ns, headName: branchPrefix + branch, headID: ref.ID}, nil
}

// Close releases the snapshot of the advertisement.
func (a *Advertisement) Close() error { return a.names.Close() }

// Version returns the state of the repository in which the refs were read. Everything in the
// advertisement except [Advertisement.HeadName] follows from it.
func (a *Advertisement) Version() refs.Version { return a.names.Version() }

// Count returns the number of refs of the repository, those of other namespaces included.
func (a *Advertisement) Count() int { return a.names.Count() }

// HeadName returns the ref that HEAD is a symbolic ref to.
func (a *Advertisement) HeadName() string { return a.headName }

// HeadID returns what HEAD leads to, the zero id while that branch is unborn.
func (a *Advertisement) HeadID() object.ID { return a.headID }

// All walks the refs whose names, as clients of the namespace see them, begin with prefix, in byte
// order. The names of the refs are those that clients see.
func (a *Advertisement) All(ctx context.Context, prefix string) iter.Seq2[refs.Ref, error] {
	return func(yield func(refs.Ref, error) bool) {
		for ref, err := range a.names.In(ctx, a.space, prefix) {
			if err == nil {
				ref.Name = a.space.Short(ref.Name)
			}
			if !yield(ref, err) {
				return
			}
		}
	}
}

// Matching walks the refs whose names begin with any of the prefixes, or all refs without prefixes,
// in byte order.
func (a *Advertisement) Matching(ctx context.Context, prefixes []string) iter.Seq2[refs.Ref, error] {
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	distinct := slices.Sorted(slices.Values(prefixes))
	kept := distinct[:0]
	for _, prefix := range distinct {
		if len(kept) == 0 || !strings.HasPrefix(prefix, kept[len(kept)-1]) {
			kept = append(kept, prefix)
		}
	}
	return func(yield func(refs.Ref, error) bool) {
		for _, prefix := range kept {
			for ref, err := range a.All(ctx, prefix) {
				if !yield(ref, err) {
					return
				}
			}
		}
	}
}
