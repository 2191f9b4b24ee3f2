package cluster

import "context"

// Horizon is an instant. It is for one goroutine at a time.
type Horizon struct {
	member *Member
	beats  map[serverID]uint64 // of the other servers
}

// Horizon returns the present instant.
func (m *Member) Horizon(ctx context.Context) (*Horizon, error) {
	rows, err := readRows(ctx, m.Keys)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	own := m.id
	m.mu.Unlock()
	h := &Horizon{member: m, beats: make(map[serverID]uint64)}
	for id, value := range rows.servers {
		row, err := decodeServer(value)
		if err != nil {
			return nil, err
		}
		if id != own {
			h.beats[id] = row.Beat
		}
	}
	return h, nil
}

// Passed reports whether each view that the other servers have open began after the instant. Of a
// server that was removed, no view counts; it knows that, and so reads nothing that is gone.
//
// A view of an epoch began when its server knew that the row of this number was stored. If the
// number is above that of the row at the instant, the row was stored after the instant, and so the
// view began after it. A row is stored before the next one is made; so a row whose oldest epoch is
// above also stands for the views that begin later.
func (h *Horizon) Passed(ctx context.Context) (bool, error) {
	rows, err := readRows(ctx, h.member.Keys)
	if err != nil {
		return false, err
	}
	for id, beat := range h.beats {
		value, there := rows.servers[id]
		if !there {
			continue
		}
		row, err := decodeServer(value)
		if err != nil {
			return false, err
		}
		if row.Oldest <= beat {
			return false, nil
		}
	}
	return true, nil
}
