package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"packhorse/api/auth"
	"packhorse/pack/pktline"
)

// order describes the load of some clients: all that another process needs to know.
type order struct {
	Address string
	Kind    string
	Clients int

	Org, Repo string
	Token     string
	Key       []byte // of the organization, for tokens of forks

	Files   []string
	Commits []string // of the main branch, the newest first
	Large   string   // a commit that is costly to compare with its parent
	Pack    []byte   // of all of them

	forks *forks // of the process that carries the order out; nil if it makes none
}

// request returns the nth request of an order.
func (o *order) request(n int) []byte {
	kind := o.Kind
	switch kind {
	case "all":
		kind = mixed[n%len(mixed)]
	case "everyday":
		kind = everyday[n%len(everyday)]
	}
	switch kind {
	case "reads":
		return o.get("file?path=" + o.Files[n%len(o.Files)])
	case "listing":
		return o.get("commits?limit=20")
	case "diff":
		return o.get("diff?sha=" + o.Commits[n%100])
	case "diffs":
		return o.get("diff?sha=" + o.Large)
	case "commits", "hooks":
		return o.commit(n)
	case "forks":
		return o.fork(n)
	case "pushes":
		return o.push()
	case "clones":
		return o.clone(n)
	default:
		panic("fairness: no such mixture: " + kind)
	}
}

// hooks reports whether a mixture is about webhooks.
func hooks(mixture string) bool { return mixture == "hooks" || mixture == "all" }

var (
	mixed    = []string{"reads", "diffs", "forks", "pushes", "clones", "hooks"}
	everyday = []string{"reads", "diff", "reads", "listing", "reads", "commits", "reads"}
)

func (o *order) raw(method, target, token, contentType string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n", method, target, o.Address, token)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: %s\r\nContent-Length: %d\r\n", contentType, len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

func (o *order) get(target string) []byte {
	return o.raw(http.MethodGet, "/api/v1/repos/"+target, "Bearer "+o.Token, "", nil)
}

func (o *order) commit(n int) []byte {
	path := o.Files[n%len(o.Files)]
	body := fmt.Appendf(nil,
		`{"metadata":{"target_branch":"main","commit_message":"change","author":{"name":"A","email":"a@example.com"},`+
			`"files":[{"path":%q,"content_id":"1"}]}}`+"\n"+`{"blob_chunk":{"content_id":"1","data":%q,"eof":true}}`+"\n",
		path, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s: %d at %d\n", path, n, time.Now().UnixNano())))
	return o.raw(http.MethodPost, "/api/v1/repos/commit-pack", "Bearer "+o.Token, "application/x-ndjson", body)
}

// forks are repositories that the order makes, with their tokens: who signs them has a machine of
// its own.
type forks struct {
	tokens []string
	made   atomic.Int64
}

// forkCount is the number of tokens that an aggressor signs before it begins, which takes some
// seconds.
const forkCount = 16_000

// prepare signs the tokens of forks, if the order makes some.
func (o *order) prepare() {
	if o.Kind != "forks" && o.Kind != "all" {
		return
	}
	o.forks = &forks{}
	for i := range forkCount {
		o.forks.tokens = append(o.forks.tokens, mint(o.Key, o.Org, fmt.Sprintf("%s-fork%d-%d", o.Repo, start, i)))
	}
}

// fork makes one, or asks the last one by ID for an object behind its tips.
func (o *order) fork(n int) []byte {
	if n%2 == 1 {
		if last := o.forks.made.Load(); last > 0 {
			return o.raw(http.MethodGet, "/api/v1/repos/commit?sha="+o.Commits[len(o.Commits)-1-n%50],
				"Bearer "+o.forks.tokens[(last-1)%forkCount], "", nil)
		}
	}
	token := o.forks.tokens[(o.forks.made.Add(1)-1)%forkCount] // beyond these, it exists already
	body, err := json.Marshal(map[string]any{"base_repo": map[string]any{
		"provider": "code", "operation": "fork", "owner": o.Org, "name": o.Repo, "auth": map[string]string{"token": o.Token},
	}})
	if err != nil {
		panic(err)
	}
	return o.raw(http.MethodPost, "/api/v1/repos", "Bearer "+token, "application/json", body)
}

var start = time.Now().UnixNano()

// push is of the whole history, with a ref update that is refused at the end: it takes all the
// work, and leaves nothing behind.
func (o *order) push() []byte {
	var body bytes.Buffer
	lines := pktline.NewWriter(&body)
	tip := o.Commits[0]
	_ = lines.String(fmt.Sprintf("%s %s refs/heads/pushed\x00 report-status object-format=sha1", o.Commits[1], tip))
	_ = lines.Flush()
	body.Write(o.Pack)
	return o.git("git-receive-pack", body.Bytes())
}

// clone is a full clone, or a shallow one that was not requested before.
func (o *order) clone(n int) []byte {
	var body bytes.Buffer
	lines := pktline.NewWriter(&body)
	_ = lines.String("command=fetch\n")
	_ = lines.String("object-format=sha1\n")
	_ = lines.Delim()
	_ = lines.String("ofs-delta\n")
	_ = lines.String("no-progress\n")
	if n%4 != 0 {
		_ = lines.String(fmt.Sprintf("deepen %d\n", 1+n%(len(o.Commits)-1)))
	}
	_ = lines.String("want " + o.Commits[n%len(o.Commits)/10] + "\n")
	_ = lines.String("done\n")
	_ = lines.Flush()
	return o.git("git-upload-pack", body.Bytes())
}

func (o *order) git(service string, body []byte) []byte {
	token := base64.StdEncoding.EncodeToString([]byte("t:" + o.Token))
	return o.raw(http.MethodPost, "/"+o.Repo+".git/"+service, "Basic "+token+"\r\nGit-Protocol: version=2",
		"application/x-"+service+"-request", body)
}

// mint signs a token for a repository.
func mint(key []byte, org, repo string) string {
	token, err := auth.Mint(key, auth.Claims{
		Org: org, Repo: repo, Subject: "bench", Scopes: []string{"git:write", "repo:write"}, IssuedAt: time.Now(),
		Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		panic(err)
	}
	return token
}
