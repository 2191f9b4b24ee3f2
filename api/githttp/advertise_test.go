package githttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"packhorse/api/exchange/exchangetest"
	"packhorse/api/githttp"
	"packhorse/fuzz/oracle"
)

// infoRefs returns the remote's advertisement without the line that names the service.
func (r *remote) infoRefs(service string, version int) []byte {
	r.t.Helper()
	x := exchangetest.New(http.MethodGet, "/"+repoName+".git/info/refs?service="+service, nil)
	x.RequestHeaders.Set("Git-Protocol", fmt.Sprintf("version=%d", version))
	answer, err := pending{x, r.handle(x)}.finish()
	if err != nil || answer.Status != http.StatusOK {
		r.t.Fatalf("answer %+v, %v", answer, err)
	}
	if got, want := answer.Header.Get("Content-Type"), "application/x-"+service+"-advertisement"; got != want {
		r.t.Errorf("Content-Type %s, want %s", got, want)
	}
	if got := answer.Header.Get("Cache-Control"); got != "no-cache, max-age=0, must-revalidate" {
		r.t.Errorf("Cache-Control %q", got)
	}
	body, found := strings.CutPrefix(string(answer.Body), fmt.Sprintf("%04x# service=%s\n0000", 15+len(service), service))
	if !found {
		r.t.Fatalf("answer %.100q", answer.Body)
	}
	return []byte(body)
}

// advertised sorts the capabilities of an advertisement and leaves out the agent.
func advertised(tb testing.TB, answer []byte) []string {
	tb.Helper()
	lines := readTranscript(tb, answer).lines
	for i, line := range lines {
		if refs, list, ok := strings.Cut(line, "\x00"); ok {
			capabilities := slices.DeleteFunc(strings.Fields(list), isAgent)
			slices.Sort(capabilities)
			lines[i] = refs + " " + strings.Join(capabilities, " ")
		}
	}
	return slices.DeleteFunc(lines, isAgent)
}

func isAgent(capability string) bool { return strings.HasPrefix(capability, "agent=") }

func TestAdvertiseAgainstGit(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, seedOddities)
	for _, service := range []string{"upload-pack", "receive-pack"} {
		for version := range 3 {
			got := advertised(t, tw.remote.infoRefs("git-"+service, version))
			want := advertised(t, tw.run(version, nil, service, "--http-backend-info-refs", tw.git.Dir))
			if !slices.Equal(got, want) {
				t.Errorf("%s in version %d:\n%s\nand of git\n%s", service, version, strings.Join(got, "\n"),
					strings.Join(want, "\n"))
			}
		}
	}
}

// The advertisement of an empty repository: in version 0 the capabilities, as git does since 2.41.
func TestAdvertiseEmpty(t *testing.T) {
	t.Parallel()
	r := serve(t, githttp.Config{})
	for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
		got := advertised(t, r.infoRefs(service, 0))
		if len(got) != 2 || !strings.HasPrefix(got[0], strings.Repeat("0", 40)+" capabilities^{} ") || got[1] != flush {
			t.Errorf("%s: %q", service, got)
		}
	}
	body := request("command=ls-refs", delim, "symrefs", "unborn", flush)
	if got := readTranscript(t, r.post("git-upload-pack", 2, body)).lines; !slices.Equal(got,
		[]string{"unborn HEAD symref-target:refs/heads/main", flush}) {
		t.Errorf("ls-refs: %q", got)
	}
}

func TestListRefsAgainstGit(t *testing.T) {
	t.Parallel()
	prefixes := []string{
		"HEAD", "refs/", "refs/heads/", "refs/heads/main", "refs/tags/to", "refs/tags/v", "refs", "", "refs/pull/",
		"x", "H", "refs/namespaces/",
	}
	for name, seed := range map[string]func(*oracle.Repository){
		"odd": seedOddities, "empty": func(*oracle.Repository) {}, "no branch": histories["no branch"],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newTwins(t, seed)
			d := draw{Rand: newRand(3)}
			for range 40 {
				ask := []string{"command=ls-refs", "agent=x", delim}
				for _, flag := range []string{"peel", "symrefs", "unborn"} {
					if d.odds(2) {
						ask = append(ask, flag)
					}
				}
				ask = append(ask, prefixed("ref-prefix ", d.some(prefixes, d.IntN(4)))...)
				tw.compare(2, request(append(ask, flush)...))
			}
			tw.compare(2, request("command=ls-refs", flush))
		})
	}
}

// Refs are created, moved and deleted between equal requests, each sent twice.
func TestListRefsFollowsPushes(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, func(git *oracle.Repository) { git.Seed(oracle.History{Seed: 42, Commits: 12, Tags: true}) })
	asks := [][]byte{
		request("command=ls-refs", flush),
		request("command=ls-refs", delim, "peel", "symrefs", "ref-prefix HEAD", "ref-prefix refs/", flush),
		request("command=ls-refs", delim, "ref-prefix refs/heads/new", flush),
	}
	for _, refspecs := range [][]string{
		{"main:refs/heads/new"},
		{"main~2:refs/heads/new"},
		{"main:refs/tags/light", "main:refs/heads/newer"},
		{":refs/heads/new"},
	} {
		tw.git.Git(append([]string{"push", "--quiet", "--force", tw.git.Dir}, refspecs...)...)
		tw.remote.push(tw.git, append([]string{"--force"}, refspecs...)...)
		for range 2 {
			for _, ask := range asks {
				tw.compare(2, ask)
			}
		}
	}
}

// Git ignores prefixes when there are too many, and lists every ref.
func TestListRefsManyPrefixes(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, func(git *oracle.Repository) { git.Seed(oracle.History{Seed: 41, Commits: 12, Tags: true}) })
	for _, count := range []int{65535, 65536, 70000} {
		tw.compare(2, request(slices.Concat([]string{"command=ls-refs", delim},
			slices.Repeat([]string{"ref-prefix refs/tags"}, count), []string{flush})...))
	}
}

func TestObjectInfoAgainstGit(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, seedOddities)
	ids := lines(tw.git.Git("rev-list", "--objects", "--all", "--no-object-names"))
	ids = append(ids, strings.Repeat("7", 40))
	for _, ask := range [][]string{
		slices.Concat([]string{"size"}, prefixed("oid ", ids)),
		slices.Concat(prefixed("oid ", ids[:3]), []string{"size"}),
		{"size"},
		{},
	} {
		tw.compare(2,
			request(slices.Concat([]string{"command=object-info", "object-format=sha1", delim}, ask, []string{flush})...))
	}
	// Git 2.39 does not know whether it was asked for sizes when it was not.
	body := request(slices.Concat([]string{"command=object-info", delim}, prefixed("oid ", ids[:2]), []string{flush})...)
	if got, want := tw.ours(2, body).lines, []string{ids[0], ids[1], flush}; !slices.Equal(got, want) {
		t.Errorf("without a size: %q, want %q", got, want)
	}
}
