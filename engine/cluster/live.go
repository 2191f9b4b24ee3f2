package cluster

import (
	"context"
	"fmt"

	"packhorse/odb/kv"
)

// Own returns the ID of this server. It is another one after the others have removed this one. Own
// fails while they may have: [kv.ErrUnavailable].
func (m *Member) Own(context.Context) ([16]byte, error) {
	if m.Silent() {
		return serverID{}, fmt.Errorf("%w: this server could not say for %s that it lives", kv.ErrUnavailable, m.Age())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, nil
}

// Live returns the IDs of the servers that have joined and were not removed. None of them ever
// comes back.
func (m *Member) Live(ctx context.Context) (map[[16]byte]struct{}, error) {
	rows, err := readRows(ctx, m.Keys)
	if err != nil {
		return nil, err
	}
	live := make(map[[16]byte]struct{}, len(rows.servers))
	for id := range rows.servers {
		live[id] = struct{}{}
	}
	return live, nil
}
