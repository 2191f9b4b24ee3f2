package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
)

// The names that the examples of the page have for what differs from run to run.
const (
	pageRepo       = "web/site"
	pageCommit     = "7e0b46a13ca26dd703ee7b47673cd04387447f50"
	pageCredential = "01a20294e4ca7bffade43b2ee5a1892369700d6e8e3ab14f"
	pageToken      = "<token>"
)

// pageBefore are the calls that must come before an example, by its method and its path: a method,
// a path behind the repository and a body each. The repository has one commit on main.
func pageBefore() map[string][][3]string {
	topic := [3]string{"POST", "/branches/create", `{"target_branch":"topic","base_ref":"main"}`}
	draft := [3]string{"POST", "/branches/create", `{"target_branch":"draft","base_ref":"main","target_is_ephemeral":true}`}
	gone := [3]string{"DELETE", "", ""}
	onTopic := [3]string{"POST", "/commit-pack", pageFile("topic", "other.txt")}
	quiet := [3]string{"POST", "/branches/create", `{"target_branch":"quiet","base_ref":"main"}`}
	onQuiet := [3]string{"POST", "/commit-pack", pageFile("quiet", "quiet.txt")}
	tag := func(name string) [3]string {
		return [3]string{"POST", "/tags", fmt.Sprintf(`{"name":%q,"ref":"main"}`, name)}
	}
	note := [3]string{"POST", "/notes", `{"object_ref":"main","note":"n"}`}
	credential := [3]string{"POST", "/git-credentials", `{"password":"p"}`}
	before := map[string][][3]string{
		"DELETE /branches":          {draft},
		"GET /tag":                  {tag("v1.0")},
		"DELETE /tags/release%2Fv1": {tag("release/v1")},
		"GET /branches/diff":        {topic},
		"POST /restore-commit":      {topic},
		"POST /merge":               {topic, onTopic},
		"GET /merge/preview":        {topic, onTopic},
		"POST /cherry-pick":         {topic, onTopic},
		"POST /land":                {topic, onTopic, quiet, onQuiet},
		"POST /undelete":            {gone},
		"GET /notes":                {note},
		"DELETE /notes":             {note},
	}
	for _, method := range []string{"PUT", "DELETE"} {
		before[method+" /git-credentials/"+pageCredential] = [][3]string{credential}
	}
	return before
}

func pageFile(branch, path string) string {
	return fmt.Sprintf(`{"metadata":{"target_branch":%q,"commit_message":"m","author":{"name":"A","email":"a@example.com"},`+
		`"files":[{"path":%q,"content_id":"1"}]}}`+"\n"+`{"blob_chunk":{"content_id":"1","data":"aGVsbG8K","eof":true}}`,
		branch, path)
}

// TestPageExamples runs the example of every call on the page /docs in a shell, each on a
// repository of its own.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	work := t.TempDir()
	lines, _, _ := strings.Cut(dev(t, filepath.Join(work, "packhorse-data")), "\n\n")
	found := regexp.MustCompile(`PACKHORSE=(http://[0-9.:]+)`).FindStringSubmatch(lines)
	if found == nil {
		t.Fatalf("no server in %q", lines)
	}
	p := &pageServer{t: t, work: work, url: found[1]}
	p.request("POST", "/api/repos", "demo", `{}`, nil)
	p.request("POST", "/api/repos/demo/commit-pack", "demo", pageFile("main", "hello.txt"), nil)
	page := p.request("GET", "/docs", "demo", "", nil)
	examples := regexp.MustCompile(`(?s)<code>(curl.*?)</code>`).FindAllStringSubmatch(page, -1)
	if len(examples) < 40 {
		t.Fatalf("the page has %d examples", len(examples))
	}
	before := pageBefore()
	for _, example := range examples {
		p.example(html.UnescapeString(example[1]), before)
	}
	for name := range before {
		t.Errorf("the page has no example of %s", name)
	}
}

// pageServer is a server for the examples.
type pageServer struct {
	t         *testing.T
	work, url string
}

// token signs a token for a repository.
func (p *pageServer) token(repo string) string {
	p.t.Helper()
	args := []string{"token", "--org", "dev", "--key", filepath.Join(p.work, "packhorse-data", "dev.key"), "--repo", repo}
	for _, scope := range []string{"git:write", "repo:write", "org:read"} {
		args = append(args, "--scope", scope)
	}
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// request makes a call that succeeds, decodes its answer unless out is nil, and returns it.
func (p *pageServer) request(method, path, repo, body string, out any) string {
	p.t.Helper()
	answer := send(p.t.Context(), method, p.url+path, p.token(repo), "", []byte(body))
	err := answer.err
	if err == nil && out != nil {
		err = json.Unmarshal(answer.body, out)
	}
	if err != nil || answer.status/100 != 2 {
		p.t.Fatalf("%s %s: %d, %v: %s", method, path, answer.status, err, answer.body)
	}
	return string(answer.body)
}

// example runs an example, and takes the calls that it needs out of before.
func (p *pageServer) example(command string, before map[string][][3]string) {
	p.t.Helper()
	call := regexp.MustCompile(`"\$PACKHORSE(/api/repos/web%2Fsite)?([^?"]*)`).FindStringSubmatch(command)
	method := "GET"
	if given := regexp.MustCompile(`-X (\w+)`).FindStringSubmatch(command); given != nil {
		method = given[1]
	}
	name := method + " " + call[2]
	repo := pageRepo
	if call[1] == "" {
		repo = "copy"
	}
	known := []string{pageToken, p.token("demo")}
	if repo == pageRepo {
		base := "/api/repos/" + url.PathEscape(repo)
		p.request("POST", "/api/repos", repo, `{}`, nil)
		var made struct {
			Commit struct {
				SHA string `json:"commit_sha"`
			}
		}
		var last struct{ ID string } // of a credential
		p.request("POST", base+"/commit-pack", repo, pageFile("main", "hello.txt"), &made)
		for _, one := range before[name] {
			p.request(one[0], base+one[1], repo, one[2], &last)
		}
		known = append(known, pageCommit, made.Commit.SHA, pageCredential, last.ID)
		if name != "DELETE " && name != "POST /undelete" { // which gives it another name
			defer p.request("DELETE", base, repo, "", nil)
		}
	}
	delete(before, name)
	want := []string{"200", "201", "202", "204"}
	if name == "POST /pull-upstream" {
		want = []string{"409"} // it has none
	}
	shell := exec.CommandContext(p.t.Context(), "bash", "-c",
		strings.Replace(strings.NewReplacer(known...).Replace(command), "curl -sS", "curl -sS -o /dev/null -w '%{http_code}'", 1))
	shell.Env = append(oracle.EnvOutside(p.work), "PACKHORSE="+p.url, "TOKEN="+p.token(repo))
	var complaints bytes.Buffer
	shell.Stderr = &complaints
	status, err := shell.Output()
	if err != nil || !slices.Contains(want, string(status)) {
		p.t.Errorf("%s\nstatus %s, %v: %s", command, status, err, complaints.String())
	}
}
