package engine

import (
	"context"
	"errors"

	"packhorse/engine/catalog"
	"packhorse/odb/kv"
	"packhorse/pack/invariants"
	"packhorse/refs"
)

// Recall is [Host.Repository] without a read of its own where reads are round trips: it returns the
// repository as it was opened last. The first method that opens its refs or its objects reads the
// record along, at the same instant, and goes on with the repository that has the name then, or
// fails with [ErrNotFound]. Until it has returned, the repository serves one goroutine, and has no
// other methods than Advertise, Fetch, Objects, Receive, NewUpload, File, Files, Commits, Commit,
// Branches and Tags.
func (h *Host) Recall(ctx context.Context, org, name string) (*Repository, error) {
	if h.recalls {
		rec, stored, known := h.catalog.Recall(org, name)
		if known && rec.Name == name && rec.Upstream == nil { // the state of an upstream is a read anyway
			return &Repository{host: h, record: rec, stored: stored, recalled: true}, nil
		}
	}
	return h.Repository(ctx, org, name)
}

// errOutdated says that a recalled repository is not what the store has.
var errOutdated = errors.New("engine: the repository has changed since it was opened last")

// confirmation is whether what a method reads with its refs and objects has confirmed a recalled
// repository. Of one that was read it is nil.
type confirmation struct {
	repo  *Repository
	holds bool
}

// along returns an Ahead that reads the record, too.
func (c *confirmation) along(ahead refs.Ahead) refs.Ahead {
	if c == nil {
		return ahead
	}
	return func() (kv.ReadSet, func(kv.Rows)) {
		set, take := kv.ReadSet{}, func(kv.Rows) {}
		if ahead != nil {
			set, take = ahead()
		}
		count, record := len(set.Keys), &c.repo.record
		set.Keys = append(set.Keys, catalog.NameKey(record.Org, record.Name), catalog.RecordKey(record.ID))
		return set, func(rows kv.Rows) {
			c.holds = catalog.IsAsStored(rows.Values[count], rows.Values[count+1], record.ID, c.repo.stored)
			take(kv.Rows{Values: rows.Values[:count], Pages: rows.Pages})
		}
	}
}

// err returns errOutdated unless the repository is as it was recalled.
func (c *confirmation) err() error {
	if c == nil || c.holds {
		return nil
	}
	return errOutdated
}

// confirm calls open, which opens refs or objects of the repository and reads the confirmation
// along. When that is refused, or the repository is gone, it calls open again with the repository
// as it is now.
func (r *Repository) confirm(ctx context.Context, open func(c *confirmation) error) error {
	if !r.recalled {
		return open(nil)
	}
	err := open(&confirmation{repo: r})
	switch {
	case err == nil:
		r.recalled = false
		return nil
	case !errors.Is(err, errOutdated) && !errors.Is(err, ErrRepositoryNotFound):
		return err
	}
	now, err := r.host.Repository(ctx, r.record.Org, r.record.Name)
	if err != nil {
		return err
	}
	*r = *now
	return open(nil)
}

// mustBeRead checks that a method is not called before the repository was read.
func (r *Repository) mustBeRead(method string) {
	if invariants.Enabled {
		invariants.Check(!r.recalled, "engine: %s of a repository that is only recalled", method)
	}
}
