package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"packhorse/engine"
	"packhorse/odb/packgen"
)

// gcCommand maintains a data folder now.
type gcCommand struct {
	Grace       *time.Duration `help:"How long unreachable objects are kept, and at most the history that repositories can be read at; by default that of the server, or 336h and --keep-history."`
	ReaderGrace time.Duration  `help:"How long obsolete files are kept at least, for copies of the stores." default:"0s"`
	Geometric   bool           `help:"Merge segments geometrically instead of into one for each repository."`
	Anew        bool           `help:"Recompute all deltas: smaller results, much slower."`
	Cores       int            `help:"Number of cores for the delta search." default:"2" min:"1"`

	Orgs string `help:"Folder of organizations, whose keep_history counts when no server has the folder open. Without it, and without --grace, no history is given up then." placeholder:"DIR" type:"path" is:"folder"`

	RemoveUnregistered bool `help:"Remove the files of the bucket that nothing names, such as older releases have left. No server of an older release may be running."`

	taskFlags
}

// gcArgs are the arguments of the task.
type gcArgs struct {
	Grace              *time.Duration // nil: that of the host
	ReaderGrace        time.Duration
	Geometric, Anew    bool
	Cores              int
	RemoveUnregistered bool
}

// Run maintains through the server that has the folder open, or opens it itself.
func (c gcCommand) Run(ctx context.Context, to streams) error {
	kept, err := c.openOrgs(to)
	if err != nil {
		return err
	}
	defer kept.close()
	args := gcArgs{c.Grace, c.ReaderGrace, c.Geometric, c.Anew, c.Cores, c.RemoveUnregistered}
	return c.runWith(ctx, "gc", args, outside{keepHistory: kept.history, openOrgs: kept.follow}, to)
}

var errMaintenance = errors.New("maintenance failed for some repositories")

// runGC maintains every repository, and prints the results.
func runGC(ctx context.Context, host *engine.Host, args gcArgs, out io.Writer) error {
	shown := newProgress(out)
	count, _, _, err := host.CountRepositories(ctx)
	if err != nil {
		return err
	}
	before, err := host.CountFiles(ctx)
	if err != nil {
		return err
	}
	var repositories, failed, rewritten, pruned int
	name := "" // of the repository in maintenance
	options := engine.MaintainOptions{
		ReaderGrace: orNone(args.ReaderGrace), All: !args.Geometric,
		Begins: func(org, repository string) { name = org + "/" + repository },
		Waiting: func() {
			// If this cannot be written, neither can the result, whose error is returned.
			_, _ = fmt.Fprintln(out, "waiting for the running maintenance of the server to end")
		},
		RepackOptions: packgen.RepackOptions{
			Workers: args.Cores, Anew: args.Anew,
			Progress: func(phase string, done, total int64) {
				shown.tell(step{
					phase: name + " " + phase, text: fmt.Sprintf("repository %d of %d, %s: %s", repositories+1, count, name, phase),
					done: done, total: total,
				})
			},
		},
	}
	if args.Grace != nil {
		options.Grace = orNone(*args.Grace)
	}
	for done, err := range host.Maintain(ctx, options) {
		if err != nil {
			return fmt.Errorf("failed to finish maintenance: %w", err)
		}
		repositories++
		rewritten += done.Compacted.ObjectCount
		pruned += done.PrunedCount
		if done.Err == nil {
			continue
		}
		failed++
		if _, err := fmt.Fprintf(out, "%s/%s: %v\n", done.Org, done.Name, done.Err); err != nil {
			return err
		}
	}
	after, err := host.CountFiles(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s, %s rewritten, %d pruned, %s failed; %s before, %s now\n",
		quantity(repositories, "repository"), quantity(rewritten, "object"), pruned, quantity(failed, "repository"),
		bytesOf(before.Total()), bytesOf(after.Total()))
	if err == nil && args.RemoveUnregistered {
		err = removeUnregistered(ctx, host, out)
	}
	if err == nil && failed > 0 {
		err = errMaintenance
	}
	return err
}

// removeUnregistered removes the files that nothing names, and prints how many these were.
func removeUnregistered(ctx context.Context, host *engine.Host, out io.Writer) error {
	count, bytes, err := host.RemoveUnregistered(ctx)
	if err != nil {
		return fmt.Errorf("--remove-unregistered: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s of %s removed that nothing named\n", quantity(count, "file"), quantity(bytes, "byte"))
	return err
}

// orNone turns the value of a flag into that of an option: 0 becomes -1, because 0 stands for the
// default there.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
