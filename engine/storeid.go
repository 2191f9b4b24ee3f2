package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"packhorse/engine/backup"
	"packhorse/odb/kv"
)

// storeIDKey holds the id of the store, filesPlaceKey the name of the place of its files, if that
// has one.
var (
	storeIDKey    = []byte{tableStoreID}
	filesPlaceKey = []byte{tableStoreID, 'f'}
)

// Reach reads a row of the key-value store. Errors: [kv.ErrUnavailable].
func (h *Host) Reach(ctx context.Context) error {
	_, err := h.keys.Get(ctx, storeIDKey)
	return err
}

// StoreID returns the id of a store, and gives it one if it has none. A restored store has that of
// the one that was backed up.
func StoreID(ctx context.Context, keys kv.Store) (string, error) {
	for {
		id, err := keys.Get(ctx, storeIDKey)
		if err == nil && len(id) != backup.StoreIDSize {
			return "", fmt.Errorf("%w: the store's ID has %d bytes", ErrCorrupt, len(id))
		}
		if !errors.Is(err, kv.ErrNotFound) {
			return hex.EncodeToString(id), err
		}
		id = make([]byte, backup.StoreIDSize)
		_, _ = rand.Read(id) // does not fail
		b := kv.NewBatch()
		b.RequireAbsent(storeIDKey)
		b.Put(storeIDKey, id)
		commit, err := keys.Apply(ctx, b)
		if errors.Is(err, kv.ErrConflict) {
			continue // another host was quicker
		}
		if err != nil {
			return "", fmt.Errorf("assign the store an ID: %w", err)
		}
		return hex.EncodeToString(id), commit.Wait(ctx)
	}
}

// FilesPlace returns the name of the place that holds the files of a store, "" if none was noted.
func FilesPlace(ctx context.Context, keys kv.Store) (string, error) {
	name, err := keys.Get(ctx, filesPlaceKey)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return "", fmt.Errorf("read the place of the files: %w", err)
	}
	return string(name), nil
}

// NoteFilesPlace notes the name of the place that holds the files of a store for which none was
// noted. Errors: [kv.ErrConflict] when another process has noted one meanwhile.
func NoteFilesPlace(ctx context.Context, keys kv.Store, name string) error {
	b := kv.NewBatch()
	b.RequireAbsent(filesPlaceKey)
	b.Put(filesPlaceKey, []byte(name))
	commit, err := keys.Apply(ctx, b)
	if err != nil {
		return fmt.Errorf("note the place of the files: %w", err)
	}
	return commit.Wait(ctx)
}
