package engine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"packhorse/engine/catalog"
	"packhorse/engine/quota"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// Usage is what a repository stores.
type Usage struct {
	// Stored are the objects of the repository's own layers; those that forks read, too, are also in
	// Shared. Borrowed are those of the layers that it shares with its base, as a fork.
	Stored, Shared, Borrowed odb.Size
	Refs                     refs.State
	// Quotas has 0 for a quota that is not set. OrganizationBytes is what the organization stores, and
	// DeletedBytes what its deleted repositories have stored, until they are purged; 0 if it has no
	// quota.
	Quotas                          quota.Limits
	OrganizationBytes, DeletedBytes int64
	Created                         time.Time
}

// Usage returns what the repository stores now. It takes a step for each layer, not for each
// object, except for those of the hot tier that no quota has had counted. Errors: [ErrNotFound].
func (r *Repository) Usage(ctx context.Context) (Usage, error) {
	state, err := r.host.names.State(ctx, r.record.ID)
	if err != nil {
		return Usage{}, r.gone(err)
	}
	counted, err := r.host.quotas.Usage(ctx, r.counted())
	if err != nil {
		return Usage{}, fmt.Errorf("measure repository %s: %w", r.record.ID, err)
	}
	u := Usage{
		Refs: state, Quotas: counted.Limits, OrganizationBytes: counted.OrganizationBytes, Created: r.record.Created,
	}
	if counted.Limits.Organization != 0 {
		if u.DeletedBytes, err = r.host.deletedBytes(ctx, r.record.Org); err != nil {
			return Usage{}, err
		}
	}
	for _, l := range counted.Layers {
		if l.Borrowed {
			u.Borrowed.Add(l.Size)
			continue
		}
		u.Stored.Add(l.Size)
		shared, err := r.host.objects.IsShared(ctx, r.record.Pool, l.ID)
		if err != nil {
			return Usage{}, fmt.Errorf("find the forks of repository %s: %w", r.record.ID, err)
		}
		if shared {
			u.Shared.Add(l.Size)
		}
	}
	return u, nil
}

// counted is the repository as the quotas count it.
func (r *Repository) counted() quota.Repository {
	return r.host.countedAs(r.record.Pool, r.record.ID, r.record.Org)
}

func (h *Host) countedAs(pool odb.PoolID, id refs.RepoID, org string) quota.Repository {
	return quota.Repository{Org: org, Pool: pool, Exists: func(ctx context.Context) (bool, error) {
		rows, err := h.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{catalog.RecordKey(id), catalog.DeletedKey(id)}})
		return err == nil && (rows.Values[0] != nil || rows.Values[1] != nil), err
	}}
}

// counted walks the repositories of an organization, and the deleted ones that have not been
// purged.
func (h *Host) counted(ctx context.Context, org string) iter.Seq2[quota.Repository, error] {
	return func(yield func(quota.Repository, error) bool) {
		for rec, err := range h.catalog.All(ctx, org, 0, catalog.Pace{Ahead: true}) {
			if !yield(h.countedAs(rec.Pool, rec.ID, org), err) || err != nil {
				return
			}
		}
		for found, err := range h.catalog.AllDeleted(ctx, org, catalog.DeletedPosition{}, 0) {
			var rec record
			if err == nil {
				rec, err = decodeRecord(found.ID, found.Record)
			}
			if !yield(h.countedAs(rec.Pool, found.ID, org), err) || err != nil {
				return
			}
		}
	}
}
