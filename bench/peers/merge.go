package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"packhorse/bench/process"
)

// mergeSamples is how many merges of the history are made again.
const mergeSamples = 200

// mergeJob repeats the newest merges of the repository, and stores nothing: for git, in one
// process.
func mergeJob(clients int) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		pairs, err := mergedPairs(ctx, b.source.dir)
		if err != nil {
			return nil, err
		}
		repo := repoPushed
		switch p := p.(type) {
		case apiPeer:
			b.merged++
			requests, err := previews(ctx, p, repo, b.merged, pairs)
			return func(context.Context) (outcome, error) {
				return together(clients, len(requests), func(i int) error { return send(http.DefaultClient, requests[i]) })
			}, err
		case plumber:
			var lines bytes.Buffer
			for _, pair := range pairs {
				fmt.Fprintf(&lines, "%s %s\n", pair[0], pair[1])
			}
			return func(ctx context.Context) (outcome, error) {
				began := time.Now()
				used, err := p.plumb(ctx, repo, lines.Bytes(), "merge-tree", "--write-tree", "--stdin", "--name-only",
					"--allow-unrelated-histories")
				got := outcome{count: len(pairs), cpu: used}
				for range pairs {
					got.each = append(got.each, time.Since(began)/time.Duration(len(pairs)))
				}
				return got, err
			}, nil
		default:
			return nil, errCannot
		}
	}
}

// mergedPairs returns the parents of the newest merges of two, unrelated histories apart: no
// preview is made of these.
func mergedPairs(ctx context.Context, dir string) ([][2]string, error) {
	out, err := process.Output(exec.CommandContext(ctx, "git", "-C", dir, "rev-list", "--branches", "--min-parents=2",
		"--max-parents=2", "--parents",
		fmt.Sprint("--max-count=", 2*mergeSamples)))
	if err != nil {
		return nil, err
	}
	var pairs [][2]string
	for line := range strings.Lines(out) {
		ids := strings.Fields(line)
		if len(ids) != 3 || len(pairs) == mergeSamples {
			continue
		}
		switch _, err := process.Output(exec.CommandContext(ctx, "git", "-C", dir, "merge-base", ids[1], ids[2])); {
		case err == nil:
			pairs = append(pairs, [2]string{ids[1], ids[2]})
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
	if len(pairs) == 0 {
		return nil, errCannot
	}
	return pairs, nil
}

// previews makes an ephemeral branch of each parent, in a folder of its own for each sample, and a
// request for the preview of each merge.
func previews(ctx context.Context, p apiPeer, repo string, sample int, pairs [][2]string) ([]*http.Request, error) {
	name := func(i int) string { return fmt.Sprintf("sample%d/merge%d-side%d", sample, i/2, i%2) }
	branches, err := p.jsonRequests(ctx, repo, "repos/branches/create", "application/json", 2*len(pairs),
		func(i int) []any {
			return []any{map[string]any{"target_branch": name(i), "target_is_ephemeral": true, "base_ref": pairs[i/2][i%2]}}
		})
	if err != nil {
		return nil, err
	}
	if _, err := sendAll(branches)(ctx); err != nil {
		return nil, err
	}
	token, err := p.token(ctx, repo)
	if err != nil {
		return nil, err
	}
	requests := make([]*http.Request, len(pairs))
	for i := range requests {
		query := url.Values{
			"target_branch": {name(2 * i)}, "source_branch": {name(2*i + 1)},
			"target_is_ephemeral": {"true"}, "source_is_ephemeral": {"true"},
		}
		if requests[i], err = p.getRequest(ctx, token, "repos/merge/preview?"+query.Encode()); err != nil {
			return nil, err
		}
	}
	return requests, nil
}
