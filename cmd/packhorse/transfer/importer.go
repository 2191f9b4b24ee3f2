package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"packhorse/cmd/packhorse/apiclient"
	"packhorse/engine/upstream/remote"
	"packhorse/odb/rescue"
)

// Importer brings repositories to a server.
type Importer struct {
	Server *apiclient.Server
	Jobs   int  // at a time
	DryRun bool // only tells what would be done
	// CommandsMax is how many refs one push changes; 0 is 5,000.
	CommandsMax int
	// Retries is how often a job begins again when the server or the origin is not available.
	Retries int
	// Begun, if set, is called when a job begins. Ended is called with each result. Both may be called
	// concurrently.
	Begun func(*Meter)
	Ended func(*Meter, Result)
}

// Run brings the repositories and returns when all have ended. What was brought stays when ctx
// ends; jobs that have not begun then have no result.
//
// A repository that the server has is compared, and gets the refs that it lacks. Refs of the server
// that the origin does not have stay. Running it again, also after it was killed, goes on where it
// ended.
func (i *Importer) Run(ctx context.Context, jobs []Job) {
	queue := make(chan Job)
	var workers sync.WaitGroup
	for range max(i.Jobs, 1) {
		rescue.Go(&workers, func() error {
			for job := range queue {
				i.run(ctx, job)
			}
			return nil
		}, func(error) {}) // a job's own panic is its result: see run
	}
	for _, job := range jobs {
		select {
		case queue <- job:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	workers.Wait()
}

// run brings one repository, and tells how that ended.
func (i *Importer) run(ctx context.Context, job Job) {
	if ctx.Err() != nil {
		return
	}
	meter := &Meter{Job: job}
	if i.Begun != nil {
		i.Begun(meter)
	}
	begun := time.Now()
	result := Result{Job: job}
	err := rescue.Do(func() error { return i.attempts(ctx, job, meter, &result) })
	if err != nil {
		result.Outcome, result.Err = Failed, err
	}
	result.Bytes, _ = meter.Sent()
	result.Took = time.Since(begun)
	i.Ended(meter, result)
}

// Reach asks the server whether it takes the tokens. It asks again while the server is not
// available. Errors: those of [apiclient.Server.Reach].
func (i *Importer) Reach(ctx context.Context) error {
	return i.retry(ctx, func() error { return i.Server.Reach(ctx) })
}

// attempts brings a repository, and begins again while something is not available.
func (i *Importer) attempts(ctx context.Context, job Job, meter *Meter, result *Result) error {
	if job.err != nil {
		return job.err
	}
	return i.retry(ctx, func() error { return i.bring(ctx, job, meter, result) })
}

// retry calls do again while it fails because something is not available.
func (i *Importer) retry(ctx context.Context, do func() error) error {
	wait := time.Second
	for attempt := 0; ; attempt++ {
		err := do()
		if err == nil || attempt >= i.Retries || !transient(err) {
			return err
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// transient reports whether the same request may succeed later.
func transient(err error) bool {
	if answer, ok := errors.AsType[*apiclient.Error](err); ok {
		return answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable
	}
	_, broken := errors.AsType[net.Error](err)
	return broken || errors.Is(err, remote.ErrUnavailable)
}

// bring makes the repository of the server equal to its origin.
func (i *Importer) bring(ctx context.Context, job Job, meter *Meter, result *Result) (err error) {
	from, err := job.origin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	theirs, head, skipped, err := from.refs(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", job.From, err)
	}
	result.Skipped = skipped
	ours, err := i.Server.Remote(job.Name, "", hostLimits).Refs(ctx)
	exists := !errors.Is(err, remote.ErrNotFound)
	if err != nil && exists {
		return err
	}
	if !exists {
		ours = new(remote.Advertisement)
	}
	p := &pushing{
		importer: i, job: job, from: from, meter: meter, head: head, changes: compare(ours.Refs, theirs, head),
		ours: ours.Refs, exists: exists,
	}
	result.Refs = len(p.changes)
	switch {
	case len(ours.Refs) == 0 && (!exists || len(p.changes) > 0):
		result.Outcome = Imported
	case len(p.changes) > 0:
		result.Outcome = Updated
	default:
		result.Outcome = Equal
		return nil
	}
	if i.DryRun {
		return nil
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	if exists && len(ours.Refs) == 0 && head != "" && head != ours.Head {
		return i.Server.SetDefaultBranch(ctx, job.Name, branchName(head))
	}
	return nil
}
