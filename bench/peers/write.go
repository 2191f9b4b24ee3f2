package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	writeFiles   = 1_000 // files of the repository that is written to
	writeSamples = 50    // writes of a sample
)

// identity are the arguments that let git write commits anywhere.
var identity = []string{"-c", "user.name=Bench", "-c", "user.email=bench@example.com"}

// patchJob commits patches of one line each to a repository of 1,000 files.
func patchJob(ctx context.Context, b *bench, p peer) (operation, error) {
	repo := b.fresh("patched")
	if err := fill(ctx, p, repo); err != nil {
		return nil, err
	}
	patches := make([]string, writeSamples)
	for i := range patches {
		path := writePath(i)
		patches[i] = fmt.Sprintf(
			"diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n@@ -1,2 +1,3 @@\n one of %[1]s\n+a line between\n two of %[1]s\n", path,
		)
	}
	switch p := p.(type) {
	case apiPeer:
		requests, err := p.jsonRequests(ctx, repo, "repos/diff-commit", "application/x-ndjson", len(patches),
			func(i int) []any {
				return []any{
					map[string]any{"metadata": map[string]any{
						"target_branch": "main", "commit_message": "patch", "author": map[string]string{
							"name": "Bench", "email": "bench@example.com",
						},
					}},
					map[string]any{"diff_chunk": map[string]any{"data": []byte(patches[i]), "eof": true}},
				}
			})
		return sendAll(requests), err
	case plumber:
		const steps = "!git apply --cached && git update-ref refs/heads/main $(git commit-tree -m patch -p main $(git write-tree))"
		if _, err := p.plumb(ctx, repo, nil, "read-tree", "main"); err != nil {
			return nil, err
		}
		return plumbAll(p, repo, len(patches), func(i int) (stdin []byte, args []string) {
			return []byte(patches[i]), slices.Concat(identity, []string{"-c", "alias.patched=" + steps, "patched"})
		}), nil
	default:
		return nil, errCannot
	}
}

// noteJob adds notes to the commits of a repository.
func noteJob(ctx context.Context, b *bench, p peer) (operation, error) {
	repo := b.fresh("noted")
	if err := fill(ctx, p, repo); err != nil {
		return nil, err
	}
	ref := func(i int) string { return fmt.Sprintf("refs/notes/bench%d", i) } // a commit has one note in each
	switch p := p.(type) {
	case apiPeer:
		token, err := p.token(ctx, repo)
		if err != nil {
			return nil, err
		}
		tip, err := p.tip(ctx, token)
		if err != nil {
			return nil, err
		}
		requests, err := p.jsonRequests(ctx, repo, "repos/notes", "application/json", writeSamples, func(i int) []any {
			return []any{map[string]any{"action": "add", "sha": tip, "note": "a note", "ref": ref(i)}}
		})
		return sendAll(requests), err
	case plumber:
		return plumbAll(p, repo, writeSamples, func(i int) (stdin []byte, args []string) {
			return nil, slices.Concat(identity, []string{"notes", "--ref", ref(i), "add", "-m", "a note", "main"})
		}), nil
	default:
		return nil, errCannot
	}
}

// fill creates a repository of one commit with many small files.
func fill(ctx context.Context, p peer, repo string) error {
	if _, err := p.create(ctx, repo); err != nil {
		return err
	}
	files := make([]upload, writeFiles)
	for i := range files {
		path := writePath(i)
		files[i] = upload{path, fmt.Appendf(nil, "one of %[1]s\ntwo of %[1]s\n", path)}
	}
	switch p := p.(type) {
	case apiPeer:
		token, err := p.token(ctx, repo)
		if err != nil {
			return err
		}
		request, err := p.commitRequest(ctx, token, files...)
		if err != nil {
			return err
		}
		return send(http.DefaultClient, request)
	case plumber:
		_, err := p.plumb(ctx, repo, importStream(files, 0), "fast-import", "--quiet")
		return err
	default:
		return errCannot
	}
}

func writePath(i int) string { return fmt.Sprintf("dir%d/file%03d.txt", i%10, i) }

// sendAll sends requests one after the other.
func sendAll(requests []*http.Request) operation {
	return func(context.Context) (outcome, error) {
		return together(1, len(requests), func(i int) error { return send(http.DefaultClient, requests[i]) })
	}
}

// plumbAll runs commands of git one after the other.
func plumbAll(p plumber, repo string, count int, command func(i int) (stdin []byte, args []string)) operation {
	return func(ctx context.Context) (got outcome, err error) {
		cpu := got.cpu
		got, err = together(1, count, func(i int) error {
			stdin, args := command(i)
			used, err := p.plumb(ctx, repo, stdin, args...)
			cpu += used
			return err
		})
		got.cpu = cpu
		return got, err
	}
}

// jsonRequests makes requests whose bodies are lines of JSON.
func (p *packhorse) jsonRequests(
	ctx context.Context, repo, path, contentType string, count int, lines func(i int) []any,
) ([]*http.Request, error) {
	token, err := p.token(ctx, repo)
	if err != nil {
		return nil, err
	}
	requests := make([]*http.Request, count)
	for i := range requests {
		var body bytes.Buffer
		encoder := json.NewEncoder(&body)
		for _, line := range lines(i) {
			if err := encoder.Encode(line); err != nil {
				return nil, err
			}
		}
		if requests[i], err = p.apiRequest(ctx, token, path, contentType, &body); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

// tip returns the commit of the only branch of the token's repository.
func (p *packhorse) tip(ctx context.Context, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL+"/api/v1/repos/branches", http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	var page struct {
		Branches []struct {
			HeadSHA string `json:"head_sha"`
		} `json:"branches"`
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return "", err
	}
	if len(page.Branches) != 1 {
		return "", fmt.Errorf("%s: %d branches", strings.TrimPrefix(request.URL.Path, "/"), len(page.Branches))
	}
	return page.Branches[0].HeadSHA, nil
}
