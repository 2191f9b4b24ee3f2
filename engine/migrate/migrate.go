// Package migrate moves the repositories of a store to another pair of stores: from those in a data
// folder to a database and a bucket, or back.
//
// Start at [Run]. It copies files and rows, compares what it has copied with the source, and then
// moves the right to be opened from one store to the other. It may be killed at any time, and goes
// on when it is called again. The map, by file:
//
//	migrate  Stores, Options, Report, Run
//	marks    who may be opened: the marks of package identity in both stores
//	files    the files that rows name
//	rows     the rows, their comparison and their hash
//
// # Who may be opened
//
// Both stores carry a mark in the row of their ID, which everyone reads who opens a store:
//
//	step                    source    target
//	before                  -         no row at all
//	1 the target is taken   -         arriving
//	2 the copy begins       leaving   arriving
//	3 source and target were compared and are equal
//	4 the source is left    left      arriving
//	5 the end               left      -
//
// A store without a mark may be opened, and so may one that is being left, which removes the mark.
// One that is arriving or left may not. So at most one of the two can be opened at any instant, and
// whatever it acknowledges is kept: up to step 4 it is the source, and from step 5 on the target.
//
// Step 4 is one batch that requires the mark of step 2 as this process wrote it. Whoever opened the
// source since then has replaced that mark, so the batch fails, and nothing that was written
// meanwhile is lost: the migration stays unfinished. After step 4 nobody can open the source, so
// the target equals it until step 5.
//
// Servers of a source that several share are told from their rows. Each looks at the mark before it
// puts its row there, and once more behind it. So one that the migration does not see after step 2
// sees the mark, and replaces it. After step 2 all that had opened the source are fenced off: a
// server that was suspended meanwhile can write no more when it wakes.
//
// A crash between steps 4 and 5 leaves two stores that refuse to be opened, and a target that names
// the same migration as the source. Running the migration again compares once more and takes step
// 5. The other order, the target first, could leave two stores that may both be opened. Each step
// is durable before the next one begins.
//
// Two processes that run the same migration do no harm: each batch of rows requires the mark of the
// target with the run that wrote it, so that the later process ends the earlier one.
//
// # What is not copied
//
// The row of the ID, which is made anew at the end, the rows of servers (package cluster), which
// are gone, and those of organizations (package organization), which are files beside a data
// folder: copied into one they would come back, old as they are, with the next migration. Files
// that no pool uses any more stay behind, as in a backup.
package migrate

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// Stores are one end of a migration.
type Stores struct {
	Keys  kv.Store
	Files file.Store
	// Place names both for people, without secrets.
	Place string
	// Claim, if not nil, makes sure that the files belong to the store with an ID, and returns the
	// name of their place. place is the name that the store knows, "" if its files were nowhere yet.
	Claim func(ctx context.Context, id, place string) (string, error)
}

// Options are the settings of [Run]. The zero value works.
type Options struct {
	// Watch is how long the source is watched for servers that use it, if there are traces of any; by
	// default as long as servers have patience with each other.
	Watch time.Duration
	// Progress, if not nil, is called now and then. It is not called concurrently.
	Progress func(Report)
}

// Report says what a migration has done.
type Report struct {
	// Phase is what is being done: "files", "rows" or "verify".
	Phase string
	// FileCount and FileBytes are what the source's rows name; CopiedCount and CopiedBytes what of it
	// was copied by this run.
	FileCount, FileBytes, CopiedCount, CopiedBytes int64
	// RemovedCount files of an earlier run were removed from the target.
	RemovedCount int64
	// RowCount and RowBytes are the rows of the source; ChangedCount of those in the target were
	// written or removed by this run.
	RowCount, RowBytes, ChangedCount int64
	// VerifiedCount rows of the target were read back.
	VerifiedCount int64
	// Sum is the SHA-256 of all rows, which are equal in both stores.
	Sum [sha256.Size]byte
}

// migration is a run.
type migration struct {
	from, to Stores
	options  Options
	report   Report
	marks    marks
}

// Run moves the repositories of one pair of stores to another, which is empty or holds an
// unfinished migration of the same store, and returns when that is durable. It goes on with an
// unfinished migration. No server may use the source. Memory: up to 64 MiB.
//
// A target that holds anything else is refused, and changed in nothing. After any error the source
// can be opened as before, unless all of it has been copied and only the end is missing.
func Run(ctx context.Context, from, to Stores, options Options) (Report, error) {
	m := &migration{from: from, to: to, options: options}
	if options.Progress == nil {
		m.options.Progress = func(Report) {}
	}
	for _, step := range []struct {
		phase string
		do    func(context.Context) error
	}{
		{"begin", m.begin},
		{"files", m.copyFiles},
		{"rows", m.copyRows},
		{"files", m.removeFiles},
		{"verify", m.verify},
		{"end", m.end},
	} {
		m.report.Phase = step.phase
		if err := step.do(ctx); err != nil {
			return m.report, fmt.Errorf("migrate: %w", err)
		}
	}
	return m.report, nil
}

// tell reports progress.
func (m *migration) tell() { m.options.Progress(m.report) }
