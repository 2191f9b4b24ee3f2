package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"

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
	// Intents says that it notes files before it stores them, as older releases do not.
	Intents bool
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
		server := Server{ID: id.String(), URL: row.URL, Version: row.Version, Beat: row.Beat, Intents: row.Intents}
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

// Renewed returns the servers among now whose rows are not those of before.
func Renewed(before, now []Server) []Server {
	beats := make(map[string]uint64, len(before))
	for _, server := range before {
		beats[server.ID] = server.Beat
	}
	return slices.DeleteFunc(slices.Clone(now), func(server Server) bool {
		beat, known := beats[server.ID]
		return known && beat == server.Beat
	})
}

// watchEvery is the time between two looks at the rows of servers.
const watchEvery = 500 * time.Millisecond

// Watch returns the servers that renew their rows while it watches, as soon as it sees one, and
// otherwise those that are silent. It watches for as long as servers have patience with each other,
// or for a time that is given, unless no server has a row.
func Watch(ctx context.Context, keys kv.Reader, most time.Duration) (live, silent []Server, err error) {
	begun := time.Now()
	first, err := List(ctx, keys)
	for now := first; err == nil; now, err = List(ctx, keys) {
		live = Renewed(first, now)
		if len(live) > 0 || len(now) == 0 || time.Since(begun) >= cmp.Or(most, patience) {
			return live, now, nil
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return nil, nil, err
}
