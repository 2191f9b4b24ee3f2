package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"packhorse/engine/backup"
	"packhorse/engine/catalog"
	"packhorse/engine/cluster"
	"packhorse/engine/identity"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// ErrNoCheckpoints says that the host's key-value store cannot be copied while it is in use.
var ErrNoCheckpoints = errors.New("engine: the key-value store makes neither checkpoints nor exports")

// Backup adds a backup of every repository, as of one instant, to dest; [backup.Write] describes it
// and its errors. This host, and others over the same stores, may serve requests during it. Errors:
// [ErrNoCheckpoints].
func (h *Host) Backup(ctx context.Context, dest *file.Dir, options backup.Options) (backup.Report, error) {
	source := backup.Source{
		StoreID: h.storeID, Files: h.files, Owners: poolNames,
		Hold: func() backup.Hold { return h.objects.HoldFiles() },
	}
	if files, ok := h.files.(file.Caching); ok {
		source.Files, source.Remote = files.Remote(), true
	}
	switch keys := h.keys.(type) {
	case kv.Checkpointer:
		source.Checkpoint = func(ctx context.Context, _ func(int64)) (kv.Checkpoint, error) { return keys.Checkpoint(ctx) }
	case kv.Exporter:
		source.Checkpoint = func(ctx context.Context, told func(int64)) (kv.Checkpoint, error) {
			return h.copyRows(ctx, keys, dest, told)
		}
	default:
		return backup.Report{}, ErrNoCheckpoints
	}
	options.Time = h.now()
	report, err := backup.Write(ctx, source, dest, options)
	if err == nil {
		h.care.backup.Store(options.Time.UnixNano())
	}
	return report, err
}

// copyRows makes a checkpoint of the rows of keys at one instant, in a scratch folder of dest.
func (h *Host) copyRows(
	ctx context.Context, keys kv.Exporter, dest *file.Dir, told func(rows int64),
) (_ kv.Checkpoint, err error) {
	fs, dir, err := dest.ScratchFolder(ctx)
	if err != nil {
		return nil, err
	}
	export, err := keys.Export(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, export.Close()) }()
	return kv.CopyRows(ctx, ownRows(export.Scan(ctx, kv.ScanOptions{}), told), dir,
		kv.PebbleOptions{FS: fs, Logger: h.log})
}

// toldEvery is the number of rows between two reports.
const toldEvery = 1000

// ownRows are the rows that a restored store has, too: all but those of the servers that share the
// database, their intents, and the name of the place of its files.
func ownRows(rows iter.Seq2[kv.Pair, error], told func(rows int64)) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		count := int64(0)
		for row, err := range rows {
			if err == nil && isOfPair(row.Key) {
				continue
			}
			if !yield(row, err) {
				return
			}
			if count++; count%toldEvery == 0 {
				told(count)
			}
		}
		told(count)
	}
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

func isOfPair(key []byte) bool {
	return key[0] == cluster.Table || key[0] == intent.Table || key[0] == identity.Table && len(key) > 1
}
