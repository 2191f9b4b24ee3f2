package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bench runs jobs on peers, in turns.
type bench struct {
	dir    string // scratch
	source source
	runs   int
	refs   int           // branches of repoRefs
	large  int           // bytes of a large file
	pause  time.Duration // between two looks whether a server rests
	log    io.Writer

	idle map[string]int64 // anonymous memory of each peer before the first request
	made int              // repositories, commits and folders made so far, for new names

	asked  int // commits, from the tip on, whose files have been listed cold
	merged int // samples of merges that were made of packhorse
}

// Repositories that every peer has before the first job.
const (
	repoPushed = "pushed" // as the push left it
	repoPacked = "packed" // after the peer's maintenance
	repoRefs   = "refs"   // of many branches, likewise maintained
)

// sample is the cost of one operation of a job, averaged over a round.
type sample struct {
	wall      time.Duration
	firstByte time.Duration // to the first byte of a pack, 0 without a pack
	cpu       time.Duration // of the server
	after     time.Duration // CPU time of the server from the end of the job until it rests, 0 for next to nothing
	memory    int64         // peak anonymous memory of the server above its idle
	added     int64         // the same above the value at the beginning of the round
	bytes     int64         // of packs
	objects   int64         // in packs
}

// result is every sample of a job.
type result struct {
	job     job
	samples map[string][]sample // by peer
}

// prepare fills the peers.
func (b *bench) prepare(ctx context.Context, peers []peer) error {
	refs, err := b.manyRefs(ctx)
	if err != nil {
		return err
	}
	b.idle = map[string]int64{}
	for _, p := range peers {
		t, err := readTree(p.pid())
		if err != nil {
			return err
		}
		b.idle[p.name()] = t.anonymous
		b.logf("%s: filling", p.name())
		for _, repo := range []struct {
			name, from string
		}{{repoPushed, b.source.dir}, {repoPacked, b.source.dir}, {repoRefs, refs}} {
			to, err := p.create(ctx, repo.name)
			if err != nil {
				return err
			}
			if err := pushAll(ctx, repo.from, to); err != nil {
				return err
			}
		}
		if err := errors.Join(p.repack(ctx, repoPacked), p.repack(ctx, repoRefs)); err != nil {
			return err
		}
	}
	return nil
}

// manyRefs makes a bare repository of one commit and many branches.
func (b *bench) manyRefs(ctx context.Context) (string, error) {
	dir := filepath.Join(b.dir, "refs.git")
	if err := run(exec.CommandContext(ctx, "git", "init", "-q", "--bare", "-b", "main", dir)); err != nil {
		return "", err
	}
	var stream strings.Builder
	stream.WriteString(
		"commit refs/heads/main\ncommitter Bench <bench@example.com> 1700000000 +0000\ndata 4\none\nM 100644 inline f\ndata 2\n1\n\n",
	)
	for i := range b.refs - 1 {
		fmt.Fprintf(&stream, "reset refs/heads/topic/%04d\nfrom refs/heads/main\n\n", i)
	}
	imports := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
	imports.Stdin = strings.NewReader(stream.String())
	return dir, run(imports)
}

// pushAll pushes every branch and tag with git.
func pushAll(ctx context.Context, from string, to remote) error {
	return run(exec.CommandContext(ctx, "git", "-C", from, "push", "--quiet", to.gitURL, "refs/heads/*:refs/heads/*",
		"refs/tags/*:refs/tags/*"))
}

// run does one job on all peers that can do it: a round that is not counted, then the measured
// ones, with the order of the peers turned round each time.
func (b *bench) run(ctx context.Context, j job, peers []peer) (result, error) {
	if b.idle == nil {
		if err := b.prepare(ctx, peers); err != nil {
			return result{}, err
		}
	}
	r := result{job: j, samples: map[string][]sample{}}
	order := slices.Clone(peers)
	for round := range b.runs + 1 {
		slices.Reverse(order)
		for _, p := range order {
			s, err := b.round(ctx, j, p)
			switch {
			case errors.Is(err, errCannot):
				continue
			case err != nil:
				return r, fmt.Errorf("%s: %w", p.name(), err)
			}
			if round > 0 {
				r.samples[p.name()] = append(r.samples[p.name()], s)
			}
			b.logf("%-34s %-17s wall %9s  cpu %9s  memory %6.1f MiB", j.name, p.name(), s.wall.Round(10*time.Microsecond),
				s.cpu.Round(10*time.Microsecond), float64(s.memory)/(1<<20))
		}
	}
	return r, nil
}

// round does a job once on one peer.
func (b *bench) round(ctx context.Context, j job, p peer) (sample, error) {
	operation, err := j.prepare(ctx, b, p)
	if err != nil {
		return sample{}, err
	}
	if _, err := rest(ctx, p.pid(), b.pause); err != nil {
		return sample{}, err
	}
	var got outcome
	var wall time.Duration
	used, err := measure(ctx, p.pid(), func() error {
		began := time.Now()
		got, err = operation(ctx)
		wall = time.Since(began)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	after, err := rest(ctx, p.pid(), b.pause)
	if err != nil {
		return sample{}, err
	}
	count := time.Duration(max(got.count, 1))
	s := sample{
		wall: wall / count, cpu: (used.cpu + got.cpu) / count, after: after / count,
		memory: max(used.anonymous-b.idle[p.name()], 0), added: used.added,
		firstByte: got.pack.firstByte, bytes: got.pack.bytes, objects: got.pack.objects,
	}
	if len(got.each) > 0 {
		s.wall = median(got.each)
	}
	return s, nil
}

// fresh returns a name that no earlier call has returned.
func (b *bench) fresh(prefix string) string {
	b.made++
	return fmt.Sprintf("%s-%d", prefix, b.made)
}

func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, format+"\n", args...) // progress, for the user
}

// median returns the middle one, of an even number the lower.
func median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
