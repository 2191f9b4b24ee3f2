package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// act is one request of a client, to a repository that has refs and maybe the object of the
// request.
type act struct {
	*policyServer
	repo, token string
	id          string // the new value of refs
	held        *holder
	credential  string
}

// reply is the client's view of the result.
type reply struct {
	status int
	text   string
}

// done reports whether everything was carried out.
func (r reply) done() bool {
	return r.status/100 == 2 && !strings.Contains(r.text, "ng refs/") && !strings.Contains(r.text, "ERR ")
}

// denied reports whether a policy refused something.
func (r reply) denied() bool {
	return (r.status == http.StatusForbidden || r.status == http.StatusOK && strings.Contains(r.text, "ng refs/")) &&
		strings.Contains(r.text, "denied by policy")
}

// json makes a call of the API.
func (a *act) json(route, format string, args ...any) reply {
	a.t.Helper()
	c := a.family(call{route, a.repo, fmt.Sprintf(format, args...)})
	method, path, _ := strings.Cut(c.route, " ")
	return a.send(method, path, "application/json", "", []byte(c.body))
}

// lines makes a call of the API that takes lines.
func (a *act) lines(route, body string) reply {
	a.t.Helper()
	c := a.family(call{route, a.repo, body})
	method, path, _ := strings.Cut(c.route, " ")
	return a.send(method, path, "application/x-ndjson", "", []byte(c.body))
}

// transact makes a transaction of one operation.
func (a *act) transact(format string, args ...any) reply {
	a.t.Helper()
	return a.lines("POST "+v1+"/transactions", transaction(fmt.Sprintf(format, args...)))
}

func (a *act) send(method, path, kind, protocol string, body []byte) reply {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, "http://"+a.address+path, bytes.NewReader(body))
	must(err)
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", kind)
	if protocol != "" {
		request.Header.Set("Git-Protocol", protocol)
	}
	response, err := a.client.Do(request)
	must(err)
	defer response.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(response.Body)
	must(err)
	return reply{response.StatusCode, string(text)}
}

// push sends ref updates as a git client of a version of the protocol does: pairs are names of
// stored refs, each with its new value.
func (a *act) push(variant, capabilities, protocol string, pairs ...string) reply {
	a.t.Helper()
	now := a.standing(a.repo)
	at := func(name string) string {
		if id := now.refs[name]; id != "" {
			return id
		}
		return zero
	}
	var body strings.Builder
	pack := a.empty
	if a.held.ref == "" { // the repository does not have it
		pack = a.pack(a.id, "^"+a.ids["base"])
	}
	brings := false
	for i := 0; i < len(pairs); i += 2 {
		line := fmt.Sprintf("%s %s %s", at(pairs[i]), pairs[i+1], strings.TrimPrefix(pairs[i], aside))
		if i == 0 {
			line += "\x00 report-status " + capabilities
		}
		fmt.Fprintf(&body, "%04x%s", len(line)+4, line)
		brings = brings || pairs[i+1] != zero
		now.refs[pairs[i]] = strings.ReplaceAll(pairs[i+1], zero, "")
	}
	body.WriteString("0000")
	if brings {
		body.Write(pack)
	}
	discovered := a.send(http.MethodGet, "/"+a.repo+variant+".git/info/refs?service="+receivePack, "", protocol, nil)
	if discovered.status != http.StatusOK {
		a.t.Errorf("info/refs: status %d: %s", discovered.status, discovered.text)
	}
	return a.send(http.MethodPost, "/"+a.repo+variant+".git/"+receivePack, "application/x-"+receivePack+"-request",
		protocol, []byte(body.String()))
}

// branch is the JSON for the branch that contains id, and for whether it is ephemeral.
func (a *act) branch(member, ephemeral string) string {
	name, inSpace := strings.CutPrefix(a.held.ref, aside)
	return fmt.Sprintf(`%q:%q,%q:%t`, member, strings.TrimPrefix(name, "refs/heads/"), ephemeral, inSpace)
}

// way is one in which refs move, appear or vanish.
type way struct {
	route string // of the API; "" for a push
	do    func(a *act) reply
	// branch says that it starts from a branch that contains its object, stored that the object only
	// has to be in the repository.
	branch, stored bool
	// once says that its object does not matter.
	once bool
	// each says that each ref moves or not independently, anew that the ref has been deleted before,
	// in the same request: documented as two steps, of which the second one creates it.
	each, anew bool
	// upstream says that the repository has one.
	upstream bool
	// still says that no ref moves.
	still bool
	// forks says that the refs of another repository appear, all of whose commits are new to it.
	// Documented: a token under verify-sig creates no forks, that is, no ref in a fork that it binds,
	// whatever the signatures are.
	forks bool
	// syncs says that it has a sync move all refs, later: documented as refused under both ops if any
	// branch or tag is bound.
	syncs bool
}

func pushed(variant, capabilities string, protocol int, pairs ...string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		filled := make([]string, len(pairs))
		for i, text := range pairs {
			switch filled[i] = text; text {
			case "id":
				filled[i] = a.id
			case "signed", "root", "tag of signed":
				filled[i] = a.ids[text]
			}
		}
		return a.push(variant, capabilities, []string{"", "version=1", "version=2"}[protocol], filled...)
	}
}

const author = `"author":{"name":"A","email":"a@example.com"}`

// commitPack is a commit-pack of a new file, commitOf one of any file.
func commitPack(metadata, content string) string { return commitOf("new", metadata, content) }

func commitOf(path, metadata, content string) string {
	return fmt.Sprintf("{\"metadata\":{%s,\"commit_message\":\"m\",%s,\"files\":[{\"path\":%q,\"content_id\":\"1\"}]}}\n"+
		"{\"blob_chunk\":{\"content_id\":\"1\",\"data\":%q,\"eof\":true}}\n", metadata, author, path,
		base64.StdEncoding.EncodeToString([]byte(content)))
}

// oldBlob is what the root commit of a history has at f: "1".
const oldBlob = "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d"

// operated is a commit-pack of a file operation that needs no content.
func operated(operation string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		return a.lines("POST "+v1+"/commit-pack",
			`{"metadata":{"target_branch":"bound/t","commit_message":"m",`+author+`,"files":[`+operation+`]}}`)
	}
}

// diffCommit is a diff-commit of one file.
func diffCommit(metadata string) string {
	return fmt.Sprintf("{\"metadata\":{%s,\"commit_message\":\"m\",%s}}\n{\"diff_chunk\":{\"data\":%q,\"eof\":true}}\n",
		metadata, author, base64.StdEncoding.EncodeToString([]byte("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+1\n")))
}

// fork creates another repository from this one.
func fork(format string, args ...string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		rest := format
		for _, name := range args {
			id := a.id
			if name != "id" {
				id = a.ids[name]
			}
			rest = strings.Replace(rest, "%s", id, 1)
		}
		return a.json("POST "+v1, `{"base_repo":{"provider":"code","owner":"acme","name":%q,"auth":{"token":%q},%s`,
			a.repo, strings.TrimPrefix(token(a.repo, "git:read"), "Bearer "), rest)
	}
}

// merged merges the branch that contains the object into another one.
func merged(strategy, more string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		return a.json("POST "+v1+"/merge", `{%s,"target_branch":"bound/t","strategy":%q,%s"commit_message":"m",%s}`,
			a.branch("source_branch", "source_is_ephemeral"), strategy, more, author)
	}
}

// picked repeats or takes back the commit that the branch of the object ends in.
func picked(path, more string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		return a.json("POST "+v1+path, `{"commits":[%q],"target_branch":"bound/t","mainline":1,"empty":"keep",%s%s}`, a.id, more,
			author)
	}
}

// landed merges the branch that contains the object into another one.
func landed(more string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		return a.json("POST "+v1+"/land", `{"target_branch":"bound/t","sources":[{%s%s}],%s}`, more,
			a.branch("ref", "is_ephemeral"), author)
	}
}

// restored brings back a tree.
func restored(more string) func(a *act) reply {
	return func(a *act) reply {
		a.t.Helper()
		return a.json("POST "+v1+"/restore-commit", `{"metadata":{"target_branch":"bound/t","target_commit_sha":%q,%s%s}}`,
			a.id, more, author)
	}
}

// ways are all in which a ref of a repository changes. TestPolicies fails for a route that may
// write and is not among them.
var ways = map[string]way{
	"push, new branch":            {do: pushed("", "", 0, there, "id")},
	"push, new branch, version 1": {do: pushed("", "", 1, there, "id")},
	"push, new branch, version 2": {do: pushed("", "", 2, there, "id")},
	"push, branch":                {do: pushed("", "", 0, here, "id")},
	"push, branch, version 2":     {do: pushed("", "atomic", 2, here, "id")},
	"push, default branch":        {do: pushed("", "", 0, "refs/heads/main", "id")},
	"push, new free branch":       {do: pushed("", "", 0, free, "id")},
	"push, new tag":               {do: pushed("", "", 0, thereTag, "id")},
	"push, tag":                   {do: pushed("", "", 0, hereTag, "id")},
	"push, notes":                 {do: pushed("", "", 0, hereNotes, "id")},
	"push, other ref":             {do: pushed("", "", 0, hereOther, "id")},
	"push, ephemeral branch":      {do: pushed("+ephemeral", "", 0, aside+here, "id")},
	"push, new ephemeral branch":  {do: pushed("+ephemeral", "", 2, aside+there, "id")},
	"push, new ephemeral tag":     {do: pushed("+ephemeral", "", 2, aside+thereTag, "id")},
	"push, import":                {do: pushed("+import", "", 0, here, "id", there, "id"), each: true},
	"push, back and forth":        {do: pushed("", "atomic", 0, here, "root", here, "id")},
	"push, twice":                 {do: pushed("", "atomic", 0, here, "signed", here, "id")},
	"push, anew":                  {do: pushed("", "atomic", 0, here, zero, here, "id"), anew: true},
	"push, renamed":               {do: pushed("", "atomic", 0, here, zero, there, "id")},
	"push, several": {
		do: pushed("", "", 0, free, "id", here, "id", there, "signed", thereTag, "id"), each: true,
	},
	"push, atomic":            {do: pushed("", "atomic", 0, free, "id", there, "signed", here, "id")},
	"push, delete branch":     {do: pushed("", "", 0, here, zero), once: true},
	"push, delete tag":        {do: pushed("", "", 0, hereTag, zero), once: true},
	"push, delete notes":      {do: pushed("", "", 0, hereNotes, zero), once: true},
	"push, delete ephemeral":  {do: pushed("+ephemeral", "", 0, aside+here, zero), once: true},
	"push, delete and create": {do: pushed("", "", 0, here, zero, there, "id", hereTag, zero), each: true},

	"branch of a commit": {route: "POST " + v1 + "/branches/create", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/n","base_ref":%q}`, a.id)
	}},
	"branch of a branch": {route: "POST " + v1 + "/branches/create", branch: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/n",%s}`,
			a.branch("base_branch", "base_is_ephemeral"))
	}},
	"ephemeral branch of a branch": {route: "POST " + v1 + "/branches/create", branch: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/n","target_is_ephemeral":true,%s}`,
			a.branch("base_branch", "base_is_ephemeral"))
	}},
	"ephemeral branch of a commit": {route: "POST " + v1 + "/branches/create", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/n","target_is_ephemeral":true,"base_ref":%q}`,
			a.id)
	}},
	"forced branch": {route: "POST " + v1 + "/branches/create", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/t","base_ref":%q,"force":true}`, a.id)
	}},
	"forced branch back": {route: "POST " + v1 + "/branches/create", once: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"bound/t","base_ref":%q,"force":true}`, a.ids["root"])
	}},
	"forced ephemeral branch": {route: "POST " + v1 + "/branches/create", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create",
			`{"target_branch":"bound/t","target_is_ephemeral":true,"base_ref":%q,"force":true}`, a.id)
	}},
	"free branch": {route: "POST " + v1 + "/branches/create", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/branches/create", `{"target_branch":"free/n","base_ref":%q}`, a.id)
	}},
	"delete branch": {route: "DELETE " + v1 + "/branches", once: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/branches", `{"name":"bound/t"}`)
	}},
	"delete ephemeral branch": {route: "DELETE " + v1 + "/branches", once: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/branches", `{"name":"bound/t","ephemeral":true}`)
	}},
	"tag": {route: "POST " + v1 + "/tags", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/tags", `{"name":"bound/n","target":%q}`, a.id)
	}},
	"ephemeral tag": {route: "POST " + v1 + "/tags", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/tags", `{"name":"bound/n","ephemeral":true,"target":%q}`, a.id)
	}},
	"delete tag": {route: "DELETE " + v1 + "/tags", once: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/tags", `{"name":"bound/t"}`)
	}},

	"merge, forward":        {route: "POST " + v1 + "/merge", branch: true, do: merged("ff_only", "")},
	"merge, rather forward": {route: "POST " + v1 + "/merge", branch: true, do: merged("ff_prefer", "")},
	"merge":                 {route: "POST " + v1 + "/merge", branch: true, do: merged("merge", "")},
	"merge, squash":         {route: "POST " + v1 + "/merge", branch: true, do: merged("ff_prefer", `"squash":true,`)},
	"merge, unrelated": {
		route: "POST " + v1 + "/merge", branch: true, do: merged("ff_prefer", `"allow_unrelated_histories":true,`),
	},
	"merge, ephemerals": {
		route: "POST " + v1 + "/merge", branch: true, do: merged("ff_prefer", `"target_is_ephemeral":true,`),
	},

	"cherry-pick":            {route: "POST " + v1 + "/cherry-pick", stored: true, do: picked("/cherry-pick", "")},
	"cherry-pick, ephemeral": {route: "POST " + v1 + "/cherry-pick", stored: true, do: picked("/cherry-pick", `"target_is_ephemeral":true,`)},
	"land":                   {route: "POST " + v1 + "/land", branch: true, do: landed("")},
	"land, squash":           {route: "POST " + v1 + "/land", branch: true, do: landed(`"squash":true,`)},
	"revert":                 {route: "POST " + v1 + "/revert", stored: true, do: picked("/revert", "")},
	"revert, ephemeral":      {route: "POST " + v1 + "/revert", stored: true, do: picked("/revert", `"target_is_ephemeral":true,`)},

	"commit": {route: "POST " + v1 + "/commit-pack", once: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack", commitPack(`"target_branch":"bound/t"`, "1"))
	}},
	"commit, large": {route: "POST " + v1 + "/commit-pack", once: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack",
			commitPack(`"target_branch":"bound/t"`, strings.Repeat("0123456789abcdef", 1<<15)))
	}},
	"commit, new branch": {route: "POST " + v1 + "/commit-pack", branch: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack",
			commitPack(`"target_branch":"bound/n",`+a.branch("base_branch", "ephemeral_base"), "1"))
	}},
	"commit, new ephemeral branch": {route: "POST " + v1 + "/commit-pack", branch: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack",
			commitPack(`"target_branch":"bound/n","ephemeral":true,`+a.branch("base_branch", "ephemeral_base"), "1"))
	}},
	"commit, move": {route: "POST " + v1 + "/commit-pack", once: true, do: operated(
		`{"path":"new","operation":"move","from":"f"}`)},
	"commit, copy": {route: "POST " + v1 + "/commit-pack", once: true, do: operated(
		`{"path":"new","operation":"copy","from":"f"}`)},
	"commit, edit": {route: "POST " + v1 + "/commit-pack", once: true, do: operated(
		`{"path":"f","operation":"edit","edits":[{"old":"2","new":"3"}]}`)},
	"commit, stored blob": {route: "POST " + v1 + "/commit-pack", once: true, do: operated(
		`{"path":"new","blob_sha":"` + oldBlob + `"}`)},
	"commit of nothing, new branch": {route: "POST " + v1 + "/commit-pack", branch: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack",
			commitOf("f", `"target_branch":"bound/n","allow_empty":false,`+a.branch("base_branch", "ephemeral_base"), "2\n"))
	}},
	"commit of nothing": {route: "POST " + v1 + "/commit-pack", once: true, still: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/commit-pack", commitOf("f", `"target_branch":"bound/t","allow_empty":false`, "2\n"))
	}},
	"patch": {route: "POST " + v1 + "/diff-commit", once: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/diff-commit", diffCommit(`"target_branch":"bound/t"`))
	}},
	"patch, new branch": {route: "POST " + v1 + "/diff-commit", branch: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/diff-commit",
			diffCommit(`"target_branch":"bound/n",`+a.branch("base_branch", "ephemeral_base")))
	}},
	"patch, ephemeral": {route: "POST " + v1 + "/diff-commit", once: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/diff-commit", diffCommit(`"target_branch":"bound/t","ephemeral":true`))
	}},
	"restore":             {route: "POST " + v1 + "/restore-commit", stored: true, do: restored("")},
	"restore, ephemeral":  {route: "POST " + v1 + "/restore-commit", stored: true, do: restored(`"ephemeral":true,`)},
	"restore of the same": {route: "POST " + v1 + "/restore-commit", stored: true, do: restored(`"allow_empty":false,`)},

	"undo of a branch": {route: "POST " + v1 + "/undo", once: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/undo", `{"to":"seq:1","refs":["bound/t"]}`)
	}},
	"undo of a tag": {route: "POST " + v1 + "/undo", once: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/undo", `{"to":"seq:1","refs":["refs/tags/bound/*"]}`)
	}},
	"undo of an ephemeral branch": {route: "POST " + v1 + "/undo", once: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/undo", `{"to":"seq:1","refs":["refs/namespaces/ephemeral/refs/heads/bound/t"]}`)
	}},
	"transaction, branch": {route: "POST " + v1 + "/transactions", stored: true, do: func(a *act) reply {
		return a.transact(`{"branch":{"action":"create","target_branch":"bound/n","base_ref":%q}}`, a.id)
	}},
	"transaction, forced branch": {route: "POST " + v1 + "/transactions", stored: true, do: func(a *act) reply {
		return a.transact(`{"branch":{"action":"create","target_branch":"bound/t","base_ref":%q,"force":true}}`, a.id)
	}},
	"transaction, delete branch": {route: "POST " + v1 + "/transactions", once: true, do: func(a *act) reply {
		return a.transact(`{"branch":{"action":"delete","target_branch":"bound/t"}}`)
	}},
	"transaction, renamed branch": {route: "POST " + v1 + "/transactions", once: true, do: func(a *act) reply {
		return a.transact(`{"branch":{"action":"move","target_branch":"bound/t","new_name":"free/n"}}`)
	}},
	"transaction, tag": {route: "POST " + v1 + "/transactions", stored: true, do: func(a *act) reply {
		return a.transact(`{"tag":{"action":"create","name":"bound/n","ref":%q}}`, a.id)
	}},
	"transaction, delete tag": {route: "POST " + v1 + "/transactions", once: true, do: func(a *act) reply {
		return a.transact(`{"tag":{"action":"delete","name":"bound/t"}}`)
	}},
	"transaction, merge": {route: "POST " + v1 + "/transactions", branch: true, do: func(a *act) reply {
		return a.transact(`{"merge":{%s,"target_branch":"bound/t","strategy":"ff_prefer","commit_message":"m",%s}}`,
			a.branch("source_branch", "source_is_ephemeral"), author)
	}},
	"transaction, restore": {route: "POST " + v1 + "/transactions", stored: true, do: func(a *act) reply {
		return a.transact(`{"restore":{"target_branch":"bound/t","base_ref":%q,%s}}`, a.id, author)
	}},
	"transaction, note": {route: "POST " + v1 + "/transactions", stored: true, do: func(a *act) reply {
		return a.transact(`{"note":{"sha":%q,"note":"n","ref":"bound/t"}}`, a.id)
	}},
	"transaction, commit": {route: "POST " + v1 + "/transactions", once: true, do: func(a *act) reply {
		return a.lines("POST "+v1+"/transactions", transaction(fmt.Sprintf(
			`{"commit":{"target_branch":"bound/t","commit_message":"m",%s,"files":[{"path":"new","content_id":"1"}]}}`, author))+
			`{"blob_chunk":{"content_id":"1","data":"MQ==","eof":true}}`)
	}},
	"transaction of repositories": {route: "POST /api/v1/transactions", stored: true, do: func(a *act) reply {
		return a.lines("POST /api/v1/transactions", transaction(fmt.Sprintf(
			`{"repo":%q,"branch":{"action":"create","target_branch":"bound/t","base_ref":%q,"force":true}}`, a.repo, a.id)))
	}},

	"note": {route: "POST " + v1 + "/notes", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/notes", `{"sha":%q,"note":"n","ref":"bound/t"}`, a.id)
	}},
	"note, new ref": {route: "POST " + v1 + "/notes", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/notes", `{"sha":%q,"note":"n","ref":"bound/n"}`, a.id)
	}},
	"note, ephemeral": {route: "POST " + v1 + "/notes", stored: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/notes", `{"sha":%q,"note":"n","ref":"bound/n","ephemeral":true}`, a.id)
	}},
	"note, more": {route: "POST " + v1 + "/notes", once: true, do: func(a *act) reply {
		return a.json("POST "+v1+"/notes", `{"sha":%q,"note":"n","ref":"bound/t","action":"append"}`, a.ids["base"])
	}},
	"delete note": {route: "DELETE " + v1 + "/notes", once: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/notes", `{"sha":%q,"ref":"bound/t"}`, a.ids["base"])
	}},

	"create": {route: "POST " + v1, once: true, forks: true, still: true, do: func(a *act) reply {
		return a.json("POST "+v1, `{}`)
	}},
	"fork": {route: "POST " + v1, stored: true, forks: true, do: fork(`"operation":"fork"}}`)},
	"fork of a commit": {
		route: "POST " + v1, stored: true, forks: true, do: fork(`"operation":"fork","sha":"%s"},"default_branch":"bound/n"}`,
			"id"),
	},
	"fork of a commit as a free branch": {
		route: "POST " + v1, stored: true, forks: true, do: fork(`"operation":"fork","sha":"%s"},"default_branch":"free/n"}`,
			"id"),
	},
	"fork of a tag": {
		route: "POST " + v1, once: true, forks: true,
		do: fork(`"operation":"fork","ref":"refs/tags/bound/t"},"default_branch":"free/n"}`),
	},
	"snapshot": {
		route: "POST " + v1, stored: true, forks: true,
		do: fork(`"operation":"snapshot","ref":"%s"},"default_branch":"bound/n","initial_commit":{"message":"m",`+author+`}}`,
			"id"),
	},
	"import": {route: "POST " + v1, once: true, forks: true, syncs: true, still: true, do: func(a *act) reply {
		return a.json("POST "+v1, `{"base_repo":{"provider":"gitlab","owner":"o","name":"n"}}`)
	}},

	"delete": {route: "DELETE " + v1 + "/delete", once: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/delete", ``)
	}},
	"delete, and undelete by another name": {route: "POST " + v1 + "/undelete", once: true, do: func(a *act) reply {
		if done := a.json("DELETE "+v1+"/delete", ``); !done.done() {
			return done
		}
		return a.json("POST "+v1+"/undelete", `{"name":"%s-back"}`, a.repo)
	}},
	// Documented: the default branch is a setting, and no ref moves with it.
	"default branch": {route: "PATCH /api/v1/repo", once: true, still: true, do: func(a *act) reply {
		return a.json("PATCH /api/v1/repo", `{"default_branch":"bound/t"}`)
	}},
	"detach": {route: "DELETE " + v1 + "/base", once: true, upstream: true, still: true, do: func(a *act) reply {
		return a.json("DELETE "+v1+"/base", ``)
	}},
	"pull": {
		route: "POST " + v1 + "/pull-upstream", once: true, syncs: true, upstream: true, still: true, do: func(a *act) reply {
			return a.json("POST "+v1+"/pull-upstream", `{}`)
		},
	},
	"pull of a ref": {
		route: "POST " + v1 + "/pull-upstream", once: true, syncs: true, upstream: true, still: true, do: func(a *act) reply {
			return a.json("POST "+v1+"/pull-upstream", `{"ref":"free/n"}`)
		},
	},
	// A new credential has no sync made by a token that may not make it: engine's tests.
	"new credential": {
		route: "POST " + v1 + "/git-credentials", once: true, upstream: true, still: true, do: func(a *act) reply {
			return a.json("POST "+v1+"/git-credentials", `{"repo_id":%q,"password":"p"}`, a.repo)
		},
	},
	"credential": {
		route: "PUT " + v1 + "/git-credentials", once: true, upstream: true, still: true, do: func(a *act) reply {
			return a.json("PUT "+v1+"/git-credentials", `{"id":%q,"password":"p"}`, a.credential)
		},
	},
	"delete credential": {
		route: "DELETE " + v1 + "/git-credentials", once: true, upstream: true, still: true, do: func(a *act) reply {
			return a.json("DELETE "+v1+"/git-credentials", `{"id":%q}`, a.credential)
		},
	},
}
