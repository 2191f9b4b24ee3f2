package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
	"packhorse/api/problem"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
)

// ask is a request of a client.
type ask struct {
	name   string
	repo   string
	method string
	target string
	body   string
	header map[string]string
	git    bool
	want   told
}

// told is a client's view of an answer.
type told struct {
	status int
	body   string // of a git client the objects that it got
	err    error  // that the client cannot miss
}

// allAsks are requests by all routes that read objects, and several kinds of clone.
func (f *flipped) allAsks(tip, parent string) []ask {
	var asks []ask
	get := func(repo, target string, headers ...string) {
		one := ask{name: repo + " " + target, repo: repo, method: "GET", target: v1 + target, header: map[string]string{}}
		for i := 0; i < len(headers); i += 2 {
			one.name += " " + headers[i+1]
			one.header[headers[i]] = headers[i+1]
		}
		asks = append(asks, one)
	}
	post := func(repo, target, body string) {
		asks = append(asks, ask{name: repo + " " + target, repo: repo, method: "POST", target: v1 + target, body: body})
	}
	clone := func(name, repo string, version int, lines ...string) {
		asks = append(asks, cloneAsk(name, repo, version, lines...))
	}
	for _, repo := range []string{"pushed", "written", "fork"} {
		get(repo, "/file?path=large")
		get(repo, "/file?path=large", "Range", "bytes=500000-600000")
		get(repo, "/file?path=large", "Range", "bytes=-10")
		get(repo, "/files")
		get(repo, "/files/metadata")
		get(repo, "/commits?limit=100")
		post(repo, "/archive", `{}`)
		post(repo, "/files/read", `{"paths":["large","small","on","nope"]}`)
		post(repo, "/grep", `{"query":{"pattern":"line 1"}}`)
		head := f.head(repo)
		get(repo, "/commit?sha="+head)
		get(repo, "/diff?sha="+head)
		asks = append(asks, wholeClone(repo, head))
		clone("shallow clone", repo, 2, "command=fetch", "object-format=sha1", "0001", "ofs-delta", "deepen 1", "want "+head,
			"done", "0000")
		clone("clone without blobs", repo, 2, "command=fetch", "object-format=sha1", "0001", "filter blob:none", "want "+head,
			"done", "0000")
		clone("old clone", repo, 0, "want "+head+" side-band-64k ofs-delta", "0000", "done")
		clone("oldest clone", repo, 0, "want "+head, "0000", "done")
	}
	get("written", "/file?path=small")
	get("written", "/file?path=hot")
	get("written", "/commits?path=hot")
	get("written", "/blame?path=small")
	get("written", "/branches/diff?branch=side&base=main&path=small")
	get("written", "/merge/preview?source_branch=side&target_branch=main")
	get("pushed", "/commits?path=large")
	get("pushed", "/notes?sha="+tip)
	get("pushed", "/diff?path=large&sha="+tip+"&baseSha="+parent)
	get("pushed", "/blame?path=large&ref="+tip)
	get("pushed", "/merge/preview?source_branch=side&target_branch=main")
	clone("later fetch", "pushed", 2, "command=fetch", "object-format=sha1", "0001", "want "+f.large.String(), "done",
		"0000")
	clone("fetch", "pushed", 2, "command=fetch", "object-format=sha1", "0001", "ofs-delta", "thin-pack", "want "+tip,
		"have "+parent, "done", "0000")
	return asks
}

// cloneAsk is a request of a git client, by a version of the protocol.
func cloneAsk(name, repo string, version int, lines ...string) ask {
	one := ask{
		name: name + " of " + repo, repo: repo, method: "POST", target: "/" + repo + ".git/git-upload-pack",
		git: true, body: requestText(lines...),
	}
	one.header = map[string]string{"Content-Type": "application/x-git-upload-pack-request"}
	if version > 0 {
		one.header["Git-Protocol"] = fmt.Sprint("version=", version)
	}
	return one
}

func wholeClone(repo, head string) ask {
	return cloneAsk("clone", repo, 2, "command=fetch", "object-format=sha1", "0001", "ofs-delta", "want "+head, "done",
		"0000")
}

// requestText puts lines into packets; a line of four digits is a packet by itself.
func requestText(lines ...string) string {
	var text strings.Builder
	for _, line := range lines {
		if line == "0000" || line == "0001" {
			text.WriteString(line)
		} else {
			fmt.Fprintf(&text, "%04x%s\n", len(line)+5, line)
		}
	}
	return text.String()
}

// do sends a request and returns the client's view of the answer.
func (f *flipped) do(one *ask) told {
	f.t.Helper()
	x := exchangetest.New(one.method, one.target, strings.NewReader(one.body))
	for name, value := range one.header {
		x.RequestHeaders.Set(name, value)
	}
	grant := &auth.Grant{Org: enginetest.Org, Subject: "test", Repo: one.repo, Scopes: auth.GitRead | auth.GitWrite}
	var err error
	if one.git {
		to, ok := exchange.ParseGitPath(one.target)
		if !ok {
			f.t.Fatalf("%s is no path of git", one.target)
		}
		err = f.git.Serve(x, to, grant)
	} else {
		route, _, _ := strings.Cut(one.target, "?")
		err = f.rest[one.method+" "+route](x, grant)
	}
	if err != nil {
		return told{status: problem.From(err).Status, err: err}
	}
	answer, err := x.Finish()
	got := told{status: answer.Status, body: string(answer.Body), err: err}
	if answer.Header.Get("Content-Length") == strconv.Itoa(len(answer.Body)) {
		got.err = nil // the client has all that was announced, and does not look whether the connection ends
	}
	if one.git && err == nil {
		got.body, got.err = f.fetched(answer.Body, one)
	}
	return got
}

// fetched parses a git client's answer, as git does: bands, pack, checksums, deltas. It returns the
// received objects.
func (f *flipped) fetched(body []byte, one *ask) (string, error) {
	in := pktline.NewReader(bytes.NewReader(body))
	banded := strings.Contains(one.body, "side-band") || one.header["Git-Protocol"] != ""
	var packed bytes.Buffer
	for {
		kind, line, err := in.Read()
		switch {
		case err != nil:
			return "", fmt.Errorf("the answer ends early: %w", err)
		case kind == pktline.Flush:
			return f.unpack(&packed)
		case kind == pktline.Delim:
		case !banded && string(line) == "NAK\n":
			if _, err := packed.ReadFrom(in.Rest()); err != nil {
				return "", err
			}
			return f.unpack(&packed)
		case bytes.HasPrefix(line, []byte("ERR ")):
			return "", fmt.Errorf("told: %s", line)
		case line[0] == pktline.BandData:
			packed.Write(line[1:])
		case line[0] == pktline.BandError:
			return "", fmt.Errorf("told: %s", line[1:])
		}
	}
}

// unpack reads a pack to its end and returns the objects in it, whose content their IDs prove.
func (f *flipped) unpack(packed io.Reader) (string, error) {
	byOffset, byID := map[int64]made{}, map[object.ID]made{}
	r := pack.NewReader(packed, pack.ReaderOptions{})
	var ids []string
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(ids)
			return strings.Join(ids, "\n"), nil
		}
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return "", err
		}
		one := made{e.Kind.Type(), data}
		if e.Kind.IsDelta() {
			base, ok := byOffset[e.BaseOffset]
			if e.Kind == pack.KindRefDelta {
				base, ok = byID[e.BaseID]
			}
			if !ok { // a thin pack
				if base, err = f.client.read(e.BaseID); err != nil {
					return "", err
				}
			}
			if one.data, err = delta.Apply(nil, base.data, data, 1<<30); err != nil {
				return "", err
			}
			one.kind = base.kind
		}
		id, err := object.Hash(one.kind, one.data)
		if err != nil {
			return "", err
		}
		byOffset[e.Offset], byID[id] = one, one
		ids = append(ids, id.String())
	}
}

// gitClient is the data of a client that fetches again: objects by their ID.
type gitClient struct {
	git     *oracle.Repository
	objects map[object.ID]made
}

// made is an object that a client has.
type made struct {
	kind object.Type
	data []byte
}

func (c *gitClient) read(id object.ID) (made, error) {
	one, ok := c.objects[id]
	if ok {
		return one, nil
	}
	name, err := c.git.Try(nil, "cat-file", "-t", id.String())
	if err != nil {
		return one, fmt.Errorf("the pack lacks %s", id)
	}
	if one.kind, err = object.ParseType(strings.TrimSpace(string(name))); err != nil {
		return one, err
	}
	one.data = c.git.Read(one.kind.String(), id.String())
	c.objects[id] = one
	return one, nil
}
