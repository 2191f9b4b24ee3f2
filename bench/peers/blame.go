package main

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// blameCount is how many files are blamed.
const blameCount = 20

// blameJob blames files at equal distances in the tree, one after the other: over the API by one
// client, of git by a command for each.
func blameJob(ctx context.Context, b *bench, p peer) (operation, error) {
	listed, err := exec.CommandContext(ctx, "git", "-C", b.source.dir, "ls-tree", "-r", "-z", b.source.tip).Output()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var files []string
	for entry := range strings.SplitSeq(string(listed), "\x00") {
		if head, path, ok := strings.Cut(entry, "\t"); ok && strings.HasPrefix(head, "100") {
			files = append(files, path)
		}
	}
	if len(files) < blameCount {
		return nil, errCannot
	}
	paths := make([]string, blameCount)
	for i := range paths {
		paths[i] = files[i*len(files)/blameCount]
	}
	switch p := p.(type) {
	case *packhorse:
		token, err := p.token(ctx, repoPacked)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (outcome, error) {
			return together(1, len(paths), func(i int) error {
				return p.read(ctx, token, "repos/blame?ref="+b.source.tip+"&path="+url.QueryEscape(paths[i]))
			})
		}, nil
	case plumber:
		return func(ctx context.Context) (outcome, error) {
			var cpu time.Duration
			for _, path := range paths {
				used, err := p.plumb(ctx, repoPacked, nil, "blame", "--porcelain", b.source.tip, "--", path)
				if err != nil {
					return outcome{}, err
				}
				cpu += used
			}
			return outcome{count: len(paths), cpu: cpu}, nil
		}, nil
	default:
		return nil, errCannot
	}
}
