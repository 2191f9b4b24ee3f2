package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// job is a question to a peer.
type job struct {
	name string
	note string // the exact request
	// prepare does the unmeasured preparation, and returns the operation. Errors: errCannot when the
	// peer does not support the job.
	prepare func(ctx context.Context, b *bench, p peer) (operation, error)
}

type operation func(ctx context.Context) (outcome, error)

// outcome is the result of a round of a job.
type outcome struct {
	count int             // operations, 0 means one
	each  []time.Duration // of each operation, when the median one is asked for
	cpu   time.Duration   // of commands that stood in for a server
	pack  received
}

// errCannot says that a job does not apply.
var errCannot = errors.New("not supported by the peer")

// jobs lists the questions in the order of the report.
func jobs() []job {
	return []job{
		{"push all", "every branch and tag into an empty repository, with git push", pushJob},
		{
			"full clone", "every branch and tag; the peer's repository has been repacked; the pack is dropped",
			cloneJob(repoPacked, nil),
		},
		{"full clone right after a push", "the same, nothing repacked yet", cloneJob(repoPushed, nil)},
		{"git clone --mirror", "with git, which indexes the pack", mirrorJob},
		{"depth 1", "the default branch, first level; nothing cached", tipJob("deepen 1")},
		{"depth 1, 8 clients", "the same, equal requests, time per clone", depthTogetherJob(8, 64)},
		{"blob:none", "every branch and tag without file contents", cloneJob(repoPacked, []string{"filter blob:none"})},
		{
			"last 100 commits", "a fetch by a client that has the rest; git answers by its bitmaps, sooner and with more bytes",
			incrementalJob(asItIs),
		},
		{
			"last 100 commits, no bitmaps",
			"the same; git answers without its bitmaps, with about as many bytes as packhorse", incrementalJob(withoutBitmaps),
		},
		{"ls-refs", "5,000 refs, one client, median", refsJob(1, 60)},
		{"ls-refs, 8 clients", "5,000 refs, time per answer", refsJob(8, 400)},
		{"push one commit", "discovery and push of a prepared pack, median", pushOneJob},
		{"create a repository", "API, median", createJob},
		{"one-file commit", "API, one client, median", commitJob(1, 200)},
		{"one-file commits, 16 clients", "API, one repository, time per commit", commitJob(16, 4_000)},
		{"commit from a patch", "API, one client, median; for git, the plumbing that makes the same commit", patchJob},
		{"add a note", "API, one client, median; for git, `git notes add`", noteJob},
		{
			"200 merges",
			"API, previews of the newest merges of the history, one client, median; for git, `git merge-tree --stdin`",
			mergeJob(1),
		},
		{"200 merges, 2 clients", "the same, time per merge", mergeJob(2)},
		{"list 20 commits", "API, median; for git, `git log -20`", listCommitsJob},
		{"list the whole tree", "API, median; for git, `git ls-tree -r -t`", listFilesJob},
		{"files with last commits, cold", "API, median; for git, one `git log --name-only`", lastCommitsJob(true)},
		{"files with last commits, warm", "the same, asked before", lastCommitsJob(false)},
		{"commit of 100 files", "API, one call, median; for git, one `git fast-import` each", filesJob},
		{"diffs of 1,000 commits", "API, two clients, time per diff; for git, one `git diff-tree --stdin -p -M`", diffsJob},
		{"diff of 300-400 files", "API, one commit; for git, `git diff-tree -p -M`", bigDiffJob},
		{"blame of 20 files", "API, one client, time per file; for git, a `git blame --porcelain` each", blameJob},
		{"commit of one 100 MiB file, random", "API, one call; for git, `git hash-object -w` alone", bigFileJob(randomBytes)},
		{"commit of one 100 MiB file, text", "the same with words that compress", bigFileJob(randomText)},
		{"archive", "API, the newest tree, median; for git, `git archive --format=tar.gz`", archiveJob},
		{
			"search, a word", "API, the newest tree for what is not there, median; for git, `git grep -I -E`",
			searchJob("packhorses?[0-9]"),
		},
		{"search, no word", "the same with a pattern that no literal stands in", searchJob("[QXZ][qxz]{3}[QXZ]")},
	}
}

func pushJob(ctx context.Context, b *bench, p peer) (operation, error) {
	to, err := p.create(ctx, b.fresh("push"))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (outcome, error) { return outcome{}, pushAll(ctx, b.source.dir, to) }, nil
}

// cloneJob fetches all refs with a client of ours. arguments are lines of the fetch.
func cloneJob(repo string, arguments []string) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, _ *bench, p peer) (operation, error) {
		r, err := p.remote(ctx, repo)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (outcome, error) {
			if err := forget(p); err != nil {
				return outcome{}, err
			}
			c := newClient(r)
			defer c.close()
			if err := c.discover(ctx, "git-upload-pack"); err != nil {
				return outcome{}, err
			}
			refs, err := c.lsRefs(ctx)
			if err != nil {
				return outcome{}, err
			}
			var wants []string
			for _, ref := range refs {
				wants = append(wants, ref.id)
			}
			slices.Sort(wants)
			pack, err := c.fetch(ctx, slices.Compact(wants), nil, arguments)
			return outcome{pack: pack}, err
		}, nil
	}
}

func mirrorJob(ctx context.Context, b *bench, p peer) (operation, error) {
	r, err := p.remote(ctx, repoPacked)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, b.fresh("mirror"))
	return func(ctx context.Context) (outcome, error) {
		return outcome{}, run(exec.CommandContext(ctx, "git", "clone", "--quiet", "--mirror", r.gitURL, dir))
	}, nil
}

// tipJob fetches the tip of the default branch.
func tipJob(arguments ...string) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		r, err := p.remote(ctx, repoPacked)
		if err != nil {
			return nil, err
		}
		return fetchJob(b, p, r, nil, arguments), nil
	}
}

// depthTogetherJob has some clients fetch the first level of the default branch, over and over.
func depthTogetherJob(clients, count int) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		r, err := p.remote(ctx, repoPacked)
		if err != nil {
			return nil, err
		}
		c := newClient(r)
		return func(ctx context.Context) (outcome, error) {
			defer c.close()
			packs := make([]received, count)
			got, err := together(clients, count, func(i int) (err error) {
				packs[i], err = c.fetch(ctx, []string{b.source.tip}, nil, []string{"deepen 1"})
				return err
			})
			got.pack = packs[count-1]
			return got, err
		}, nil
	}
}

// incrementalJob fetches the commits of the repository of find that a client of some commits ago
// lacks.
func incrementalJob(
	find func(ctx context.Context, p peer, repo string) (remote, error),
) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		if b.source.older == "" {
			return nil, errCannot
		}
		r, err := find(ctx, p, repoPacked)
		if err != nil {
			return nil, err
		}
		return fetchJob(b, p, r, []string{b.source.older}, nil), nil
	}
}

func asItIs(ctx context.Context, p peer, repo string) (remote, error) { return p.remote(ctx, repo) }

// withoutBitmaps returns a repository that the peer serves without bitmaps.
func withoutBitmaps(ctx context.Context, p peer, repo string) (remote, error) {
	if plain, ok := p.(bitmapPeer); ok {
		return plain.withoutBitmaps(ctx, repo)
	}
	return p.remote(ctx, repo)
}

// fetchRepeats is how many equal small fetches make a sample, so that the clock of CPU time is fine
// enough.
const fetchRepeats = 5

func fetchJob(b *bench, p peer, r remote, haves, arguments []string) operation {
	c := newClient(r)
	return func(ctx context.Context) (_ outcome, err error) {
		defer c.close()
		got := outcome{count: fetchRepeats}
		var firstBytes []time.Duration
		for range fetchRepeats {
			if err := forget(p); err != nil {
				return got, err
			}
			began := time.Now()
			if got.pack, err = c.fetch(ctx, []string{b.source.tip}, haves, arguments); err != nil {
				return got, err
			}
			got.each = append(got.each, time.Since(began))
			firstBytes = append(firstBytes, got.pack.firstByte)
		}
		got.pack.firstByte = median(firstBytes)
		return got, nil
	}
}

func refsJob(clients, count int) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		r, err := p.remote(ctx, repoRefs)
		if err != nil {
			return nil, err
		}
		c := newClient(r)
		return func(ctx context.Context) (outcome, error) {
			defer c.close()
			return together(clients, count, func(int) error {
				count := 0
				err := c.eachRef(ctx, func([]byte) error { count++; return nil })
				if err == nil && count < b.refs {
					err = fmt.Errorf("%d refs", count)
				}
				return err
			})
		}, nil
	}
}

// pushOneCount is how many commits are pushed one after the other in a sample.
const pushOneCount = 20

func pushOneJob(ctx context.Context, b *bench, p peer) (operation, error) {
	chain := b.fresh("chain")
	commits, err := deliveries(ctx, b.source, b.dir, chain, pushOneCount+1)
	if err != nil {
		return nil, err
	}
	r, err := p.remote(ctx, repoPushed)
	if err != nil {
		return nil, err
	}
	c := newClient(r)
	ref := "refs/heads/" + chain
	first := commits[0]
	first.before = "0000000000000000000000000000000000000000" // makes the branch
	if err := c.push(ctx, ref, first); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (outcome, error) {
		defer c.close()
		return together(1, pushOneCount, func(i int) error { return c.push(ctx, ref, commits[i+1]) })
	}, nil
}

func createJob(ctx context.Context, b *bench, p peer) (operation, error) {
	api, ok := p.(apiPeer)
	if !ok {
		return nil, errCannot
	}
	requests := make([]*http.Request, 50)
	for i := range requests {
		var err error
		if requests[i], err = api.createRequest(ctx, b.fresh("created")); err != nil {
			return nil, err
		}
	}
	return func(context.Context) (outcome, error) {
		return together(1, len(requests), func(i int) error {
			return send(http.DefaultClient, requests[i])
		})
	}, nil
}

// commitJob commits small files, spread over folders of 100, to one new repository.
func commitJob(clients, count int) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		api, ok := p.(apiPeer)
		if !ok {
			return nil, errCannot
		}
		repo := b.fresh("commits")
		if _, err := api.create(ctx, repo); err != nil {
			return nil, err
		}
		token, err := api.token(ctx, repo)
		if err != nil {
			return nil, err
		}
		requests := make([]*http.Request, count)
		for i := range requests {
			path := fmt.Sprintf("dir%02d/file%04d.txt", i/100, i)
			if requests[i], err = api.commitRequest(
				ctx, token, upload{path, fmt.Appendf(nil, "content of %s\n", path)},
			); err != nil {
				return nil, err
			}
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
		return func(context.Context) (outcome, error) {
			defer client.CloseIdleConnections()
			return together(clients, count, func(i int) error { return send(client, requests[i]) })
		}, nil
	}
}

// together does count operations with some clients at once, and times each when there is one
// client.
func together(clients, count int, do func(i int) error) (outcome, error) {
	got := outcome{count: count}
	if clients == 1 {
		for i := range count {
			began := time.Now()
			if err := do(i); err != nil {
				return got, err
			}
			got.each = append(got.each, time.Since(began))
		}
		return got, nil
	}
	next := make(chan int)
	failed := make([]error, clients)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for i := range next {
				if failed[client] == nil {
					failed[client] = do(i)
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	running.Wait()
	return got, errors.Join(failed...)
}
