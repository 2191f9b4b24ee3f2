package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// pastClient is a client whose host has a clock that the test moves.
type pastClient struct {
	*client
	host *engine.Host
	now  time.Time
}

func newPastClient(t *testing.T) *pastClient {
	t.Helper()
	p := &pastClient{now: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)}
	host, _ := enginetest.OpenOn(t, vfs.NewMem(), engine.Config{Now: func() time.Time { return p.now }})
	p.host = host
	p.client = &client{
		t: t, door: rest.New(rest.Config{Host: host}),
		grant: &auth.Grant{Org: enginetest.Org, Subject: "tester", Repo: "r", Scopes: auth.GitRead | auth.GitWrite},
	}
	p.create(`{"default_branch":"main"}`).want(http.StatusCreated)
	return p
}

// read is a read with the parameters of its query, or those of its body.
type pastRead struct {
	handler             handler
	method, query, body string
}

// reads are one read of each call that takes a moment, and more.
func (p *pastClient) reads(commit string) []pastRead {
	get := func(h handler, query string) pastRead { return pastRead{h, http.MethodGet, query, ""} }
	post := func(h handler, body string) pastRead { return pastRead{h, http.MethodPost, "", body} }
	d := p.door
	return []pastRead{
		get(d.Branches, ""), get(d.Branches, "limit=1"), get(d.Branches, "ephemeral=true"),
		get(d.Branch, "name=main"), get(d.Branch, "name=dev"), get(d.Branch, "name=renamed"),
		get(d.Tags, ""), get(d.Tag, "name=v1"), get(d.NotesRefs, ""), get(d.Note, "object_ref="+commit),
		get(d.Commits, ""), get(d.Commits, "ref=dev&path=a.txt"), get(d.Commit, "ref=main~1"), get(d.Commit, "ref=HEAD"),
		get(d.Files, ""), get(d.Files, "ref=dev"), get(d.FilesMetadata, ""), get(d.File, "path=a.txt"),
		{d.File, http.MethodHead, "path=a.txt&ref=dev", ""},
		get(d.CommitDiff, "ref=main"), get(d.BranchDiff, "branch=dev"), get(d.Blame, "path=a.txt"),
		post(d.Grep, `{"query":{"pattern":"."}}`), post(d.Archive, `{"ref":"dev"}`),
		post(d.FilesRead, `{"ref":"v1","paths":["a.txt"]}`),
	}
}

// at makes a read at a moment, "" for now, and returns all of the answer but its cursors.
func (p *pastClient) at(r pastRead, moment string) string {
	p.t.Helper()
	query, body := r.query, r.body
	switch {
	case moment == "":
	case body != "":
		body = strings.Replace(body, "{", fmt.Sprintf(`{"at":%q,`, moment), 1)
	default:
		query += "&at=" + url.QueryEscape(moment)
	}
	got := p.call(r.handler, r.method, "/?"+query, strings.NewReader(body))
	got.Header.Del("X-Request-Id")
	if cursorText.Match(got.Body) { // those of a moment are longer
		got.Header.Del("Content-Length")
	}
	return fmt.Sprint(got.Status, " ", got.Header, " ", cursorText.ReplaceAllString(string(got.Body), "$1"))
}

var cursorText = regexp.MustCompile(`("(?:next_)?cursor":)"[^"]*"`)

// TestReadsAtMoments makes each read after each step of a story, and again at the moments of the
// steps when the story is over, by position, by time, and after a maintenance that prunes.
func TestReadsAtMoments(t *testing.T) {
	t.Parallel()
	p := newPastClient(t)
	first := p.commit("main", "a.txt", "one\n").Commit.SHA
	steps := []func(){
		func() {},
		func() { p.commit("main", "a.txt", "one\ntwo\n") },
		func() { p.commit("dev", "a.txt", "dev\n") },
		func() { p.tag("v1", first).want(http.StatusCreated) },
		func() {
			p.post(p.door.AddNote, `{"object_ref":"`+first+`","note":"good"}`).want(http.StatusCreated)
		},
		func() { // a forced move
			p.post(p.door.CreateBranch, `{"target_branch":"dev","base_ref":"`+first+`","force":true}`).want(http.StatusOK)
		},
		func() { p.remove(p.door.DeleteTag, `{"name":"v1"}`).want(http.StatusOK) },
		func() {
			p.post(p.door.AddNote, `{"object_ref":"`+first+`","note":"bad","action":"append"}`).want(http.StatusCreated)
		},
		func() { // a branch gets another name, and is the default branch under it
			p.post(p.door.CreateBranch, `{"target_branch":"renamed","base_branch":"main"}`).want(http.StatusCreated)
			p.call(p.door.ChangeRepository, http.MethodPatch, "/", strings.NewReader(`{"default_branch":"renamed"}`)).
				want(http.StatusOK)
			p.remove(p.door.DeleteBranch, `{"target_branch":"main"}`).want(http.StatusOK)
		},
		func() { p.remove(p.door.DeleteBranch, `{"target_branch":"dev"}`).want(http.StatusOK) },
		func() { p.commit("renamed", "a.txt", "three\n") },
	}
	type state struct {
		seq     uint64
		time    time.Time
		answers []string
	}
	reads := p.reads(first)
	var states []state
	for _, step := range steps {
		p.now = p.now.Add(time.Minute)
		step()
		repo, err := p.host.Repository(t.Context(), enginetest.Org, "r")
		if err != nil {
			t.Fatal(err)
		}
		s := state{time: p.now}
		if s.seq, err = repo.Sequence(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			s.answers = append(s.answers, p.at(r, ""))
		}
		states = append(states, s)
	}
	p.now = p.now.Add(time.Hour)
	for range 2 {
		for i, s := range states {
			for j, r := range reads {
				for _, moment := range []string{
					fmt.Sprint("seq:", s.seq), s.time.Format(time.RFC3339),
					s.time.Add(30 * time.Second).In(time.FixedZone("", 3600)).Format(time.RFC3339Nano),
				} {
					if got := p.at(r, moment); got != s.answers[j] {
						t.Fatalf("step %d, read %d (%s%s) at %s:\n%s\nwas\n%s", i, j, r.query, r.body, moment, got, s.answers[j])
					}
				}
			}
		}
		for done, err := range p.host.Maintain(t.Context(), engine.MaintainOptions{ReaderGrace: -1, All: true}) {
			if err != nil || done.Err != nil {
				t.Fatal(err, done.Err)
			}
		}
	}
}

// TestRevisionsAtMoments names commits by moments, in reads and as the source of writes.
func TestRevisionsAtMoments(t *testing.T) {
	t.Parallel()
	p := newPastClient(t)
	one := p.commit("main", "a.txt", "one\n").Commit.SHA // seq:2
	then := p.now
	p.now = p.now.Add(time.Minute)
	two := p.commit("main", "a.txt", "two\n").Commit.SHA // seq:3
	p.now = p.now.Add(time.Minute)
	p.post(p.door.CreateBranch, `{"target_branch":"main","base_ref":"`+one+`","force":true}`).want(http.StatusOK)
	for ref, want := range map[string]string{
		"main@{seq:2}": one, "main@{seq:3}": two, "main@{seq:3}~1": one, "HEAD@{seq:3}^": one, "@{seq:3}": two,
		"@@{seq:3}": two, "refs/heads/main@{seq:3}^{commit}": two, "main@{seq:4}": one,
		"main@{" + then.Format(time.RFC3339) + "}":                       one,
		"main@{" + then.Add(90*time.Second).Format(time.RFC3339) + "}~0": two,
	} {
		var got struct{ Commit struct{ SHA string } }
		p.call(p.door.Commit, http.MethodGet, "/?ref="+url.QueryEscape(ref), nil).want(http.StatusOK).decode(&got)
		if got.Commit.SHA != want {
			t.Errorf("%s is %s, want %s", ref, got.Commit.SHA, want)
		}
	}
	for ref, want := range map[string]struct {
		status int
		says   string
	}{
		"none@{seq:2}":                {404, `"none" not found at that moment`},
		"main@{seq:1}":                {404, `"main" not found at that moment`},
		"main@{seq:9}":                {400, "seq:9 has not come: the journal is at seq:4"},
		"main@{seq:0}":                {404, "before the repository was created"},
		"main@{seq:-1}":               {400, "a moment is a time of RFC 3339"},
		"main@{1}":                    {400, "a moment is a time of RFC 3339"},
		"main@{yesterday}":            {400, "@{yesterday} is not taken"},
		"main@{-1}":                   {400, "a branch of before (@{-1})"},
		"main@{upstream}":             {400, "an upstream (@{upstream})"},
		"main@{seq:2}@{seq:3}":        {400, "directly behind a name"},
		"main~1@{seq:2}":              {400, "directly behind a name"},
		one + "@{seq:2}":              {400, "the same at every moment"},
		"main@{2000-01-01T00:00:00Z}": {404, "before the repository was created"},
		"main@{2100-01-01T00:00:00Z}": {400, "has not come: it is 2026-11-22T09:02:00Z"},
	} {
		p.call(p.door.Commit, http.MethodGet, "/?ref="+url.QueryEscape(ref), nil).refused(want.status, want.says)
	}
	p.call(p.door.Commit, http.MethodGet, "/?ref="+url.QueryEscape("main@{seq:2}")+"&at=seq:2", nil).
		refused(http.StatusBadRequest, "a moment is given twice")

	p.post(p.door.CreateTag, `{"name":"was","ref":"main@{seq:3}"}`).want(http.StatusCreated)
	p.post(p.door.CreateBranch, `{"target_branch":"back","base_ref":"main@{seq:3}"}`).want(http.StatusCreated)
	p.post(p.door.RestoreCommit, `{"metadata":{"target_branch":"main","base_ref":"main@{seq:3}",`+author+`}}`).want(http.StatusCreated)
	p.post(p.door.CreateBranch, `{"target_branch":"x","base_ref":"gone@{seq:3}"}`).refused(http.StatusNotFound, "gone")
	var branch struct {
		Branch struct {
			HeadSHA string `json:"head_sha"`
		}
	}
	p.call(p.door.Branch, http.MethodGet, "/?name=back", nil).want(http.StatusOK).decode(&branch)
	if branch.Branch.HeadSHA != two {
		t.Errorf("back is at %s, want %s", branch.Branch.HeadSHA, two)
	}
}

// TestBadMoments asks for moments that cannot be read.
func TestBadMoments(t *testing.T) {
	t.Parallel()
	p := newPastClient(t)
	p.now = p.now.Add(time.Hour)
	p.commit("main", "a.txt", "one\n")
	p.commit("dev", "a.txt", "two\n")
	for moment, want := range map[string]struct {
		status int
		says   string
	}{
		"":                                {400, "at: expected a time of RFC 3339"},
		"yesterday":                       {400, `got "yesterday"`},
		"3":                               {400, "or seq:N"},
		"seq:":                            {400, "or seq:N"},
		"seq:x":                           {400, "or seq:N"},
		"seq:-1":                          {400, "or seq:N"},
		"seq:+1":                          {400, "or seq:N"},
		"seq:1.5":                         {400, "or seq:N"},
		"seq:0":                           {404, "before the repository was created, at seq:1"},
		"seq:4":                           {400, "the journal is at seq:3"},
		"seq:18446744073709551616":        {400, "seq:18446744073709551616 has not come: the journal is at seq:3"},
		"seq:" + strings.Repeat("9", 100): {400, "seq:" + strings.Repeat("9", 56) + " has not come: the journal is at seq:3"},
		"2026-11-22":                      {400, "expected a time of RFC 3339"},
		"2026-11-22T08:59:59Z":            {404, "created, at 2026-11-22T09:00:00Z"},
		"2026-11-22T10:00:00.001Z":        {400, "it is 2026-11-22T10:00:00Z"},
		"0001-01-01T00:00:00Z":            {404, "created"},
		"9999-12-31T23:59:59.999999999Z":  {400, "has not come"},
		strings.Repeat("9", 10_000):       {400, "expected a time of RFC 3339"},
	} {
		c := p.odd()
		c.call(p.door.Branches, http.MethodGet, "/?at="+url.QueryEscape(moment), nil).refused(want.status, want.says)
		if moment != "" {
			c.post(p.door.Grep, fmt.Sprintf(`{"query":{"pattern":"x"},"at":%q}`, moment)).refused(want.status, want.says)
		}
	}
	p.odd().post(p.door.Grep, `{"query":{"pattern":"x"},"at":""}`).refused(http.StatusBadRequest, "at: expected")
	p.call(p.door.Grep, http.MethodPost, "/?at=seq:2", strings.NewReader(`{"query":{"pattern":"x"},"at":"seq:2"}`)).
		refused(http.StatusBadRequest, "given twice")
	p.call(p.door.Grep, http.MethodPost, "/?at=seq:2", strings.NewReader(`{"query":{"pattern":"x"}}`)).want(http.StatusOK)
	// Calls that have no moment refuse one rather than ignore it.
	p.odd().call(p.door.Events, http.MethodGet, "/?at=seq:2", nil).refused(http.StatusBadRequest, "not made at a moment")
	p.odd().call(p.door.CreateTag, http.MethodPost, "/?at=seq:2", strings.NewReader(`{"name":"v","ref":"main"}`)).
		refused(http.StatusBadRequest, "not made at a moment")
	p.as("none").call(p.door.Branches, http.MethodGet, "/?at=seq:2", nil).refused(http.StatusNotFound, "none")
}

// TestCursorsOfMoments continues listings at other moments than they began at.
func TestCursorsOfMoments(t *testing.T) {
	t.Parallel()
	p := newPastClient(t)
	for i := range 3 {
		p.commit("main", fmt.Sprint(i, ".txt"), fmt.Sprint(i, "\n"))
		p.commit(fmt.Sprint("b", i), "x.txt", "x\n")
		p.tag(fmt.Sprint("v", i), p.commit("main", "y.txt", fmt.Sprint(i)).Commit.SHA).want(http.StatusCreated)
		p.post(p.door.AddNote, fmt.Sprintf(`{"object_ref":"main","note":"n","notes_ref":"n%d"}`, i)).want(http.StatusCreated)
	}
	p.commit("main", "z.txt", "z\n")
	d := p.door
	for name, list := range map[string]func(cursor, at string) answer{
		"branches": func(cursor, at string) answer { return p.page(d.Branches, cursor, at) },
		"tags":     func(cursor, at string) answer { return p.page(d.Tags, cursor, at) },
		"notes":    func(cursor, at string) answer { return p.page(d.NotesRefs, cursor, at) },
		"commits":  func(cursor, at string) answer { return p.page(d.Commits, cursor, at) },
		"files":    func(cursor, at string) answer { return p.page(d.Files, cursor, at) },
		"metadata": func(cursor, at string) answer { return p.page(d.FilesMetadata, cursor, at) },
		"grep": func(cursor, at string) answer {
			body := fmt.Sprintf(`{"query":{"pattern":"."},"pagination":{"limit":1,"cursor":%q}`, cursor)
			if at != "" {
				body += fmt.Sprintf(`,"at":%q`, at)
			}
			return p.post(d.Grep, body+"}")
		},
	} {
		cursor := func(at string) string {
			var page struct {
				Next string `json:"next_cursor"`
			}
			list("", at).want(http.StatusOK).decode(&page)
			if page.Next == "" {
				t.Errorf("%s: no next page at %q", name, at)
			}
			return page.Next
		}
		now, then := cursor(""), cursor("seq:12")
		list(now, "").want(http.StatusOK)
		list(then, "seq:12").want(http.StatusOK)
		for _, wrong := range [][2]string{{now, "seq:12"}, {then, ""}, {then, "seq:13"}} {
			list(wrong[0], wrong[1]).refused(http.StatusBadRequest, "another moment")
		}
	}
}

// page asks for a page of one item.
func (p *pastClient) page(h handler, cursor, at string) answer {
	p.t.Helper()
	query := "limit=1"
	if cursor != "" {
		query += "&cursor=" + cursor
	}
	if at != "" {
		query += "&at=" + at
	}
	return p.call(h, http.MethodGet, "/?"+query, nil)
}

// TestHistoryIsGone reads moments that maintenance has given up.
func TestHistoryIsGone(t *testing.T) {
	t.Parallel()
	p := newPastClient(t)
	p.commit("main", "a.txt", "one\n")
	p.now = p.now.Add(24 * time.Hour)
	p.commit("main", "a.txt", "two\n")
	p.now = p.now.Add(14*24*time.Hour - time.Hour) // the first day is over by 23 hours
	for done, err := range p.host.Maintain(t.Context(), engine.MaintainOptions{ReaderGrace: -1}) {
		if err != nil || done.Err != nil {
			t.Fatal(err, done.Err)
		}
	}
	for _, moment := range []string{"seq:1", "2026-11-22T09:30:00Z", "2026-11-23T07:59:59Z"} {
		got := p.call(p.door.Files, http.MethodGet, "/?at="+moment, nil).want(http.StatusGone)
		var gone struct {
			Error  string
			Oldest uint64
			At     string `json:"oldest_at"`
		}
		got.decode(&gone)
		if gone.Oldest != 2 || gone.At != "2026-11-23T08:00:00Z" || !strings.Contains(gone.Error, "seq:2, from "+gone.At) {
			t.Errorf("%s: %s", moment, got.Body)
		}
	}
	p.call(p.door.Commit, http.MethodGet, "/?ref="+url.QueryEscape("main@{seq:1}"), nil).want(http.StatusGone)
	for _, moment := range []string{"seq:2", "seq:3", "2026-11-23T08:00:00Z", "2026-11-23T09:00:00Z"} {
		p.call(p.door.Files, http.MethodGet, "/?at="+moment, nil).want(http.StatusOK)
	}
	// All of the journal goes in time, and what stays is what is there.
	p.now = p.now.Add(100 * 24 * time.Hour)
	for done, err := range p.host.Maintain(t.Context(), engine.MaintainOptions{ReaderGrace: -1}) {
		if err != nil || done.Err != nil {
			t.Fatal(err, done.Err)
		}
	}
	p.call(p.door.Files, http.MethodGet, "/?at="+p.now.Add(-time.Hour).Format(time.RFC3339), nil).want(http.StatusOK)
	p.call(p.door.Files, http.MethodGet, "/?at=seq:2", nil).want(http.StatusGone)
	p.call(p.door.Files, http.MethodGet, "/?at=2026-12-24T09:00:00Z", nil).want(http.StatusGone)
}
