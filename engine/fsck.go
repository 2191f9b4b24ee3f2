package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Checked is what [Host.Fsck] found about one repository.
type Checked struct {
	Repository refs.RepoID
	Org, Name  string // "" when the repository's record is damaged
	Objects    odb.FsckReport
	// Problem is damage to the rows of the repository itself, which kept its objects from being looked at, or nil.
	Problem error
}

// Damaged reports whether anything is wrong with the repository.
func (c *Checked) Damaged() bool { return c.Problem != nil || c.Objects.ProblemCount > 0 }

// FsckOptions are the settings of [Host.Fsck].
type FsckOptions struct {
	// Progress, if not nil, hears from time to time how many objects of a repository have been checked and how many are known of. It is
	// not called concurrently.
	Progress func(repository string, done, known int64)

	pace func(ctx context.Context, bytes int64) error // see [odb.FsckOptions]
}

// Fsck verifies every repository in turn: its record, its refs, that what they point at is there, and every stored object. It may
// run while the host serves.
//
// An error ends the walk; it says that checking was not possible, not that something is damaged.
func (h *Host) Fsck(ctx context.Context, options FsckOptions) iter.Seq2[Checked, error] {
	return func(yield func(Checked, error) bool) {
		for pair, err := range h.keys.Scan(ctx, kv.ScanOptions{Start: []byte{tableRecord}, End: kv.PrefixEnd([]byte{tableRecord})}) {
			if err != nil {
				yield(Checked{}, fmt.Errorf("scan repositories: %w", err))
				return
			}
			if len(pair.Key) != 1+len(refs.RepoID{}) {
				if !yield(Checked{Problem: fmt.Errorf("%w: record key of %d bytes", ErrCorrupt, len(pair.Key))}, nil) {
					return
				}
				continue
			}
			checked, err := h.check(ctx, refs.RepoID(pair.Key[1:]), options)
			if errors.Is(err, ErrNotFound) || errors.Is(err, refs.ErrRepositoryNotFound) {
				continue // deleted since the scan began
			}
			if !yield(checked, err) || err != nil {
				return
			}
		}
	}
}

// check verifies one repository.
func (h *Host) check(ctx context.Context, id refs.RepoID, options FsckOptions) (Checked, error) {
	checked := Checked{Repository: id}
	rec, _, err := readRecord(ctx, h.keys, id)
	if err == nil {
		checked.Org, checked.Name = rec.Org, rec.Name
		var tips []object.ID
		if tips, err = h.tips(ctx, id); err == nil {
			return h.checkObjects(ctx, checked, rec.Pool, tips, options)
		}
	}
	for _, damage := range []error{ErrCorrupt, refs.ErrCorrupt, kv.ErrCorrupt} {
		if errors.Is(err, damage) {
			checked.Problem = err
			return checked, nil
		}
	}
	return checked, err
}

func (h *Host) checkObjects(ctx context.Context, checked Checked, pool odb.PoolID, tips []object.ID, options FsckOptions) (Checked, error) {
	objects := odb.FsckOptions{Tips: tips, Pace: options.pace}
	if options.Progress != nil {
		objects.Progress = func(done, known int64) { options.Progress(checked.Org+"/"+checked.Name, done, known) }
	}
	report, err := h.objects.Fsck(ctx, pool, objects)
	if err != nil {
		return checked, fmt.Errorf("check objects of repository %s: %w", checked.Repository, err)
	}
	checked.Objects = *report
	return checked, nil
}

// tips returns what the refs of all namespaces point at, each once if they are in a row.
func (h *Host) tips(ctx context.Context, id refs.RepoID) (tips []object.ID, err error) {
	names, err := h.names.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	for ref, err := range names.All(ctx, "refs/") {
		if err != nil {
			return nil, fmt.Errorf("read refs of repository %s: %w", id, err)
		}
		if len(tips) == 0 || tips[len(tips)-1] != ref.ID {
			tips = append(tips, ref.ID)
		}
	}
	return tips, nil
}
