package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"packhorse/pack/object"
)

// Numbers of clients: half of them are of each organization.
const (
	slowReaders  = 1500
	silentPushes = 1400
	pushers      = 200
	blamers      = 60
	differs      = 40
	committers   = 24
	bombers      = 16
)

// loads are the loads in the order of measurement.
func loads() []load {
	get := func(path string) func(*house, int) ask {
		return func(_ *house, client int) ask { return read(client, path) }
	}
	post := func(path, contentType string, body func() []byte) func(*house, int) ask {
		once := sync.OnceValue(body)
		return func(_ *house, client int) ask { return send(client, path, contentType, once()) }
	}
	push := func(body func() ([]byte, error)) func(*house, int) ask {
		once := sync.OnceValue(func() []byte {
			b, err := body()
			if err != nil {
				panic(err) // of this program's own making
			}
			return b
		})
		return func(_ *house, client int) ask { return pushOf(orgs[client%2], once()) }
	}
	return []load{
		{"slow readers", slowReaders, slowReader},
		{"silent pushes", silentPushes, silentPush},
		{"pushes of 10 MB", pushers, pushNew},
		{"blames of 30 MB", blamers, get("repos/blame?ref=text&path=large.txt")},
		{"blames of 10 MB", blamers, get("repos/blame?ref=text&path=medium.txt&detect_moves=true")},
		{"diffs of 30 MB", differs, diff("")},
		{"diffs of one file", differs, diff("&path=large.txt")},
		{"commits to 31 MB", committers, commitWide},
		{"listings of 31 MB", bombers, get("repos/files/metadata?ref=wide&limit=10")},
		{"files of 31 MB", bombers, get("repos/files?ref=wide")},
		{"long messages", bombers, get("repos/commits?branch=long&limit=100")},
		{"folders of folders", bombers, get("repos/files/metadata?ref=ours")},
		{"merges of folders", bombers, get("repos/merge/preview?source_branch=ours&target_branch=theirs")},
		{"chains of tags", bombers, get("repos/files?ref=refs/tags/deep")},
		{"searches", bombers, post("repos/grep", "application/json", func() []byte {
			return []byte(`{"ref":"text","query":{"pattern":"(0*)*(1*)*(2*)*x$","case_sensitive":true}}`)
		})},
		{"archives", bombers, post("repos/archive", "application/json", func() []byte { return []byte(`{"ref":"text"}`) })},
		{"commands", bombers, push(func() ([]byte, error) { return manyCommands(300_000), nil })},
		{"pushes of zeros", bombers, push(func() ([]byte, error) { return zeros(1 << 30) })},
		{"pushes of deltas", bombers, push(func() ([]byte, error) { return deltas(7) })},
		{"metadata lines", bombers, post("repos/commit-pack", ndjson, func() []byte {
			return []byte(`{"metadata":{"target_branch":"x","commit_message":"m","files":[{}` + strings.Repeat(",{}", 5<<20) +
				"]}}\n")
		})},
		{"unknown names", bombers, post("repos/commit-pack", ndjson, unknownNames)},
		{"patches", bombers, post("repos/diff-commit", ndjson, patchOfMany)},
	}
}

const ndjson = "application/x-ndjson"

func read(client int, path string) ask {
	return ask{org: orgs[client%2], repo: repository, method: http.MethodGet, path: path}
}

func send(client int, path, contentType string, body []byte) ask {
	return ask{
		org: orgs[client%2], repo: repository, method: http.MethodPost, path: path, contentType: contentType,
		body: bytes.NewReader(body), length: int64(len(body)),
	}
}

// slowReader reads a file, an archive, a diff or a clone.
func slowReader(h *house, client int) ask {
	var a ask
	switch client % 8 / 2 {
	case 0:
		a = read(client, "repos/file?ref=noise&path=noise")
	case 1:
		a = send(client, "repos/archive", "application/json", []byte(`{"ref":"noise"}`))
	case 2:
		a = diff("")(h, client)
	default:
		var body bytes.Buffer
		want := fmt.Sprintf("want %s no-progress ofs-delta\n", h.named["refs/heads/noise"])
		fmt.Fprintf(&body, "%04x%s00000009done\n", len(want)+4, want)
		a = send(client, "git-upload-pack", "application/x-git-upload-pack-request", body.Bytes())
	}
	a.slow = true
	return a
}

// silentPush announces a push, sends its beginning, and no more.
func silentPush(h *house, client int) ask {
	a := pushOf(orgs[client%2], nil)
	body, length := h.pushes[client%len(h.pushes)].body(fmt.Sprint("refs/heads/silent-", client))
	silence, _ := io.Pipe()
	time.AfterFunc(time.Minute, func() { _ = silence.Close() })
	a.body, a.length = io.MultiReader(io.LimitReader(body, 16<<10), silence), length
	return a
}

// pushNew pushes a file that another push may have brought, to a branch that is not there yet.
func pushNew(h *house, client int) ask {
	n := h.count.Add(1)
	a := pushOf(orgs[client%2], nil)
	a.body, a.length = h.pushes[n%int64(len(h.pushes))].body(fmt.Sprint("refs/heads/pushed-", n))
	return a
}

// diff compares the last two versions of the texts.
func diff(more string) func(*house, int) ask {
	return func(h *house, client int) ask {
		return read(client, "repos/diff?sha="+h.named["refs/heads/text"].String()+more)
	}
}

// commitWide adds a file to a folder of 31 MB.
func commitWide(h *house, client int) ask {
	n := h.count.Add(1)
	lines := fmt.Sprintf(
		`{"metadata":{"target_branch":"wide","commit_message":"m","author":{"name":"A","email":"a@example.com"},`+
			`"files":[{"path":"wide/new-%d","operation":"upsert","content_id":"1"}]}}`+"\n"+
			`{"blob_chunk":{"content_id":"1","data":"eAo=","eof":true}}`+"\n", n,
	)
	return send(client, "repos/commit-pack", ndjson, []byte(lines))
}

// unknownNames is a commit whose chunk has a million unknown fields.
func unknownNames() []byte {
	var body bytes.Buffer
	body.WriteString(`{"metadata":{"target_branch":"text","commit_message":"m","author":{"name":"A","email":"a@example.com"},` +
		`"files":[{"path":"a","operation":"upsert","content_id":"1"}]}}` + "\n" +
		`{"blob_chunk":{"content_id":"1","data":"eAo=","eof":true`)
	for i := range 1 << 20 {
		fmt.Fprintf(&body, `,"unknown%08d":1`, i)
	}
	body.WriteString("}}\n")
	return body.Bytes()
}

// patchOfMany is a patch that creates many empty files.
func patchOfMany() []byte {
	var patch bytes.Buffer
	for i := range 25_000 {
		fmt.Fprintf(&patch, "diff --git a/f%d b/f%[1]d\nnew file mode 100644\nindex %s..e69de29\n", i, object.ZeroID)
	}
	return []byte(`{"metadata":{"target_branch":"text","commit_message":"m","author":{"name":"A","email":"a@example.com"}}}` + "\n" +
		`{"diff_chunk":{"data":"` + base64.StdEncoding.EncodeToString(patch.Bytes()) + `","eof":true}}` + "\n")
}
