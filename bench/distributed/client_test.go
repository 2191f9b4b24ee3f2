package distributed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"packhorse/pack/pktline"
)

// transport is that of all clients.
var transport = &http.Transport{MaxIdleConnsPerHost: 128, ReadBufferSize: 256 << 10, DisableCompression: true}

// refused is an answer that is no success.
type refused struct {
	status int
	after  string // Retry-After
	text   string
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s", r.status, strings.TrimSpace(r.text)) }

// repository is a repository as a client of one server sees it.
type repository struct {
	base  string // URL of the server
	name  string
	token string
}

// send sends a request and returns the body of a successful answer.
func (r repository) send(method, path, contentType string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequest(method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	if strings.HasPrefix(path, "/"+r.name) {
		request.SetBasicAuth("t", r.token)
		request.Header.Set("Git-Protocol", "version=2")
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response.Body, nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	return nil, errors.Join(
		&refused{response.StatusCode, response.Header.Get("Retry-After"), string(text)}, response.Body.Close())
}

// call sends a request and returns the answer.
func (r repository) call(method, path, contentType string, body []byte) ([]byte, error) {
	answer, err := r.send(method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer)
	return text, errors.Join(err, answer.Close())
}

func (r repository) create() error {
	_, err := r.call(http.MethodPost, "/api/v1/repos", "application/json", []byte(`{"default_branch":"main"}`))
	return err
}

// get reads a path of the API.
func (r repository) get(path string) error {
	_, err := r.call(http.MethodGet, "/api/v1/repos/"+path, "", nil)
	return err
}

// commit commits a small file at each path, and returns the ID of the commit.
func (r repository) commit(text string, paths ...string) (string, error) {
	var body bytes.Buffer
	files := make([]map[string]string, 0, len(paths))
	for i, path := range paths {
		files = append(files, map[string]string{"path": path, "content_id": fmt.Sprint(i)})
	}
	lines := json.NewEncoder(&body)
	_ = lines.Encode(map[string]any{"metadata": map[string]any{ // into memory
		"target_branch": "main", "commit_message": "Change " + paths[0], "files": files,
		"author": map[string]string{"name": "Bench", "email": "bench@example.com"},
	}})
	for i, path := range paths {
		_ = lines.Encode(map[string]any{"blob_chunk": map[string]any{
			"content_id": fmt.Sprint(i), "data": []byte(path + "\n" + text + "\n"), "eof": true,
		}})
	}
	answer, err := r.call(http.MethodPost, "/api/v1/repos/commit-pack", "application/x-ndjson", body.Bytes())
	if err != nil {
		return "", err
	}
	var done struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		} `json:"commit"`
	}
	return done.Commit.SHA, json.Unmarshal(answer, &done)
}

// ask writes a request of protocol v2: a command, its capabilities, and its arguments.
func ask(command string, arguments ...string) []byte {
	var body bytes.Buffer
	w := pktline.NewWriter(&body)
	_ = errors.Join(w.String("command="+command+"\n"), w.String("object-format=sha1\n"), w.Delim()) // into memory
	for _, argument := range arguments {
		_ = w.String(argument + "\n")
	}
	_ = w.Flush()
	return body.Bytes()
}

const uploadPack = "application/x-git-upload-pack-request"

func (r repository) lsRefs() error {
	_, err := r.call(http.MethodPost, "/"+r.name+".git/git-upload-pack", uploadPack,
		ask("ls-refs", "peel", "symrefs", "ref-prefix HEAD", "ref-prefix refs/heads/", "ref-prefix refs/tags/"))
	return err
}

// fetched is what a fetch has brought.
type fetched struct {
	first, all time.Duration // from the request to the first byte of the pack, and to its end
	bytes      int64
}

// fetch fetches a commit, for a client that has others, and drops the pack.
func (r repository) fetch(want string, haves ...string) (fetched, error) {
	arguments := []string{"thin-pack", "ofs-delta", "no-progress", "want " + want}
	for _, have := range haves {
		arguments = append(arguments, "have "+have)
	}
	var got fetched
	begun := time.Now()
	body, err := r.send(http.MethodPost, "/"+r.name+".git/git-upload-pack", uploadPack,
		ask("fetch", append(arguments, "done")...))
	if err != nil {
		return got, err
	}
	defer body.Close() //nolint:errcheck // read to its end
	lines, inPack := pktline.NewReader(body), false
	for {
		kind, data, err := lines.Read()
		switch {
		case err != nil:
			return got, err
		case kind == pktline.Flush && got.bytes == 0:
			return got, errors.New("the answer has no pack")
		case kind == pktline.Flush:
			got.all = time.Since(begun)
			return got, nil
		case kind != pktline.Data:
		case !inPack:
			inPack = string(data) == "packfile\n"
		case data[0] == 1:
			if got.bytes == 0 {
				got.first = time.Since(begun)
			}
			got.bytes += int64(len(data) - 1)
		case data[0] == 3:
			return got, fmt.Errorf("fetch: %s", data[1:])
		}
	}
}

// push moves main to a commit, as git does: it asks for the refs first.
func (r repository) push(before, after string, pack []byte) error {
	body, err := r.call(http.MethodGet, "/"+r.name+".git/info/refs?service=git-receive-pack", "", nil)
	if err != nil {
		return err
	}
	if before == "" {
		before = strings.Repeat("0", 40)
	} else if !bytes.Contains(body, []byte(before)) {
		return errors.New("push: the branch is elsewhere")
	}
	var request bytes.Buffer
	w := pktline.NewWriter(&request)
	_ = errors.Join( // into memory
		w.String(before+" "+after+" refs/heads/main\x00 report-status object-format=sha1"), w.Flush())
	request.Write(pack)
	answer, err := r.call(http.MethodPost, "/"+r.name+".git/git-receive-pack", "application/x-git-receive-pack-request",
		request.Bytes())
	if err == nil && !bytes.Contains(answer, []byte("ok refs/heads/main\n")) {
		err = fmt.Errorf("push: %s", answer)
	}
	return err
}
