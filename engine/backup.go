package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"packhorse/engine/backup"
	"packhorse/engine/catalog"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// ErrNoCheckpoints says that the host's key-value store cannot be copied while it is in use.
var ErrNoCheckpoints = errors.New("engine: the key-value store makes no checkpoints")

// Backup adds a backup of every repository, as of one instant, to dest; [backup.Write] describes it
// and its errors. The host may serve requests during it. Errors: [ErrNoCheckpoints].
func (h *Host) Backup(ctx context.Context, dest file.Store, options backup.Options) (backup.Report, error) {
	keys, ok := h.keys.(kv.Checkpointer)
	if !ok {
		return backup.Report{}, ErrNoCheckpoints
	}
	options.Time = h.now()
	return backup.Write(ctx, backup.Source{
		StoreID: h.storeID, Keys: keys, Files: h.files, Hold: h.objects.HoldFiles, Owners: poolNames,
	}, dest, options)
}

// poolNames returns the repositories of pools, as organization/name, by the records in r.
func poolNames(ctx context.Context, r kv.Reader, pools []odb.PoolID) (map[odb.PoolID]string, error) {
	wanted := make(map[odb.PoolID]string, len(pools))
	for _, pool := range pools {
		wanted[pool] = ""
	}
	names := make(map[odb.PoolID]string, len(pools))
	for pair, err := range r.Scan(ctx, catalog.Records(refs.RepoID{})) {
		if err != nil {
			return nil, fmt.Errorf("scan repositories: %w", err)
		}
		var rec record
		if json.Unmarshal(pair.Value, &rec) != nil {
			continue // fsck reports it
		}
		if _, ok := wanted[rec.Pool]; ok {
			names[rec.Pool] = rec.Org + "/" + rec.Name
		}
	}
	return names, nil
}
