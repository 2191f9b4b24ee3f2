package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
)

// diffCount is how many commits of the history are compared with their parents.
const diffCount = 1_000

// diffsJob asks for the diffs of the newest commits that are no merges: over the API by two
// clients, of git by one command.
func diffsJob(ctx context.Context, b *bench, p peer) (operation, error) {
	listed, err := exec.CommandContext(ctx, "git", "-C", b.source.dir, "rev-list", "--no-merges", "--max-parents=1",
		"--min-parents=1",
		"--max-count="+strconv.Itoa(diffCount), b.source.tip).Output()
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	return diffsOf(ctx, p, strings.Fields(string(listed)), 2)
}

// bigDiffJob asks for the diff of one commit that changes 300 to 400 files, the newest such one.
func bigDiffJob(ctx context.Context, b *bench, p peer) (operation, error) {
	listed, err := exec.CommandContext(ctx, "git", "-C", b.source.dir, "log", "--no-merges", "--min-parents=1",
		"--no-renames", "--shortstat",
		"--format=%H", b.source.tip).Output()
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	commit := ""
	for line := range strings.Lines(string(listed)) {
		fields := strings.Fields(line)
		if len(fields) == 1 {
			commit = fields[0]
			continue
		}
		if len(fields) == 0 || commit == "" {
			continue
		}
		if files, err := strconv.Atoi(fields[0]); err == nil && files >= 300 && files <= 400 {
			return diffsOf(ctx, p, []string{commit}, 1)
		}
	}
	return nil, errCannot
}

// diffsOf compares commits with their parents.
func diffsOf(ctx context.Context, p peer, commits []string, clients int) (operation, error) {
	switch p := p.(type) {
	case *packhorse:
		token, err := p.token(ctx, repoPacked)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (outcome, error) {
			return together(clients, len(commits), func(i int) error { return p.read(ctx, token, "repos/diff?sha="+commits[i]) })
		}, nil
	case plumber:
		return func(ctx context.Context) (outcome, error) {
			used, err := p.plumb(ctx, repoPacked, []byte(strings.Join(commits, "\n")+"\n"), "diff-tree", "--stdin", "-p", "-M",
				"--full-index")
			return outcome{count: len(commits), cpu: used}, err
		}, nil
	default:
		return nil, errCannot
	}
}

// read makes a call, such as "repos/diff?sha=...", reads the answer and drops it.
func (p *packhorse) read(ctx context.Context, token, call string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL+"/api/v1/"+call, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", call, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
