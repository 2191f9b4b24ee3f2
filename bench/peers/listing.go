package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// listSamples is how many equal reads make a sample.
const listSamples = 20

// listCommitsJob lists the newest commits of the default branch.
func listCommitsJob(ctx context.Context, b *bench, p peer) (operation, error) {
	const format = "--format=%H%x00%P%x00%an%x00%ae%x00%cn%x00%ce%x00%cI%x00%B"
	query := url.Values{"branch": {strings.TrimPrefix(b.source.branch, "refs/heads/")}, "limit": {"20"}}
	return listJob(ctx, p, listSamples, func(int) (string, []string) {
		return "repos/commits?" + query.Encode(), []string{"log", "-20", format, b.source.branch}
	})
}

// listFilesJob lists the whole tree of the default branch.
func listFilesJob(ctx context.Context, b *bench, p peer) (operation, error) {
	return listJob(ctx, p, listSamples, func(int) (string, []string) {
		return "repos/files?" + url.Values{"ref": {b.source.branch}}.Encode(), []string{"ls-tree", "-r", "-t", b.source.tip}
	})
}

// lastCommitsJob lists the whole tree with the last commit of every file: of the tip again and
// again, or cold, of commits that were not requested before, each older than the one before, so
// that nothing is known of its history. git shows the walk that has the answer in it.
func lastCommitsJob(cold bool) func(context.Context, *bench, peer) (operation, error) {
	return func(ctx context.Context, b *bench, p peer) (operation, error) {
		commits := []string{b.source.tip}
		samples := listSamples
		if cold {
			samples = 3
			listed, err := b.source.git(ctx, "rev-list", "--first-parent", fmt.Sprintf("--skip=%d", b.asked),
				fmt.Sprintf("--max-count=%d", samples), b.source.tip)
			if err != nil {
				return nil, err
			}
			b.asked += samples
			if commits = strings.Fields(listed); len(commits) < samples {
				return nil, errCannot
			}
		}
		return listJob(ctx, p, samples, func(i int) (string, []string) {
			commit := commits[i%len(commits)]
			return "repos/files/metadata?ref=" + commit, []string{"log", "--format=%H", "--name-only", commit}
		})
	}
}

// listJob reads from the repository that holds the source, one request after the other, or runs
// git's equivalent.
func listJob(
	ctx context.Context, p peer, count int, read func(i int) (path string, command []string),
) (operation, error) {
	switch p := p.(type) {
	case apiPeer:
		token, err := p.token(ctx, repoPacked)
		if err != nil {
			return nil, err
		}
		requests := make([]*http.Request, count)
		for i := range requests {
			path, _ := read(i)
			if requests[i], err = p.getRequest(ctx, token, path); err != nil {
				return nil, err
			}
		}
		return func(context.Context) (outcome, error) {
			return together(1, count, func(i int) error { return receive(http.DefaultClient, requests[i]) })
		}, nil
	case plumber:
		return plumbAll(p, repoPacked, count, func(i int) (stdin []byte, args []string) {
			_, command := read(i)
			return nil, command
		}), nil
	default:
		return nil, errCannot
	}
}

// receive sends a request that reads something. The answer is read to its end and dropped.
func receive(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		return fmt.Errorf("%s %s: %s: %s, %w", request.Method, request.URL.Path, response.Status, body, err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
