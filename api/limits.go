package api

import (
	"cmp"
	"runtime"
	"time"

	"packhorse/api/exchange"
)

// Limits bounds the resources of clients. Zero fields take the defaults of [DefaultLimits].
type Limits struct {
	URLBytes  int   // of a request's target, escapes and query included
	JSONBytes int64 // of a body on routes that state no limit of their own
	PushBytes int64 // of a push

	ConnsMax        int // open connections; one that has shown no good token makes room for a new one
	ConnsPerAddress int // of one address, the loopback and trusted proxies apart

	StrangerWait time.Duration // for the next request of a connection that has shown no good token; at most IdleWait

	HeaderWait  time.Duration // for a request's header, from its first byte; for a TLS handshake, from accepting
	IdleWait    time.Duration // for the next request of a connection
	ParkAfter   time.Duration // idle time after which a connection releases its buffers
	BodyPause   time.Duration // a silence before a body flows, on routes that allow it
	BodySilence time.Duration // a silence in a body
	AnswerWait  time.Duration // for the first byte of the answer, on routes that compute it

	FloorWindow time.Duration // the time of waiting for a client over which its rate is judged
	FloorRate   int64         // in bytes per second; a client below it is cut

	DrainBytes  int64         // of an unread body that are read to keep a connection
	DrainWait   time.Duration // for them
	LingerBytes int64         // that are discarded after a last answer, so that the client gets to read it
	LingerWait  time.Duration // for them
	CancelWait  time.Duration // that requests which are cancelled when a shutdown's time is over get to answer

	// Concurrent heavy computations; an organization gets half of them, a repository three quarters of
	// that.
	HeavySlots int
	// Requests that wait for a slot or for memory; an organization gets half of it, a repository a
	// quarter.
	QueueCount int
	QueueWait  time.Duration // until a waiting request is sent away
	ClientWait time.Duration // of a request for its client, until it is refused in favour of others of its organization

	WorkMax time.Duration // that one request may compute; unlimited if negative

	// MemoryBytes is the memory that working requests may be expected to hold; an organization gets
	// half of it, and a repository three quarters of that. Requests that wait for their clients hold
	// up to a quarter as much in addition.
	MemoryBytes int64
}

// DefaultLimits are the default limits of a server.
func DefaultLimits() Limits {
	conns := defaultConnsMax(descriptorsMax())
	return Limits{
		ConnsMax:        conns,
		ConnsPerAddress: max(1, conns/4),
		StrangerWait:    10 * time.Second,

		URLBytes:    8 << 10,
		JSONBytes:   1 << 20,
		PushBytes:   16 << 30,
		HeaderWait:  10 * time.Second,
		IdleWait:    75 * time.Second,
		ParkAfter:   time.Second,
		BodyPause:   exchange.PauseMax,
		BodySilence: exchange.SilenceMax,
		AnswerWait:  30 * time.Second,
		FloorWindow: time.Minute,
		FloorRate:   1 << 10,
		DrainBytes:  64 << 10,
		DrainWait:   250 * time.Millisecond,
		LingerBytes: 64 << 20,
		LingerWait:  5 * time.Second,
		CancelWait:  time.Second,
		HeavySlots:  max(4, 3*runtime.GOMAXPROCS(0)),
		QueueCount:  1024,
		QueueWait:   10 * time.Second,
		ClientWait:  5 * time.Second,
		WorkMax:     time.Minute,
		MemoryBytes: 256 << 20,
	}
}

// The number of descriptors if the limit is unknown, and the number that connections leave to
// files.
const (
	descriptorsDefault = 1024
	descriptorsKept    = 4096
	connsMost          = 32768 // an idle one costs memory, too
	filesLeast         = 256   // with more connections than there are descriptors, files may fail
)

// defaultConnsMax divides the descriptors: half of them are for files, or 4,096 if there are more.
func defaultConnsMax(descriptors uint64) int {
	return int(min(connsMost, max(descriptors/2, descriptors-min(descriptors, descriptorsKept))))
}

// FilesMax returns how many descriptors of the process connsMax connections leave to files; 0 for
// the default of [Limits.ConnsMax].
func FilesMax(connsMax int) int {
	descriptors := min(descriptorsMax(), 1<<20) // it may be unlimited
	conns := uint64(cmp.Or(connsMax, defaultConnsMax(descriptors)))
	return int(max(descriptors-min(descriptors, conns), filesLeast))
}

// The buffers of a connection. fasthttp limits a request's header to the read buffer.
const (
	headerBytesMax   = 32 << 10
	writeBufferBytes = 8 << 10
)

func (l *Limits) setDefaults() {
	d := DefaultLimits()
	l.URLBytes = cmp.Or(l.URLBytes, d.URLBytes)
	l.JSONBytes = cmp.Or(l.JSONBytes, d.JSONBytes)
	l.PushBytes = cmp.Or(l.PushBytes, d.PushBytes)
	if l.ConnsMax > 0 {
		d.ConnsPerAddress = max(1, l.ConnsMax/4)
	}
	l.ConnsMax = cmp.Or(l.ConnsMax, d.ConnsMax)
	l.ConnsPerAddress = cmp.Or(l.ConnsPerAddress, d.ConnsPerAddress)
	l.StrangerWait = cmp.Or(l.StrangerWait, d.StrangerWait)
	l.HeaderWait = cmp.Or(l.HeaderWait, d.HeaderWait)
	l.IdleWait = cmp.Or(l.IdleWait, d.IdleWait)
	l.ParkAfter = cmp.Or(l.ParkAfter, d.ParkAfter)
	l.BodyPause = cmp.Or(l.BodyPause, d.BodyPause)
	l.BodySilence = cmp.Or(l.BodySilence, d.BodySilence)
	l.AnswerWait = cmp.Or(l.AnswerWait, d.AnswerWait)
	l.FloorWindow = cmp.Or(l.FloorWindow, d.FloorWindow)
	l.FloorRate = cmp.Or(l.FloorRate, d.FloorRate)
	l.DrainBytes = cmp.Or(l.DrainBytes, d.DrainBytes)
	l.DrainWait = cmp.Or(l.DrainWait, d.DrainWait)
	l.LingerBytes = cmp.Or(l.LingerBytes, d.LingerBytes)
	l.LingerWait = cmp.Or(l.LingerWait, d.LingerWait)
	l.CancelWait = cmp.Or(l.CancelWait, d.CancelWait)
	l.HeavySlots = cmp.Or(l.HeavySlots, d.HeavySlots)
	l.QueueCount = cmp.Or(l.QueueCount, d.QueueCount)
	l.QueueWait = cmp.Or(l.QueueWait, d.QueueWait)
	l.ClientWait = cmp.Or(l.ClientWait, d.ClientWait)
	l.WorkMax = cmp.Or(l.WorkMax, d.WorkMax)
	l.MemoryBytes = cmp.Or(l.MemoryBytes, d.MemoryBytes)
}
