package engine

import (
	"context"
	"errors"

	"packhorse/engine/backup"
	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// ErrNoCheckpoints says that the host's key-value store cannot be copied while it is used.
var ErrNoCheckpoints = errors.New("engine: the key-value store makes no checkpoints")

// Backup adds a backup of every repository, as of one instant, to dest; package backup tells how. The host may serve meanwhile. Errors:
// [ErrNoCheckpoints].
func (h *Host) Backup(ctx context.Context, dest file.Store, options backup.Options) (backup.Report, error) {
	keys, ok := h.keys.(kv.Checkpointer)
	if !ok {
		return backup.Report{}, ErrNoCheckpoints
	}
	options.Time = h.now()
	return backup.Write(ctx, backup.Source{Keys: keys, Files: h.files, Hold: h.objects.HoldFiles}, dest, options)
}
