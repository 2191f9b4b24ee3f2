// Package upstream synchronizes a repository with one on another host: branches and tags, in both
// directions.
//
// Start at [Sync.Run], which is one sync, and at [Worker], which runs those that are due. origin.go
// identifies the far side, state.go stores the sync state, compare.go decides on the action for
// each ref, transfer.go does it. Package remote speaks to the far side.
//
// Nothing is forced on either side. The values that both sides last agreed on are stored, so that a
// ref that one side lacks is known to be new or deleted.
package upstream

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"packhorse/engine/upstream/remote"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Update is a change of one of our refs, by its stored name. The zero id is no value.
type Update struct {
	Name     string
	Old, New object.ID
}

// Pull is the argument of [Repository.Pull].
type Pull struct {
	Updates []Update
	// Pack holds the missing objects; nil when none is missing.
	Pack io.Reader
	// Stage adds to the batch that moves the refs; moved are those of Updates that do. It may be
	// called again, with another batch.
	Stage func(b *kv.Batch, moved []Update)
}

// Repository is a repository of ours, as a sync sees it; package engine implements it. Its answers
// are durable.
type Repository interface {
	// ID names the repository in the rows of this package.
	ID() refs.RepoID
	// Refs returns all refs that [Covers] accepts.
	Refs(ctx context.Context) ([]refs.Ref, error)
	// Objects opens the objects for reading; the caller closes the view.
	Objects(ctx context.Context) (*odb.View, error)
	// Pull stores a pack, after every check that a push has to pass, and moves branches forward
	// only. It returns an error for each update, nil for one that succeeded.
	Pull(ctx context.Context, p *Pull) ([]error, error)
	// Apply commits a batch of rows, if the repository is still to be synced.
	Apply(ctx context.Context, b *kv.Batch) error
}

// Sync is one sync of a repository. It is used once.
type Sync struct {
	Repo Repository
	Keys kv.Reader
	Far  *remote.Remote
	// Head returns the default branch here, by its full name, once the refs of both sides are
	// known: it is not deleted, and is pulled with the first ones. head is the target of the
	// symbolic ref HEAD there, "" when unknown or unborn.
	Head func(head string, far, local func(ref string) bool) string
	// ReadOnly sends nothing.
	ReadOnly bool

	view  *odb.View
	known memory

	advertised *remote.Advertisement
	local, far map[string]object.ID
	tips       []object.ID         // of ours, tags peeled
	steps      map[action][]string // names, in order
	head       string              // what Head returned
	problems   []Problem
	moved      bool // one of our refs moved while we were looking
}

// Problem is why a ref is not the same on both sides.
type Problem struct{ Ref, Why string }

// Report is the result of a completed sync.
type Report struct {
	// Problems are the refs that are not the same on both sides, or empty.
	Problems []Problem
	// Moved says that a ref moved here during the sync, so that another sync is due.
	Moved bool
}

// Run syncs the repository: first it fetches the new commits of the far side, then it pushes ours.
// An error means that it was not completed. Its effects until then stay, and the next sync
// continues from there.
func (s *Sync) Run(ctx context.Context) (_ *Report, err error) {
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	defer s.view.Close()
	if err := s.pull(ctx); err != nil {
		return nil, fmt.Errorf("pull from upstream: %w", err)
	}
	if err := s.push(ctx); err != nil {
		return nil, fmt.Errorf("push to upstream: %w", err)
	}
	if err := s.remember(ctx, s.steps[agree]); err != nil {
		return nil, err
	}
	return &Report{Problems: s.problems, Moved: s.moved}, nil
}

// look reads both sides and decides about every ref.
func (s *Sync) look(ctx context.Context) error {
	listing, err := s.Far.Refs(ctx, branchPrefix, tagPrefix)
	if err != nil {
		return far(err)
	}
	s.advertised, s.far = listing, make(map[string]object.ID, len(listing.Refs))
	for i := range listing.Refs {
		s.far[listing.Refs[i].Name] = listing.Refs[i].ID
	}
	if listing.Skipped > 0 {
		s.tell(fmt.Sprintf("%d refs", listing.Skipped), "of the upstream have names that are not allowed here")
	}
	ours, err := s.Repo.Refs(ctx)
	if err != nil {
		return err
	}
	s.local, s.tips = make(map[string]object.ID, len(ours)), nil
	for i := range ours {
		s.local[ours[i].Name] = ours[i].ID
		if ours[i].Peeled.IsZero() {
			s.tips = append(s.tips, ours[i].ID)
		} else {
			s.tips = append(s.tips, ours[i].Peeled)
		}
	}
	if s.known, err = remembered(ctx, s.Keys, s.Repo.ID()); err != nil {
		return err
	}
	if s.view, err = s.Repo.Objects(ctx); err != nil {
		return err
	}
	s.head = s.Head(listing.Head,
		func(ref string) bool { return !s.far[ref].IsZero() }, func(ref string) bool { return !s.local[ref].IsZero() })
	if err := s.decide(ctx, s.head); err != nil {
		s.view.Close()
		return err
	}
	return nil
}

// decide fills in steps.
func (s *Sync) decide(ctx context.Context, head string) error {
	names := make(map[string]struct{}, len(s.far))
	for _, side := range []map[string]object.ID{s.far, s.local, s.known.seen} {
		for name := range side {
			names[name] = struct{}{}
		}
	}
	s.steps = make(map[action][]string)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sides := sides{local: s.local[name], far: s.far[name], seen: s.known.seen[name]}
		if id, ok := s.known.held[name]; ok {
			sides.held = &id
		}
		d, err := sides.decide(ctx, s.view, name, name == head)
		if err != nil {
			return fmt.Errorf("compare %s: %w", name, err)
		}
		if d.action == push && s.ReadOnly {
			continue
		}
		if d.action == leave {
			s.tell(name, d.why)
		}
		s.steps[d.action] = append(s.steps[d.action], name)
	}
	return nil
}

func (s *Sync) tell(ref, why string) { s.problems = append(s.problems, Problem{ref, why}) }

// remember stores that refs are equal on both sides.
func (s *Sync) remember(ctx context.Context, names []string) error {
	for part := range slices.Chunk(names, rowsMax) {
		b := kv.NewBatch()
		for _, name := range part {
			_, isHeld := s.known.held[name]
			if id := s.local[name]; id != s.known.seen[name] || isHeld {
				See(b, s.Repo.ID(), name, id)
			}
		}
		if b.Count() == 0 {
			continue
		}
		if err := s.Repo.Apply(ctx, b); err != nil {
			return fmt.Errorf("store the refs of the upstream: %w", err)
		}
	}
	return nil
}

const (
	// updatesMax bounds the refs that one transaction moves, and rowsMax the rows of memory that
	// one batch writes.
	updatesMax = 5_000
	rowsMax    = 5_000
)

// RefsError says that a sync was completed except for some refs.
type RefsError struct{ Problems []Problem }

// toldMax bounds the refs that an error names.
const toldMax = 5

// Error names the first of the refs.
func (e *RefsError) Error() string {
	var text strings.Builder
	for i, p := range e.Problems {
		if i == toldMax {
			fmt.Fprintf(&text, "; and %d more refs", len(e.Problems)-toldMax)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%.200s %s", p.Ref, p.Why)
	}
	return text.String()
}
