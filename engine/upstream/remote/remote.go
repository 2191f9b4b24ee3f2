// Package remote is the client side of git's smart HTTP protocol: it lists, fetches from and pushes
// to one repository on another host.
//
// Start at [Remote]. Listing and fetching speak protocol version 2, or 0 and 1 where the far side
// does; pushing speaks version 0, as git does. See gitprotocol-http(5), gitprotocol-v2(5) and
// gitprotocol-pack(5). Servers that only serve files ("dumb" ones) are refused.
//
// Nothing that the far side sends is trusted: refs, bytes, progress and texts have limits, and so
// has its silence. Every error is an [*Error] of one kind, except those of the caller's own
// context, of its pack writer, of its Authorize and of package outbound. No text in it holds a
// password, also where the far side repeats one.
//
// The package stores nothing. A Remote may be used concurrently.
package remote

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"
)

// Remote is one repository on another host. Its fields are not changed while it is used.
type Remote struct {
	URL *url.URL // of the repository; without user, query and fragment
	// Client is one of package outbound, unless the URL can be trusted. It need not limit the time to
	// the head of an answer.
	Client *http.Client
	// Authorize returns the credentials of a request; it is called for each request. No password,
	// or a nil Authorize, means no authentication. The credentials are sent to the origin of URL
	// and nowhere else.
	Authorize func(ctx context.Context) (user, password string, err error)
	Agent     string // "packhorse/1.2"
	Limits    Limits
}

// Limits bound the data that a far side may send, and its silence. Zero fields take their defaults.
type Limits struct {
	Refs               int           // kept of an advertisement; 200,000
	NameBytes          int64         // of the names of these; 32 MiB
	AdvertisementBytes int64         // read of one; 256 MiB
	PackBytes          int64         // 16 GiB
	ProgressBytes      int64         // in one answer, the empty packets that keep a connection alive included; 4 MiB
	Haves              int           // sent in all; 50,000
	Idle               time.Duration // without one byte sent or received; 60 s
	Answer             time.Duration // for a whole answer that is no pack, and until a pack begins; 10 min
	Receive            time.Duration // from the end of the request to the end of the report; 1 h
	PackRate           int64         // of a pack that has begun, in bytes a second, over Idle; 1 KiB
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Refs:               cmp.Or(l.Refs, 200_000),
		NameBytes:          cmp.Or(l.NameBytes, 32<<20),
		AdvertisementBytes: cmp.Or(l.AdvertisementBytes, 256<<20),
		PackBytes:          cmp.Or(l.PackBytes, 16<<30),
		ProgressBytes:      cmp.Or(l.ProgressBytes, 4<<20),
		Haves:              cmp.Or(l.Haves, 50_000),
		Idle:               cmp.Or(l.Idle, time.Minute),
		Answer:             cmp.Or(l.Answer, 10*time.Minute),
		Receive:            cmp.Or(l.Receive, time.Hour),
		PackRate:           cmp.Or(l.PackRate, 1<<10),
	}
}

// agent is our agent string.
func (r *Remote) agent() string { return cmp.Or(r.Agent, "packhorse") }
