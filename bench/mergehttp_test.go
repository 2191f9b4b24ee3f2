package bench_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// BenchmarkMergeOverHTTP runs the merges of BenchmarkMerge with 100,000 files through POST
// /repos/merge of a server on the loopback. The metric p50-ms is the median of the calls: run it
// with -benchtime 200x.
func BenchmarkMergeOverHTTP(b *testing.B) {
	count := 100_000
	if testing.Short() {
		count = 1_000
	}
	p, stop := startServer(b)
	defer closeStore(b, stop)

	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("d%03d/f%05d", i%(count/100), i)
	}
	p.commit("main", "", all)
	p.commit("dev", "main", all[:5])
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		target := fmt.Sprint("target", len(took))
		p.commit(target, "main", all[5:10])
		b.StartTimer()
		began := time.Now()
		p.post("/merge", "application/json", fmt.Sprintf(
			`{"source_branch":"dev","target_branch":%q,"strategy":"merge","commit_message":"merge","author":{"name":"B","email":"b@example.com"}}`, target))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

// poster sends requests to a server and fails on errors.
type poster struct {
	tb         testing.TB
	url, token string
}

// startServer starts a server on the loopback with a repository, and returns what ends it.
func startServer(b *testing.B) (p *poster, stop func() error) {
	b.Helper()
	ctx := b.Context()
	bin, err := packhorsetest.Build(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	server, err := packhorsetest.Start(ctx, packhorsetest.Options{Bin: bin, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	token, err := server.Token(ctx, "r", "--scope", "repo:write", "--scope", "git:write")
	if err != nil {
		b.Fatal(errors.Join(err, server.Stop()))
	}
	p = &poster{tb: b, url: server.URL + "/api/v1/repos", token: token}
	p.post("", "application/json", `{"default_branch":"main"}`)
	return p, server.Stop
}

func (p *poster) post(path, contentType, body string) http.Header {
	p.tb.Helper()
	return p.send(http.MethodPost, path, contentType, body)
}

// send returns the header of the answer.
func (p *poster) send(method, path, contentType, body string) http.Header {
	p.tb.Helper()
	request, err := http.NewRequestWithContext(p.tb.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.tb.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer closeStore(p.tb, response.Body.Close)
	told, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		p.tb.Fatalf("%s %s: %s %v: %s", method, path, response.Status, err, told)
	}
	return response.Header
}

// commit writes files of one line, other ones on each branch.
func (p *poster) commit(branch, base string, paths []string) {
	p.tb.Helper()
	type file struct {
		Path      string `json:"path"`
		ContentID string `json:"content_id"`
	}
	files := make([]file, len(paths))
	for i, path := range paths {
		files[i] = file{Path: path, ContentID: path}
	}
	person := map[string]string{"name": "B", "email": "b@example.com"}
	metadata := map[string]any{"target_branch": branch, "commit_message": "files", "author": person, "files": files}
	if base != "" {
		metadata["base_branch"] = base
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	if err := lines.Encode(map[string]any{"metadata": metadata}); err != nil {
		p.tb.Fatal(err)
	}
	for _, path := range paths {
		content := fmt.Appendf(nil, "%s of %d files on %s\n", path, len(paths), branch)
		fmt.Fprintf(&body, `{"blob_chunk":{"content_id":%q,"data":%q,"eof":true}}`+"\n", path,
			base64.StdEncoding.EncodeToString(content))
	}
	p.post("/commit-pack", "application/x-ndjson", body.String())
}
