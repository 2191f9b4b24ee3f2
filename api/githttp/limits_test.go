package githttp_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/fuzz/oracle"
	"packhorse/refs"
)

// many are lines that differ in a number.
func many(count int, format string) []string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf(format, i+1)
	}
	return list
}

func gzipped(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(body) // a bytes.Buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// TestRefusedRequests sends invalid and too large requests.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	r, git := serve(t, githttp.Config{PackBytesMax: 1 << 20}), oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 101, Commits: 10, Tags: true})
	blob := git.Git("rev-parse", "main:"+lines(git.Git("ls-tree", "-r", "--name-only", "main"))[0])
	r.push(git, "refs/*:refs/*")
	before := r.refs(refs.Main)
	want := "want " + tip
	fetch := func(lines ...string) []byte {
		return request(slices.Concat([]string{"command=fetch", "object-format=sha1", delim}, lines, []string{flush})...)
	}
	push := func(lines ...string) []byte { return pushBody(allCapabilities+" push-options", lines) }
	create := zero + " " + tip + " refs/heads/new"
	deletion := git.Git("rev-parse", "v9") + " " + zero + " refs/tags/v9"
	unknown := strings.Repeat("9", 40)
	const upload, receive = "git-upload-pack", "git-receive-pack"
	tests := map[string]struct {
		service  string
		version  int
		body     []byte
		encoding string
		status   int
		says     string // part of the answer, or of an ERR line in it
	}{
		"nothing":         {upload, 2, nil, "", 200, ""},
		"nothing, v0":     {upload, 0, nil, "", 200, ""},
		"nothing to push": {receive, 0, nil, "", 400, "ended early"},
		"probe":           {upload, 2, []byte(flush), "", 200, ""},
		"probe, v0":       {upload, 0, []byte(flush), "", 200, ""},
		"probe of a push": {receive, 0, []byte(flush), "", 200, ""},
		"a delimiter":     {upload, 2, []byte(delim), "", 400, "no command"},
		"no command":      {upload, 2, request("agent=x", flush), "", 400, "no command"},
		"garbage":         {upload, 2, []byte("zzzz"), "", 400, "bad line length"},
		"garbage, v0":     {upload, 0, []byte("GET / HTTP/1.1"), "", 400, "bad line length"},
		"garbage to push": {receive, 0, []byte("PACK"), "", 400, "bad line length"},
		"length 3":        {upload, 2, []byte("0003"), "", 400, "bad line length"},
		"a long line":     {upload, 2, []byte("fff1" + strings.Repeat("x", 65517)), "", 400, "line too long"},
		"half a length":   {upload, 2, []byte("00"), "", 400, "ended early"},
		"half a line":     {upload, 2, []byte("0014command=fe"), "", 400, "ended early"},
		"no end":          {upload, 2, request("command=fetch", delim, want), "", 400, "ended early"},
		"response end":    {upload, 2, append(request("command=fetch"), "0002"...), "", 400, "response-end"},
		"two delimiters": {
			upload, 2, request("command=fetch", delim, want, delim, flush), "", 400, "unexpected delim",
		},
		"more behind": {upload, 2, append(fetch(want), "0000"...), "", 400, "follows"},
		"two commands": {
			upload, 2, request("command=fetch", "command=ls-refs", flush), "", 400,
			`command "ls-refs" requested after already requesting command "fetch"`,
		},
		"unknown command": {
			upload, 2, request("command=frobnicate", flush), "", 400, `invalid command "frobnicate"`,
		},
		"empty command": {upload, 2, request("command=", flush), "", 400, "invalid command"},
		"unknown capability": {
			upload, 2, request("command=fetch", "frobnicate=1", flush), "", 400, `unknown capability "frobnicate=1"`,
		},
		"known capabilities": {upload, 2, request("command=fetch", "agent=x", "server-option=a", "server-option=b",
			"object-format=sha1", flush), "", 200, ""},
		"sha256": {
			upload, 2, request("command=fetch", "object-format=sha256", delim, want, flush), "", 400,
			"mismatched object format: server sha1; client sha256",
		},
		"sha256 to push": {
			receive, 0, pushBody("report-status object-format=sha256", []string{create}), "", 400, "mismatched object format",
		},
		"argument of ls-refs": {
			upload, 2, request("command=ls-refs", delim, "peal", flush), "", 400, `unexpected line: "peal"`,
		},
		"argument of object-info": {
			upload, 2, request("command=object-info", delim, "type", flush), "", 400, `unexpected line: "type"`,
		},
		"argument of fetch": {upload, 2, fetch(want, "packfile-uris https"), "", 400, "unexpected line"},
		"value of a flag":   {upload, 2, fetch(want, "done now"), "", 400, "unexpected line"},
		"want of no ID":     {upload, 2, fetch("want refs/heads/main"), "", 400, "expected to get object ID"},
		"want in capitals": {
			upload, 2, fetch("want " + strings.Repeat("A", 40)), "", 400, "expected to get object ID",
		},
		"have of no ID": {upload, 2, fetch(want, "have x"), "", 400, "expected to get object ID"},
		"no wants":      {upload, 2, fetch("have "+tip, "done"), "", 200, ""},
		"unknown want": {
			upload, 2, fetch(want, "want "+unknown, "done"), "", 200, "ERR upload-pack: not our ref " + unknown,
		},
		"unknown want, v0": {
			upload, 0, request("want "+unknown+" side-band-64k", flush, "done"), "", 200,
			"ERR upload-pack: not our ref " + unknown,
		},
		"unknown want-ref": {
			upload, 2, fetch("want-ref refs/heads/none", "done"), "", 200, "ERR unknown ref refs/heads/none",
		},
		"short want-ref":   {upload, 2, fetch("want-ref main", "done"), "", 200, "ERR unknown ref main"},
		"deepen 0":         {upload, 2, fetch(want, "deepen 0"), "", 400, `Invalid deepen: "0"`},
		"deepen -1":        {upload, 2, fetch(want, "deepen -1"), "", 400, `Invalid deepen: "-1"`},
		"deepen very much": {upload, 2, fetch(want, "deepen 99999999999"), "", 400, "Invalid deepen"},
		"deepen a lot":     {upload, 0, request(want, "deepen x", flush), "", 400, "Invalid deepen"},
		"since never":      {upload, 2, fetch(want, "deepen-since 0"), "", 400, "Invalid deepen-since"},
		"depth and time": {
			upload, 2, fetch(want, "deepen 1", "deepen-since 5", "done"), "", 200,
			"ERR deepen and deepen-since (or deepen-not) cannot be used together",
		},
		"depth and a ref": {
			upload, 0, request(want, "deepen 1", "deepen-not main", flush, "done"), "", 200, "ERR deepen and deepen-since",
		},
		"without nothing": {
			upload, 2, fetch(want, "deepen-not none", "done"), "", 200, "ERR ambiguous deepen-not: deepen-not none",
		},
		"nothing is left": {
			upload, 2, fetch(want, "deepen-since 9999999999", "done"), "", 200, "ERR no commits selected for shallow requests",
		},
		"nothing is left, v0": {
			upload, 0, request(want, "deepen-since 9999999999", flush, "done"), "", 200,
			"ERR no commits selected for shallow requests",
		},
		"nothing is left, all banded": {
			upload, 2, fetch(want, "deepen-since 9999999999", "sideband-all", "done"), "", 200,
			"\x03no commits selected for shallow requests",
		},
		"shallow at a blob": {
			upload, 2, fetch(want, "shallow "+blob, "done"), "", 200, "ERR invalid shallow object " + blob,
		},
		"filter by a blob": {
			upload, 2, fetch(want, "filter sparse:oid=main:x", "done"), "", 200, "ERR filter 'sparse:oid' not supported",
		},
		"filter by a path": {
			upload, 2, fetch(want, "filter sparse:path=x", "done"), "", 200, "ERR sparse:path filters support has been dropped",
		},
		"no filter": {
			upload, 2, fetch(want, "filter blobs", "done"), "", 200, "ERR invalid filter-spec 'blobs'",
		},
		"two filters": {
			upload, 2, fetch(want, "filter blob:none", "filter tree:0", "done"), "", 400, "one filter-spec",
		},
		"empty filter":          {upload, 2, fetch(want, "filter "), "", 400, "one filter-spec"},
		"have as the first, v0": {upload, 0, request("have "+tip, flush), "", 400, "expected to get object ID"},
		"delimiter, v0":         {upload, 0, request(want, delim), "", 400, "unexpected delim"},
		"want-ref, v0": {
			upload, 0, request("want-ref refs/heads/main", flush), "", 400, "expected to get object ID",
		},
		"cut behind haves, v0":      {upload, 0, request(want, flush, "have "+tip), "", 400, "ended early"},
		"something among haves, v0": {upload, 0, request(want, flush, "had "+tip), "", 400, "expected SHA1 list"},

		"100,000 haves": {upload, 2, fetch(append(many(100_000, "have %040x"), want, "done")...), "", 200, "packfile"},
		"100,001 haves": {
			upload, 2, fetch(append(many(100_001, "have %040x"), want)...), "", 413, "have lines: more than the limit of 100000",
		},
		"100,001 haves, v0": {
			upload, 0, request(append([]string{want, flush}, many(100_001, "have %040x")...)...), "", 413, "have lines",
		},
		"100,000 wants": {
			upload, 2, fetch(append(slices.Repeat([]string{want}, 100_000), "done")...), "", 200, "packfile",
		},
		"100,001 wants":   {upload, 2, fetch(append(many(100_001, "want %040x"), want)...), "", 413, "want lines"},
		"100,001 shallow": {upload, 2, fetch(append(many(100_001, "shallow %040x"), want)...), "", 413, "shallow lines"},
		"100,001 want-refs": {
			upload, 2, fetch(append(many(100_001, "want-ref refs/heads/%d"), want)...), "", 413, "want-ref lines",
		},
		"100,001 deepen-nots": {
			upload, 2, fetch(append(many(100_001, "deepen-not %d"), want)...), "", 413, "deepen-not lines",
		},
		"100,001 oids": {upload, 2, request(slices.Concat([]string{"command=object-info", delim}, many(100_001, "oid %040x"),
			[]string{flush})...), "", 413, "oid lines"},
		"17 MiB": {
			upload, 2, fetch(append(slices.Repeat([]string{"thin-pack"}, 17<<20/14), want)...), "", 413,
			"request body exceeds the limit of 16777216 bytes",
		},

		"compressed": {upload, 2, gzipped(fetch(want, "done")), "gzip", 200, "packfile"},
		"17 MiB, compressed": {
			upload, 2, gzipped(fetch(append(slices.Repeat([]string{"thin-pack"}, 17<<20/14), want)...)), "gzip", 413,
			"request body exceeds the limit",
		},
		"compressed and cut":      {upload, 2, gzipped(fetch(want))[:40], "gzip", 400, "ended early"},
		"compressed and empty":    {upload, 2, nil, "gzip", 400, "ended early"},
		"not compressed":          {upload, 2, fetch(want), "gzip", 400, "gzip"},
		"compressed and more":     {upload, 2, append(gzipped(fetch(want)), "more than that"...), "gzip", 400, "gzip"},
		"compressed and damaged":  {upload, 2, damaged(gzipped(fetch(want)), 20), "gzip", 400, "gzip"},
		"wrong checksum":          {upload, 2, damaged(gzipped(fetch(want)), -6), "gzip", 400, "gzip"},
		"compressed by something": {upload, 2, fetch(want), "br", 415, `"br" is not understood`},

		"half a command":          {receive, 0, push(create)[:60], "", 400, "ended early"},
		"commands without an end": {receive, 0, request(create), "", 400, "ended early"},
		"two IDs and no name":     {receive, 0, push(zero + " " + tip), "", 400, "expected old/new/ref"},
		"an empty name":           {receive, 0, push(zero + " " + tip + " "), "", 400, "expected old/new/ref"},
		"a short ID": {
			receive, 0, push(zero[1:] + " " + tip + " refs/heads/x"), "", 400, "expected old/new/ref",
		},
		"delimiter among commands": {receive, 0, request(create, delim, flush), "", 400, "unexpected delim"},
		"certificate":              {receive, 0, push("push-cert"), "", 400, "signed pushes are not served"},
		"shallow of no ID":         {receive, 0, request("shallow x", flush), "", 400, "expected to get object ID"},
		"10,001 commands": {
			receive, 0, append(push(many(10_001, create+"%d")...), flush...), "", 200,
			"ref updates in one push: more than the limit of 10000 (--commands-max)",
		},
		"deletion and a pack":    {receive, 0, append(push(deletion), "0000PACK"...), "", 400, "follows"},
		"options without an end": {receive, 0, append(push(deletion), request("x")...), "", 400, "ended early"},
		"65 options": {
			receive, 0, append(push(deletion), request(append(many(65, "%d"), flush)...)...), "", 400,
			"more push options than 64",
		},
		"a long option": {
			receive, 0, append(push(deletion), request(strings.Repeat("x", 1025), flush)...), "", 400, "push options",
		},
		"too many objects": {
			receive, 0, append(push(create), "0000PACK\x00\x00\x00\x02\xff\xff\xff\xff"...), "", 200,
			"unpack the pack has 4294967295 objects, the limit is 5000000 (--objects-max)",
		},
		"too large a pack": {
			receive, 0, append(append(push(create), flush...), noisePack(t, 40<<20)...), "", 200,
			"unpack the push is larger than",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := exchangetest.New(http.MethodPost, "/"+repoName+".git/"+test.service, bytes.NewReader(test.body))
			x.RequestHeaders.Set("Content-Type", "application/x-"+test.service+"-request")
			x.RequestHeaders.Set("Content-Encoding", test.encoding)
			x.RequestHeaders.Set("Git-Protocol", fmt.Sprintf("version=%d", test.version))
			answer, err := pending{x, r.handle(x)}.finish()
			if err != nil {
				t.Fatal(err)
			}
			if answer.Status != test.status || !bytes.Contains(answer.Body, []byte(test.says)) ||
				test.says == "" && len(answer.Body) > 0 {
				t.Errorf("answer %d %.300q, want %d %q", answer.Status, answer.Body, test.status, test.says)
			}
		})
	}
	t.Cleanup(func() {
		if after := r.refs(refs.Main); !slices.Equal(after, before) {
			t.Errorf("the refs are now %q", after)
		}
	})
}

func damaged(body []byte, at int) []byte {
	body[(at+len(body))%len(body)] ^= 0xff
	return body
}

// noisePack is a pack of one blob that is larger than the limit of the door.
func noisePack(tb testing.TB, size int) []byte {
	tb.Helper()
	git := oracle.New(tb)
	return git.Input([]byte(git.Write("blob", noise(size))+"\n"), "pack-objects", "-q", "--stdout")
}

// TestHeaders asks in ways that are no git.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	tests := map[string]struct {
		method, target, contentType string
		status                      int
	}{
		"dumb":                   {"GET", "/r.git/info/refs", "", 403},
		"unknown service":        {"GET", "/r.git/info/refs?service=git-upload-archive", "", 403},
		"no service":             {"GET", "/r.git/info/refs?service=", "", 403},
		"import is not read":     {"GET", "/r+import.git/info/refs?service=git-upload-pack", "", 403},
		"import is pushed to":    {"GET", "/r+import.git/info/refs?service=git-receive-pack", "", 200},
		"ephemeral":              {"GET", "/r+ephemeral.git/info/refs?service=git-upload-pack", "", 200},
		"HEAD":                   {"HEAD", "/r.git/info/refs?service=git-upload-pack", "", 200},
		"no repository":          {"GET", "/none.git/info/refs?service=git-upload-pack", "", 404},
		"no content type":        {"POST", "/r.git/git-upload-pack", "", 415},
		"a form":                 {"POST", "/r.git/git-upload-pack", "application/x-www-form-urlencoded", 415},
		"the other content type": {"POST", "/r.git/git-upload-pack", "application/x-git-receive-pack-request", 415},
		"push":                   {"POST", "/r.git/git-receive-pack", "application/x-git-upload-pack-request", 415},
	}
	for name, test := range tests {
		x := exchangetest.New(test.method, test.target, nil)
		if test.contentType != "" {
			x.RequestHeaders.Set("Content-Type", test.contentType)
		}
		answer, err := pending{x, r.handle(x)}.finish()
		if err != nil || answer.Status != test.status {
			t.Errorf("%s: answer %+v, %v, want %d", name, answer, err, test.status)
		}
	}
}

// TestCutPush ends a push at every place, by a connection that breaks and by a client that says
// that it has ended.
func TestCutPush(t *testing.T) {
	t.Parallel()
	r, git := serve(t, githttp.Config{}), oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 102, Commits: 3, Files: 3})
	body := pushBody(allCapabilities+" push-options", []string{zero + " " + tip + " refs/heads/main"},
		request("an option", flush), packOf(git, tip))
	step := 1
	if testing.Short() {
		step = 5
	}
	for size := 0; size < len(body); size += step {
		broken := io.MultiReader(bytes.NewReader(body[:size]), iotest.ErrReader(exchange.ErrEndedEarly))
		if answer, err := r.exchange("git-receive-pack", 0, broken).finish(); err != nil ||
			answer.Status != http.StatusBadRequest {
			t.Fatalf("broken off after %d bytes: answer %+v, %v", size, answer, err)
		}
		answer, err := r.exchange("git-receive-pack", 0, bytes.NewReader(body[:size])).finish()
		refused := answer.Status == http.StatusBadRequest ||
			bytes.Contains(answer.Body, []byte("ng refs/heads/main unpacker error"))
		if err != nil || !refused {
			t.Fatalf("ended after %d bytes: answer %+v, %v", size, answer, err)
		}
		if names := r.refs(refs.Main); len(names) != 0 {
			t.Fatalf("after %d bytes: %q", size, names)
		}
	}
	answer, err := r.exchange("git-receive-pack", 0, bytes.NewReader(append(slices.Clone(body), 0))).finish()
	if err != nil || !bytes.Contains(answer.Body, []byte("unpack corrupt pack: trailing bytes")) ||
		len(r.refs(refs.Main)) != 0 {
		t.Errorf("with a byte more: answer %+v, %v", answer, err)
	}
	if got := readReport(t, r.post("git-receive-pack", 0, body), true); got.lines[1] != "ok refs/heads/main" {
		t.Errorf("the whole push: %q", got.lines)
	}
}

// TestManyCommands moves as many refs at once as a push may.
func TestManyCommands(t *testing.T) {
	t.Parallel()
	const count = 10_000
	r, git := serve(t, githttp.Config{}), oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 103, Commits: 3})
	r.push(git, "main")
	got := readReport(t, r.post("git-receive-pack", 0,
		pushBody(allCapabilities, many(count, zero+" "+tip+" refs/pull/%d/head"), packOf(git, "^"+tip))), true)
	if len(got.lines) != count+1 ||
		slices.ContainsFunc(got.lines[1:], func(line string) bool { return !strings.HasPrefix(line, "ok ") }) {
		t.Errorf("%d lines of report, the first %q", len(got.lines), got.lines[:2])
	}
	if names := r.refs(refs.Main); len(names) != count+1 {
		t.Errorf("%d refs", len(names))
	}
}

// endless repeats a line, and counts the bytes read of it.
type endless struct {
	line  []byte
	taken int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.line[(e.taken+int64(n))%int64(len(e.line)):])
	}
	e.taken += int64(n)
	return n, nil
}

// TestPushCommandsAreBounded sends commands without an end: they are refused at the limit, not when
// all of them are in memory.
func TestPushCommandsAreBounded(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	const limit = 10_000
	tests := map[string]struct {
		line     string
		takenMax int64
		says     string
	}{
		"short ones": {
			zero + " " + strings.Repeat("1", 40) + " refs/heads/x", limit*110 + 1<<20,
			"ref updates in one push: more than the limit of 10000",
		},
		"long ones": {
			zero + " " + strings.Repeat("1", 40) + " refs/heads/" + strings.Repeat("x", 60_000), limit*1280 + 1<<20,
			"bytes of the ref updates",
		},
		"shallow lines": {
			"shallow " + strings.Repeat("1", 40), limit*1280 + 1<<20, "shallow lines: more than the limit of 100000",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := &endless{line: request(test.line)}
			x := exchangetest.New(http.MethodPost, "/"+repoName+".git/git-receive-pack", body)
			x.RequestHeaders.Set("Content-Type", "application/x-git-receive-pack-request")
			answer, err := pending{x, r.handle(x)}.finish()
			if err != nil {
				t.Fatal(err)
			}
			if answer.Status != http.StatusRequestEntityTooLarge || !bytes.Contains(answer.Body, []byte(test.says)) {
				t.Errorf("answer %d %.300q, want 413 %q", answer.Status, answer.Body, test.says)
			}
			if body.taken > test.takenMax {
				t.Errorf("%d bytes were read, expected at most %d", body.taken, test.takenMax)
			}
		})
	}
}
