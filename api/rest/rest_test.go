package rest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/rest"
	"packhorse/engine/enginetest"
)

// named says that the path of every request names the repository, too.
var named = false

// TestMain runs the tests for both families of paths.
func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if flag.Lookup("test.list").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" {
		named = true
		status = max(status, m.Run())
	}
	os.Exit(status)
}

// client calls the handlers of a door with the token of one repository.
type client struct {
	t     *testing.T
	door  *rest.Door
	grant *auth.Grant
	loose bool // its requests are odd, and not held against the document
}

func newClient(t *testing.T) *client {
	t.Helper()
	return &client{
		t:     t,
		door:  rest.New(rest.Config{Host: enginetest.Open(t)}),
		grant: &auth.Grant{Org: enginetest.Org, Subject: "tester", Repo: "r", Scopes: auth.GitRead | auth.GitWrite},
	}
}

// as returns the client with the token of another repository.
func (c *client) as(repo string) *client {
	grant := *c.grant
	grant.Repo = repo
	return &client{t: c.t, door: c.door, grant: &grant}
}

// odd returns the client for requests that are served, and that the document does not tell of.
func (c *client) odd() *client {
	same := *c
	same.loose = true
	return &same
}

type handler func(x exchange.Exchange, grant *auth.Grant) error

// answer is the answer of a handler.
type answer struct {
	*exchangetest.Answer
	t *testing.T
}

// call runs a handler. headers are pairs of name and value.
func (c *client) call(h handler, method, target string, body io.Reader, headers ...string) answer {
	c.t.Helper()
	var parts map[string]string
	if named {
		parts = map[string]string{"n": c.grant.Repo}
	}
	return c.callAt(parts, h, method, target, body, headers...)
}

// callAt is call with the parts of a path.
func (c *client) callAt(
	parts map[string]string, h handler, method, target string, body io.Reader, headers ...string,
) answer {
	c.t.Helper()
	text, body := readBody(c.t, body)
	x := exchangetest.New(method, target, body)
	x.PathValues = parts
	for i := 0; i < len(headers); i += 2 {
		x.RequestHeaders.Set(headers[i], headers[i+1])
	}
	if err := h(x, c.grant); err != nil {
		rest.Refuse(x, err)
	}
	got, err := x.Finish()
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	c.hold(parts, h, method, target, x.RequestHeaders, body, text, got)
	return answer{got, c.t}
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("status is %d, want %d: %s", a.Status, status, a.Body)
	}
	return a
}

func (a answer) decode(out any) {
	a.t.Helper()
	if err := json.Unmarshal(a.Body, out); err != nil {
		a.t.Fatalf("%v in %s", err, a.Body)
	}
}

// refusal is the body of every error.
type refusal struct {
	Error  string
	Result *struct {
		Branch, Status, Message string
		OldSHA                  string `json:"old_sha"`
		NewSHA                  string `json:"new_sha"`
		Success                 bool
	}
}

// refused checks an error's status and that its message says why.
func (a answer) refused(status int, says string) refusal {
	a.t.Helper()
	a.want(status)
	var r refusal
	a.decode(&r)
	if !strings.Contains(r.Error, says) {
		a.t.Errorf("error is %q, want it to say %q", r.Error, says)
	}
	return r
}

func (c *client) create(body string) answer {
	c.t.Helper()
	return c.call(c.door.CreateRepository, http.MethodPost, "/", strings.NewReader(body))
}

// pack is a commit-pack body under construction.
type pack struct{ bytes.Buffer }

const author = `"author":{"name":"A","email":"a@example.com"}`

// newPack begins with metadata; fields is JSON without braces.
func newPack(fields string) *pack {
	p := &pack{}
	p.WriteString("{\"metadata\":{" + fields + "}}\n")
	return p
}

func (p *pack) chunk(id, data string, eof bool) *pack {
	encoded := base64.StdEncoding.EncodeToString([]byte(data))
	_, _ = fmt.Fprintf(p, "{\"blob_chunk\":{\"content_id\":%q,\"data\":%q,\"eof\":%v}}\n", id, encoded, eof) // never fails
	return p
}

func (c *client) commitPack(body io.Reader, headers ...string) answer {
	c.t.Helper()
	return c.call(c.door.CommitPack, http.MethodPost, "/", body,
		append([]string{"Content-Type", "application/x-ndjson"}, headers...)...)
}

// commit writes one file to a branch.
func (c *client) commit(branch, path, content string) committed {
	c.t.Helper()
	fields := fmt.Sprintf(`"target_branch":%q,"commit_message":"m",%s,"files":[{"path":%q,"content_id":"1"}]`, branch,
		author, path)
	if branch != "main" {
		fields += `,"base_branch":"main"`
	}
	var done committed
	c.commitPack(newPack(fields).chunk("1", content, true)).want(http.StatusCreated).decode(&done)
	return done
}

// committed is the answer to a commit.
type committed struct {
	Commit struct {
		SHA       string `json:"commit_sha"`
		Tree      string `json:"tree_sha"`
		Branch    string `json:"target_branch"`
		PackBytes int    `json:"pack_bytes"`
		BlobCount *int   `json:"blob_count"`
	}
	Result struct {
		Branch, Status string
		Message        *string
		OldSHA         string `json:"old_sha"`
		NewSHA         string `json:"new_sha"`
		Success        bool
	}
}
