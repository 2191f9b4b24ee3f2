package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"packhorse/cmd/packhorse/packhorsetest"
)

// packhorse is a server that this repository builds, with default settings.
type packhorse struct {
	side   string
	server *packhorsetest.Server
	bin    string
	data   string // folder
	cache  string // folder of packs that it has made, which may be deleted at any time
}

func startPackhorse(ctx context.Context, side, bin, dir string) (*packhorse, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	server, err := packhorsetest.Start(ctx,
		packhorsetest.Options{Bin: bin, Dir: dir, Flags: []string{"--log-level", "info"}})
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	return &packhorse{side: side, server: server, bin: bin, data: data, cache: filepath.Join(data, "cache")}, nil
}

func (p *packhorse) name() string { return p.side }
func (p *packhorse) pid() int     { return p.server.PID() }
func (p *packhorse) stop() error  { return p.server.Stop() }

func (p *packhorse) forget() error { return os.RemoveAll(p.cache) }

func (p *packhorse) create(ctx context.Context, repo string) (remote, error) {
	request, err := p.createRequest(ctx, repo)
	if err != nil {
		return remote{}, err
	}
	if err := send(http.DefaultClient, request); err != nil {
		return remote{}, err
	}
	return p.remote(ctx, repo)
}

func (p *packhorse) remote(ctx context.Context, repo string) (remote, error) {
	token, err := p.token(ctx, repo)
	if err != nil {
		return remote{}, err
	}
	url := p.server.URL + "/" + repo + ".git"
	return remote{
		url:           url,
		authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token)),
		gitURL:        strings.Replace(url, "://", "://t:"+token+"@", 1),
	}, nil
}

// repack runs the due maintenance, which the server would run later by itself, and returns when no
// background work is left: that would be in the figures of the first jobs.
func (p *packhorse) repack(ctx context.Context, _ string) error {
	return run(exec.CommandContext(ctx, p.bin, "gc", "--geometric", "--data", p.data))
}

func (p *packhorse) token(ctx context.Context, repo string) (string, error) {
	return p.server.Token(ctx, repo, "--scope", "git:write,repo:write", "--ttl", "24h")
}

func (p *packhorse) createRequest(ctx context.Context, repo string) (*http.Request, error) {
	token, err := p.token(ctx, repo)
	if err != nil {
		return nil, err
	}
	return p.apiRequest(ctx, token, "repos", "application/json", strings.NewReader(`{"default_branch":"main"}`))
}

// chunkBytes is the size of a chunk in one line of a commit: the maximum of the API.
const chunkBytes = 4 << 20

// commitRequest commits files to main in one call.
func (p *packhorse) commitRequest(ctx context.Context, token string, files ...upload) (*http.Request, error) {
	type person struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	}
	type file struct {
		Path      string `json:"path"`
		ContentID string `json:"content_id"`
	}
	type metadata struct {
		TargetBranch  string `json:"target_branch"`
		CommitMessage string `json:"commit_message"`
		Author        person `json:"author"`
		Files         []file `json:"files"`
	}
	type chunk struct {
		ContentID string `json:"content_id"`
		Data      []byte `json:"data"`
		EOF       bool   `json:"eof"`
	}
	first := metadata{
		TargetBranch: "main", CommitMessage: "Change " + files[0].path, Author: person{"Bench", "bench@example.com"},
	}
	for i, f := range files {
		first.Files = append(first.Files, file{Path: f.path, ContentID: strconv.Itoa(i)})
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	if err := lines.Encode(map[string]metadata{"metadata": first}); err != nil {
		return nil, err
	}
	for i, f := range files {
		for rest, last := f.content, false; !last; {
			n := min(len(rest), chunkBytes)
			last = n == len(rest)
			if err := lines.Encode(map[string]chunk{
				"blob_chunk": {ContentID: strconv.Itoa(i), Data: rest[:n], EOF: last},
			}); err != nil {
				return nil, err
			}
			rest = rest[n:]
		}
	}
	return p.apiRequest(ctx, token, "repos/commit-pack", "application/x-ndjson", &body)
}

// apiRequest is a POST to the API.
func (p *packhorse) apiRequest(
	ctx context.Context, token, path, contentType string, body io.Reader,
) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.URL+"/api/v1/"+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	return request, nil
}

// getRequest is a GET of a path and query of the API.
func (p *packhorse) getRequest(ctx context.Context, token, target string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL+"/api/v1/"+target, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// send sends a request that creates or reports something. Its answer is read and dropped.
func send(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated && request.Method != http.MethodGet || response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, response.Status, body)
	}
	return nil
}
