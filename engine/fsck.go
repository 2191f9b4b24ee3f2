package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"packhorse/engine/catalog"
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
	Refs       refs.FsckReport
	// Problem is damage to the rows of the repository itself, which prevented the check of its
	// objects, or nil.
	Problem error
}

// Damaged reports whether anything is wrong with the repository.
func (c *Checked) Damaged() bool {
	return c.ProblemCount() > 0
}

// ProblemCount is the number of problems.
func (c *Checked) ProblemCount() int64 {
	count := c.Objects.ProblemCount + c.Refs.ProblemCount
	if c.Problem != nil {
		count++
	}
	return count
}

// IsStore reports whether this is about data of the store that belongs to no repository.
func (c *Checked) IsStore() bool { return c.Repository == (refs.RepoID{}) && c.Problem == nil }

// Problems describes the damage, one line each.
func (c *Checked) Problems() []string {
	var lines []string
	if c.Problem != nil {
		lines = append(lines, c.Problem.Error())
	}
	for _, problem := range c.Refs.Problems {
		lines = append(lines, problem.Error())
	}
	for _, problem := range c.Objects.Problems {
		lines = append(lines, problem.String())
	}
	told := int64(len(c.Refs.Problems) + len(c.Objects.Problems))
	if more := c.Refs.ProblemCount + c.Objects.ProblemCount - told; more > 0 {
		lines = append(lines, fmt.Sprintf("%d more problems", more))
	}
	return lines
}

// Heal is a line of advice for the operator of a damaged repository.
func (c *Checked) Heal() string {
	aside := c.Problem == nil && c.Refs.ProblemCount == 0 && c.Objects.ProblemCount == int64(len(c.Objects.Problems))
	for _, problem := range c.Objects.Problems {
		aside = aside && problem.IsAside()
	}
	if aside {
		return "nothing is lost, answers take longer; packhorse gc --anew makes it again"
	}
	return "restore a backup, or delete the repository, create it again and push a whole clone to it"
}

// Warnings describes objects that git objects to and that are not damaged, one line each.
func (c *Checked) Warnings() []string {
	var lines []string
	for _, warning := range c.Objects.Warnings {
		lines = append(lines, warning.String())
	}
	if more := c.Objects.WarningCount - int64(len(c.Objects.Warnings)); more > 0 {
		lines = append(lines, fmt.Sprintf("%d more warnings", more))
	}
	return lines
}

// FsckOptions are the settings of [Host.Fsck].
type FsckOptions struct {
	// Progress, if not nil, is called from time to time with the numbers of checked and of known
	// objects of a repository. It is not called concurrently.
	Progress func(repository string, done, known int64)

	pace func(ctx context.Context, bytes int64) error // see [odb.FsckOptions]
}

// Fsck verifies every repository in turn: its record, its refs and their journal, that their
// targets exist, and every stored object. A last [Checked] without a repository reports damage that
// belongs to none, and files that nothing names. Fsck may run while the host serves.
//
// An error ends the walk; it means that the check was not possible, not that data is damaged. A
// damaged table of the key-value store is a problem of each repository that has rows there. A
// complete walk that finds nothing resets [Host.DamageCount].
func (h *Host) Fsck(ctx context.Context, options FsckOptions) iter.Seq2[Checked, error] {
	return func(yield func(Checked, error) bool) {
		sound, whole := h.objects.WholeCheck(), true
		for id, err := range h.repositories(ctx) {
			var checked Checked
			if err == nil {
				checked, err = h.check(ctx, id, options)
			}
			if errors.Is(err, ErrNotFound) || errors.Is(err, refs.ErrRepositoryNotFound) {
				continue // deleted since the scan began
			}
			if isDamage(err) {
				checked, err = storeProblem(err), nil
			}
			whole = whole && !checked.Damaged()
			if !yield(checked, err) || err != nil {
				return
			}
		}
		report, err := h.objects.FsckTables(ctx, (&poolOwners{host: h}).owned)
		if err == nil && report.ProblemCount == 0 {
			err = errors.Join(h.names.FsckFeeds(ctx), h.removed.Check(ctx))
		}
		switch {
		case isDamage(err):
			yield(storeProblem(err), nil)
		case err != nil:
			yield(Checked{}, err)
		default:
			if whole && report.ProblemCount == 0 {
				sound()
			}
			h.care.check.Store(h.now().UnixNano())
			if report.ProblemCount+report.UnregisteredCount > 0 {
				yield(Checked{Objects: *report}, nil)
			}
		}
	}
}

// storeProblem is damage that belongs to no repository, or to none that can be determined.
func storeProblem(err error) Checked {
	return Checked{Objects: odb.FsckReport{ProblemCount: 1, Problems: []odb.FsckProblem{{Err: err}}}}
}

// isDamage reports whether an error says that stored rows are damaged.
func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, refs.ErrCorrupt) || errors.Is(err, kv.ErrCorrupt)
}

// repositories walks all repositories by their records. When a table of the records is damaged it
// yields that as an error, and continues with the repositories in the organizations' lists.
func (h *Host) repositories(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		var last refs.RepoID
		var damage error
		for pair, err := range h.keys.Scan(ctx,
			catalog.Records(refs.RepoID{})) {
			if err != nil {
				damage = fmt.Errorf("scan repositories: %w", err)
				break
			}
			id, ok := catalog.RecordOf(pair.Key)
			if !ok {
				err := fmt.Errorf("%w: record key of %d bytes", ErrCorrupt, len(pair.Key))
				if !yield(refs.RepoID{}, err) {
					return
				}
				continue
			}
			last = id
			if !yield(last, nil) {
				return
			}
		}
		if damage == nil || !yield(refs.RepoID{}, damage) || !isDamage(damage) {
			return
		}
		for pair, err := range h.keys.Scan(ctx,
			catalog.Numbers()) {
			if err != nil {
				yield(refs.RepoID{}, fmt.Errorf("scan the organizations' lists: %w", err))
				return
			}
			if len(pair.Value) != len(last) || bytes.Compare(pair.Value, last[:]) <= 0 {
				continue // was walked before
			}
			if !yield(refs.RepoID(pair.Value), nil) {
				return
			}
		}
	}
}

// poolOwners knows the pools of all repositories, and of the deleted ones that have not been
// purged.
type poolOwners struct {
	host  *Host
	pools map[odb.PoolID]struct{}
}

// owned reports whether a repository has a pool. For one that is not known the records are read
// once more: it may be new.
func (o *poolOwners) owned(ctx context.Context, pool odb.PoolID) (bool, error) {
	if _, ok := o.pools[pool]; ok {
		return true, nil
	}
	o.pools = make(map[odb.PoolID]struct{})
	plain := func(value []byte) ([]byte, error) { return value, nil }
	deleted := func(value []byte) ([]byte, error) {
		gone, err := catalog.DecodeDeletion(value)
		return gone.Record, err
	}
	// Deleted ones twice: one that is deleted, or comes back, in between is in one of the tables.
	err := errors.Join(o.read(ctx, catalog.Deletions(), deleted), o.read(ctx, catalog.Records(refs.RepoID{}), plain),
		o.read(ctx, catalog.Deletions(), deleted))
	if err != nil {
		return false, err
	}
	_, ok := o.pools[pool]
	return ok, nil
}

// read adds the pools of the records in a table, which recordIn finds in its values.
func (o *poolOwners) read(
	ctx context.Context, table kv.ScanOptions, recordIn func(value []byte) ([]byte, error),
) error {
	for pair, err := range o.host.keys.Scan(ctx, table) {
		var stored []byte
		if err == nil {
			stored, err = recordIn(pair.Value)
		}
		if err != nil {
			return err
		}
		var rec record
		if json.Unmarshal(stored, &rec) == nil { // else the check of the repository has reported it
			o.pools[rec.Pool] = struct{}{}
		}
	}
	return nil
}

// check verifies one repository.
func (h *Host) check(ctx context.Context, id refs.RepoID, options FsckOptions) (Checked, error) {
	checked := Checked{Repository: id}
	rec, _, err := h.readRecord(ctx, id)
	if err == nil {
		checked.Org, checked.Name = rec.Org, rec.Name
		if err = h.checkName(ctx, &rec); err == nil {
			err = h.checkRefs(ctx, &checked)
		}
		var tips []object.ID
		if err == nil {
			tips, err = h.tips(ctx, id)
		}
		if err == nil {
			checked, err = h.checkObjects(ctx, checked, rec.Pool, tips, options)
		}
	}
	if isDamage(err) {
		checked.Problem, err = err, nil
	}
	return checked, err
}

// checkName makes sure that a repository is found by its name and its number.
func (h *Host) checkName(ctx context.Context, rec *record) error {
	listed, err := h.catalog.Listed(ctx, rec.Org, rec.Name, rec.Number, rec.ID)
	if err != nil || listed {
		return err
	}
	now, _, err := h.readRecord(ctx, rec.ID)
	if err != nil {
		return err // deleted since
	}
	if now.Name != rec.Name { // renamed since
		return h.checkName(ctx, &now)
	}
	return fmt.Errorf("%w: repository %s is not listed as %q, number %d of %q", ErrCorrupt, rec.ID, rec.Name, rec.Number,
		rec.Org)
}

func (h *Host) checkRefs(ctx context.Context, checked *Checked) error {
	report, err := h.names.Fsck(ctx, checked.Repository)
	if err != nil {
		return err
	}
	checked.Refs = *report
	return nil
}

func (h *Host) checkObjects(
	ctx context.Context, checked Checked, pool odb.PoolID, tips []object.ID, options FsckOptions,
) (Checked, error) {
	objects := odb.FsckOptions{Tips: tips, Pace: options.pace}
	if options.Progress != nil {
		objects.Progress = func(done, known int64) { options.Progress(checked.Org+"/"+checked.Name, done, known) }
	}
	report, err := h.objects.Fsck(ctx, pool, objects)
	if errors.Is(err, odb.ErrNoPool) {
		if _, _, gone := h.readRecord(ctx, checked.Repository); gone != nil {
			return checked, gone // deleted since
		}
		checked.Problem = fmt.Errorf("%w: repository %s has lost its pool: %w", ErrCorrupt, checked.Repository, err)
		return checked, nil
	}
	if err != nil {
		return checked, fmt.Errorf("check objects of repository %s: %w", checked.Repository, err)
	}
	checked.Objects = *report
	return checked, nil
}

// tips returns the targets of the refs of all namespaces, without consecutive duplicates.
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
