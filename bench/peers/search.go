package main

import (
	"context"
	"fmt"
	"net/http"
)

// readSamples is how many equal reads make a sample.
const readSamples = 10

// archiveJob archives the newest tree.
func archiveJob(ctx context.Context, b *bench, p peer) (operation, error) {
	return readJob(ctx, p, "repos/archive", map[string]any{"ref": b.source.tip}, "archive", "--format=tar.gz",
		b.source.tip)
}

// searchJob searches all of the newest tree for a pattern that is in none of its files, so that
// both sides answer with nothing.
func searchJob(pattern string) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		body := map[string]any{"ref": b.source.tip, "query": map[string]any{"pattern": pattern}}
		search := fmt.Sprintf("alias.searched=!git grep -I -n -E '%s' %s; test $? = 1", pattern, b.source.tip)
		return readJob(ctx, p, "repos/grep", body, "-c", search, "searched")
	}
}

// readJob asks the API with a body, and git with a command, some times one after the other.
func readJob(ctx context.Context, p peer, path string, body any, command ...string) (operation, error) {
	switch p := p.(type) {
	case apiPeer:
		requests, err := p.jsonRequests(ctx, repoPacked, path, "application/json", readSamples, func(int) []any {
			return []any{body}
		})
		return func(context.Context) (outcome, error) {
			return together(1, len(requests), func(i int) error { return receive(http.DefaultClient, requests[i]) })
		}, err
	case plumber:
		return plumbAll(p, repoPacked, readSamples, func(int) (stdin []byte, args []string) { return nil, command }), nil
	default:
		return nil, errCannot
	}
}
