package intent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// rowsMax bounds the intents that one Collect looks at, failuresMax the failures after which it
// ends.
const (
	rowsMax     = 50_000
	failuresMax = 100
)

// collecting is what a collector knows from one Collect to the next.
type collecting struct {
	run   sync.Mutex           // held during a Collect; guards since
	since map[string]time.Time // when it saw first that an intent was taken

	taken, removed   atomic.Uint64
	writing, waiting atomic.Int64
}

// Stats are the work of the collector of this process.
type Stats struct {
	// TakenCount is the number of intents taken from servers that have gone, RemovedCount the number
	// of intents whose files were removed.
	TakenCount, RemovedCount uint64
	// WritingCount is the number of intents of live servers at the last Collect, and WaitingCount that
	// of those which were taken, and stayed.
	WritingCount, WaitingCount int64
}

// Stats returns the counts since Open.
func (f *Files) Stats() Stats {
	c := &f.collecting
	return Stats{
		TakenCount: c.taken.Load(), RemovedCount: c.removed.Load(),
		WritingCount: c.writing.Load(), WaitingCount: c.waiting.Load(),
	}
}

// Collect takes the intents of servers that have gone, and removes the files of those that were
// taken at least grace ago, as this process has seen it: what a server sent before it was stopped
// may reach the store later. It may run on several servers at once. After a failure it goes on with
// the next intent, and returns the errors joined.
func (f *Files) Collect(ctx context.Context, grace time.Duration) error {
	c := &f.collecting
	c.run.Lock()
	defer c.run.Unlock()
	var all []stored
	var failures []error
	for found, err := range rows(ctx, f.keys) {
		switch {
		case err != nil && !errors.Is(err, kv.ErrCorrupt):
			return fmt.Errorf("collect files: %w", err)
		case err != nil:
			failures = append(failures, err)
		default:
			all = append(all, found)
		}
		if len(all) == rowsMax || len(failures) == failuresMax {
			break
		}
	}
	since := make(map[string]time.Time)
	var writing, waiting int64
	if len(all) > 0 {
		// Behind the rows: a server that wrote one had joined before, and never comes back once it is
		// missing.
		live, err := f.servers.Live(ctx)
		if err != nil {
			return fmt.Errorf("collect files: %w", err)
		}
		for i := range all {
			if _, lives := live[all[i].row.server]; lives {
				writing++
				continue
			}
			stays := true
			err := rescue.Do(func() (err error) { // a panic is the failure of one intent, too
				stays, err = f.collect(ctx, &all[i], since, grace)
				return err
			})
			if stays {
				waiting++
			}
			if err != nil {
				failures = append(failures, err)
			}
			if ctx.Err() != nil || len(failures) >= failuresMax {
				break
			}
		}
	}
	c.since = since
	c.writing.Store(writing)
	c.waiting.Store(waiting)
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("collect files: %w", err)
	}
	return nil
}

// collect does what is due about an intent whose server has gone. It reports whether the intent
// stays, and notes in since when it was first seen to be taken.
func (f *Files) collect(ctx context.Context, s *stored, since map[string]time.Time, grace time.Duration) (bool, error) {
	c := &f.collecting
	if s.row.server != nobody {
		err := takeRow(ctx, f.keys, []byte(s.key), []byte(s.value), &s.row)
		if errors.Is(err, kv.ErrConflict) { // the server was quicker, or another collector
			return false, nil
		}
		if err != nil {
			return true, err
		}
		s.value = string(s.row.encode())
		c.taken.Add(1)
		f.log.InfoContext(ctx, "taking the files of a server that has gone", "files", s.row.names())
	}
	first, known := c.since[s.key]
	if !known {
		first = time.Now()
	}
	since[s.key] = first
	if time.Since(first) < max(grace, s.row.graceMin()) {
		return true, nil
	}
	for _, file := range s.row.files {
		if err := f.discard(ctx, file); err != nil {
			return true, err
		}
	}
	// The row goes last: what is left after a crash is found by it.
	b := kv.NewBatch()
	b.Require([]byte(s.key), []byte(s.value))
	b.Delete([]byte(s.key))
	if err := apply(ctx, f.keys, b); err != nil {
		if errors.Is(err, kv.ErrConflict) { // another collector was quicker
			return false, nil
		}
		return true, err
	}
	delete(since, s.key)
	c.removed.Add(1)
	return false, nil
}

// discard removes what may be left of a file.
func (f *Files) discard(ctx context.Context, file noted) error {
	return f.remote.Discard(ctx, file.name, file.upload)
}

// names returns the names of the files.
func (r *row) names() []string {
	names := make([]string, len(r.files))
	for i, f := range r.files {
		names[i] = f.name
	}
	return names
}

// graceMin returns how long the files stay at least. That of a probe may be in use, since its
// server has not joined yet.
func (r *row) graceMin() time.Duration {
	for _, f := range r.files {
		if strings.HasSuffix(f.name, probeSuffix) {
			return probeTime
		}
	}
	return 0
}

// Named returns which of some files intents name.
func Named(ctx context.Context, keys kv.Reader, names map[string]bool) error {
	for found, err := range rows(ctx, keys) {
		if err != nil {
			return err
		}
		for _, file := range found.row.files {
			if _, asked := names[file.name]; asked {
				names[file.name] = true
			}
		}
	}
	return nil
}

// Count returns the number of intents by their servers; those that were taken are nobody's, the
// zero ID.
func Count(ctx context.Context, keys kv.Reader) (map[ServerID]int, error) {
	counts := make(map[ServerID]int)
	for found, err := range rows(ctx, keys) {
		if err != nil {
			return nil, err
		}
		counts[found.row.server]++
	}
	return counts, nil
}
