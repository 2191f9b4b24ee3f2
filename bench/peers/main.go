// Command peers runs the same jobs on packhorse and on other git servers, on one machine and in one
// run, and writes the costs as a Markdown table and a plot.
//
// It is started by `make bench-peers`; bench/README.md explains the numbers. Start at [jobs].
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// settings are the command's flags.
type settings struct {
	packhorse string // the binary
	against   string // another packhorse binary to measure beside; "" for git http-backend
	repo      string // bare repository to push and read; "" generates one
	runs      int    // measured rounds of every job, after one that is not
	only      *regexp.Regexp
	out       string // folder of results
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	var only, repos string
	flag.StringVar(&s.packhorse, "packhorse", "bin/packhorse", "the packhorse `binary`")
	flag.StringVar(&s.against, "against", "",
		"another packhorse `binary`, of an older version, to measure beside instead of git http-backend")
	flag.StringVar(&repos, "repo", os.Getenv("BENCH_REPOS"),
		"local bare `repositories`, comma-separated; by default a generated one (BENCH_REPOS)")
	flag.IntVar(&s.runs, "runs", 5, "measured `rounds` of every job")
	flag.StringVar(&only, "only", "", "jobs whose names match this `regexp`")
	flag.StringVar(&s.out, "out", "bench/results", "`folder` of the results")
	flag.Parse()

	err := func() (err error) {
		if s.only, err = regexp.Compile(only); err != nil {
			return err
		}
		if s.packhorse, err = filepath.Abs(s.packhorse); err != nil {
			return err
		}
		if s.against != "" {
			if s.against, err = filepath.Abs(s.against); err != nil {
				return err
			}
		}
		for repo := range strings.SplitSeq(repos, ",") {
			s.repo = repo
			if err := compare(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

const (
	refsCount  = 5_000     // how many refs the listing of refs lists
	largeBytes = 100 << 20 // the size of a large file
)

// compare runs every job with one repository, and writes its report.
func compare(ctx context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "packhorse-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	src, err := openSource(ctx, s.repo, dir)
	if err != nil {
		return err
	}
	ours, err := startPackhorse(ctx, sideOurs, s.packhorse, filepath.Join(dir, "packhorse"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	peers := []peer{ours}
	var theirs peer
	side := sideGit
	if s.against != "" {
		side = sideAgainst
		theirs, err = startPackhorse(ctx, side, s.against, filepath.Join(dir, "against"))
	} else {
		theirs, err = startHTTPBackend(ctx, filepath.Join(dir, "git"))
	}
	switch {
	case errors.Is(err, errNoPeer):
		fmt.Fprintln(os.Stderr, "peers: git http-backend skipped:", err)
	case err != nil:
		return err
	default:
		defer func() { err = errors.Join(err, theirs.stop()) }()
		peers = append(peers, theirs)
	}

	b := &bench{dir: dir, source: src, runs: s.runs, refs: refsCount, large: largeBytes, pause: restPause, log: os.Stderr}
	var results []result
	for _, j := range jobs() {
		if !s.only.MatchString(j.name) {
			continue
		}
		result, err := b.run(ctx, j, peers)
		if err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
		results = append(results, result)
	}
	report := report{source: src, theirs: side, runs: s.runs, machine: machine(ctx, s.packhorse), results: results}
	return report.write(s.out, cmp.Or(src.name, "generated"))
}
