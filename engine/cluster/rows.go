package cluster

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"packhorse/odb/kv"
)

// Table is the first byte of every key: 's' and a server -> its row, JSON; 'd' and the name of a
// duty -> the id of its owner.
const Table = 'L'

const (
	kindServer = 's'
	kindDuty   = 'd'
)

// serverID identifies a server from one joining to its end.
type serverID [16]byte

// String returns the id in hexadecimal.
func (id serverID) String() string { return hex.EncodeToString(id[:]) }

func (id serverID) key() []byte { return append([]byte{Table, kindServer}, id[:]...) }

func dutyKey(name string) []byte { return append([]byte{Table, kindDuty}, name...) }

// serverRow is the row of a server.
type serverRow struct {
	Beat    uint64   `json:"beat"`   // grows with every renewal
	Oldest  uint64   `json:"oldest"` // the epoch of its oldest view, below beat
	URL     string   `json:"url,omitempty"`
	Version string   `json:"version,omitempty"`
	Duties  []string `json:"duties,omitempty"` // that it does when they fall to it
	// Time is when the row was made, by the clock of the server; older releases do not tell it.
	Time time.Time `json:"time,omitzero"`
	// Intents says that the server notes files before it stores them; older releases do not.
	Intents bool `json:"intents,omitempty"`
}

func (r *serverRow) encode() []byte {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return value
}

func decodeServer(value []byte) (serverRow, error) {
	var row serverRow
	if err := json.Unmarshal(value, &row); err != nil {
		return serverRow{}, fmt.Errorf("%w: row of a server: %w", kv.ErrCorrupt, err)
	}
	return row, nil
}

// storedRows is every row at one instant.
type storedRows struct {
	servers map[serverID][]byte
	owners  map[string]serverID // of duties
}

// forget removes a server, and the rows of its duties.
func (r *storedRows) forget(id serverID) {
	delete(r.servers, id)
	maps.DeleteFunc(r.owners, func(_ string, owner serverID) bool { return owner == id })
}

// readRows reads all rows. There are as many as servers and duties.
func readRows(ctx context.Context, keys kv.Reader) (*storedRows, error) {
	read, err := keys.Read(ctx, kv.ReadSet{Ranges: []kv.ScanOptions{tableOf(kindServer), tableOf(kindDuty)}})
	if err != nil {
		return nil, fmt.Errorf("read the servers of the store: %w", err)
	}
	rows := &storedRows{servers: make(map[serverID][]byte), owners: make(map[string]serverID)}
	for _, page := range read.Pages {
		if page.More {
			return nil, fmt.Errorf("%w: more than %d servers", kv.ErrCorrupt, len(page.Pairs))
		}
	}
	for _, pair := range read.Pages[0].Pairs {
		if len(pair.Key) != len(serverID{}.key()) {
			return nil, fmt.Errorf("%w: key %x is no server's", kv.ErrCorrupt, pair.Key)
		}
		rows.servers[serverID(pair.Key[2:])] = pair.Value
	}
	for _, pair := range read.Pages[1].Pairs {
		if len(pair.Value) != len(serverID{}) {
			return nil, fmt.Errorf("%w: duty %q has an owner of %d bytes", kv.ErrCorrupt, pair.Key[2:], len(pair.Value))
		}
		rows.owners[string(pair.Key[2:])] = serverID(pair.Value)
	}
	return rows, nil
}

func tableOf(kind byte) kv.ScanOptions {
	return kv.ScanOptions{Start: []byte{Table, kind}, End: []byte{Table, kind + 1}}
}
