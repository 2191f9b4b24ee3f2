package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"packhorse/odb/kv"
)

// Tenure returns the id under which the others see this server now, and a context that ends when it
// could not renew its row, before the others may remove it.
//
// The id in a row claims what the row stands for, such as a sync, while [Member.Lives] says so.
// Like a duty a claim saves work and guards nothing.
func (m *Member) Tenure() (id string, until context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id.String(), m.tenure
}

// Lives reports whether a server has a row. Errors: those of the store.
func (m *Member) Lives(ctx context.Context, id string) (bool, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(serverID{}) {
		return false, nil // no server ever had it
	}
	_, err = m.Keys.Get(ctx, serverID(raw).key())
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the row of a server: %w", err)
	}
	return true, nil
}
