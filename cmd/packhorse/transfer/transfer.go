// Package transfer brings repositories from elsewhere to a server: all of their refs, through the
// server's API and git's protocol.
//
// Start at [Sources], which finds repositories, and [Importer.Run], which brings them. The map, by
// file:
//
//	transfer  what is brought, and how it ended
//	importer  one repository after the other, several at a time
//	pushing   the changes of refs that make a repository equal to its origin
//	origin    repositories in folders and on other hosts
//	sources   what the arguments name: folders, URLs, lists of URLs
//	github    the repositories of an account on GitHub
//	display   lines and bars
package transfer

import (
	"sync/atomic"
	"time"
)

// Job is a repository to bring.
type Job struct {
	Name string // on the server
	From string // where it is, for people; without a password
	// Bytes is about the size of the repository, 0 if it is not known.
	Bytes  int64
	origin opener
	err    error // why it cannot be brought
}

// Outcome is how a job ended.
type Outcome string

// The outcomes.
const (
	Imported Outcome = "imported" // the server did not have it, or had it empty
	Updated  Outcome = "updated"  // the server had a part of its refs
	Equal    Outcome = "equal"    // the server had all of it
	Failed   Outcome = "failed"
)

// Result is how a job ended.
type Result struct {
	Job     Job
	Outcome Outcome
	Refs    int           // that were changed, or would be
	Skipped int           // refs of the origin with names that no repository here takes
	Bytes   int64         // of the packs that were sent
	Took    time.Duration // from the first request on
	Err     error         // of a job that failed
}

// Meter shows how far a job has come. Its methods may be called concurrently.
type Meter struct {
	Job   Job
	sent  atomic.Int64
	total atomic.Int64
}

// Sent returns the bytes that were sent, and about how many there are, 0 if that is not known.
func (m *Meter) Sent() (sent, total int64) { return m.sent.Load(), m.total.Load() }

// Write counts bytes.
func (m *Meter) Write(p []byte) (int, error) {
	m.sent.Add(int64(len(p)))
	return len(p), nil
}
