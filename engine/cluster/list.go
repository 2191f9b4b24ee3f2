package cluster

import (
	"cmp"
	"context"
	"slices"

	"packhorse/odb/kv"
)

// Server is a server that shares the store, as its row says.
type Server struct {
	ID           string
	URL, Version string
	// Beat is the number of its renewals: one that does not grow is that of a server that is silent.
	Beat uint64
	// Duties are those that it owns.
	Duties []string
}

// List returns the servers of a store, in the order of their URLs. Errors: kv.ErrCorrupt.
func List(ctx context.Context, keys kv.Reader) ([]Server, error) {
	rows, err := readRows(ctx, keys)
	if err != nil {
		return nil, err
	}
	servers := make([]Server, 0, len(rows.servers))
	for id, value := range rows.servers {
		row, err := decodeServer(value)
		if err != nil {
			return nil, err
		}
		server := Server{ID: id.String(), URL: row.URL, Version: row.Version, Beat: row.Beat}
		for name, owner := range rows.owners {
			if owner == id {
				server.Duties = append(server.Duties, name)
			}
		}
		slices.Sort(server.Duties)
		servers = append(servers, server)
	}
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.ID, b.ID)) })
	return servers, nil
}
