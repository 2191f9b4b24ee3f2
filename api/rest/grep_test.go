package rest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"packhorse/api/exchange"
	"packhorse/api/exchange/exchangetest"
)

// grepPage is the answer to POST /repos/grep.
type grepPage struct {
	Query struct {
		Pattern       string
		CaseSensitive *bool `json:"case_sensitive"`
	}
	Repo    struct{ Ref, Commit string }
	Matches []struct {
		Path  string
		Lines []struct {
			Number int `json:"line_number"`
			Text   string
			Type   string
		}
	}
	Next    string `json:"next_cursor"`
	HasMore *bool  `json:"has_more"`
}

func (p *grepPage) String() string {
	var all []string
	for _, f := range p.Matches {
		for _, l := range f.Lines {
			all = append(all, fmt.Sprintf("%s:%d %s %q", f.Path, l.Number, l.Type, l.Text))
		}
	}
	return strings.Join(all, ", ")
}

func (c *client) grep(body string) (p grepPage) {
	c.t.Helper()
	c.call(c.door.Grep, http.MethodPost, "/", strings.NewReader(body)).want(http.StatusOK).decode(&p)
	return p
}

func TestGrep(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.create("").want(http.StatusCreated)
	c.commit("main", "a.go", "one\ntwo\nthree\nTWO\n")
	c.commit("main", "lib/b.go", "two \xff <&>\n")
	tip := c.commit("main", "lib/c.ts", "two")
	c.commit("dev", "d", "two\n")
	for body, want := range map[string]string{
		`{"query":{"pattern":"two"}}`: `a.go:2 match "two", lib/b.go:1 match "two � <&>", lib/c.ts:1 match "two"`,

		`{"query":{"pattern":"t[w]o","case_sensitive":false},"paths":["a.go"]}`: `a.go:2 match "two", a.go:4 match "TWO"`,

		`{"query":{"pattern":"two"},"ref":"dev","paths":["d"]}`: `d:1 match "two"`,

		`{"query":{"pattern":"two"},"paths":["lib/"],"file_filters":{"exclude_globs":["b*"]}}`: `lib/c.ts:1 match "two"`,

		`{"query":{"pattern":"two"},"file_filters":{"include_globs":["lib/**"],"extension_filters":["go"]}}`: `lib/b.go:1 match "two � <&>"`,

		`{"query":{"pattern":"two"},"file_filters":{"extension_filters":[".ts"]},"context":{"before":9}}`: `lib/c.ts:1 match "two"`,

		`{"query":{"pattern":"three"},"context":{"before":1,"after":1}}`: `a.go:2 context "two", a.go:3 match "three", a.go:4 context "TWO"`,

		`{"query":{"pattern":"."},"paths":["a.go"],"limits":{"max_matches_per_file":2},"context":{"after":1}}`: `a.go:1 match "one", a.go:2 match "two", a.go:3 context "three"`,
		`{"query":{"pattern":"four"},"unknown":[]}`:                                                            "",
	} {
		p := c.grep(body)
		if p.String() != want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, &p, want)
		}
		if p.Matches == nil || p.Next != "" || *p.HasMore {
			t.Errorf("%s: %+v", body, p)
		}
	}
	p := c.grep(`{"query":{"pattern":"two"},"limits":{"max_lines":1}}`)
	if p.Query.Pattern != "two" || !*p.Query.CaseSensitive || p.Repo.Ref != "main" || p.Repo.Commit != tip.Commit.SHA {
		t.Errorf("it tells %+v of %+v", p.Query, p.Repo)
	}
	var seen []string
	for p.Next != "" {
		p = c.grep(fmt.Sprintf(`{"query":{"pattern":"two"},"pagination":{"limit":1,"cursor":%q}}`, p.Next))
		seen = append(seen, p.String())
		c.commit("main", "between", "two pages, two commits")
		if *p.HasMore != (p.Next != "") || p.Repo.Commit != tip.Commit.SHA {
			t.Errorf("%+v", p)
		}
	}
	if want := []string{`lib/b.go:1 match "two � <&>"`, `lib/c.ts:1 match "two"`}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("pages %q, want %q", seen, want)
	}
}

func TestGrepRefusals(t *testing.T) {
	t.Parallel()
	c, _ := seeded(t)
	for body, says := range map[string]string{
		``:                          "JSON object",
		`{}`:                        "query.pattern",
		`{"query":{"pattern":"("}}`: "pattern",
		`{"query":{"pattern":1}}`:   `"query.pattern"`,
		`{"query":"x"}`:             `"query"`,
		`{"query":{"pattern":"x"},"context":{"before":-1}}`:                   "context",
		`{"query":{"pattern":"x"},"limits":{"max_lines":0}}`:                  "max_lines",
		`{"query":{"pattern":"x"},"limits":{"max_matches_per_file":-1}}`:      "max_matches_per_file",
		`{"query":{"pattern":"x"},"pagination":{"limit":0}}`:                  "pagination.limit",
		`{"query":{"pattern":"x"},"pagination":{"cursor":"bogus"}}`:           "cursor",
		`{"query":{"pattern":"x"},"file_filters":{"include_globs":["{"]}}`:    "glob",
		`{"query":{"pattern":"x"},"file_filters":{"extension_filters":[""]}}`: "extension",
		`{"query":{"pattern":"x"},"paths":["../x"]}`:                          "path",
		`{"query":{"pattern":"x","pattern":"y"}}`:                             "twice",
	} {
		c.call(c.door.Grep, http.MethodPost, "/", strings.NewReader(body)).refused(http.StatusBadRequest, says)
	}
	const body = `{"query":{"pattern":"x"}%s}`
	c.call(c.door.Grep, http.MethodPost, "/", strings.NewReader(fmt.Sprintf(body, `,"ref":"nope"`))).
		refused(http.StatusNotFound, "nope")
	c.call(c.door.Grep, http.MethodPost, "/", strings.NewReader(fmt.Sprintf(body, `,"ephemeral":true`))).
		refused(http.StatusNotFound, "main")
	c.as("nope").call(c.door.Grep, http.MethodPost, "/", strings.NewReader(fmt.Sprintf(body, ""))).
		refused(http.StatusNotFound, "nope")
	x := exchangetest.New(http.MethodPost, "/", strings.NewReader(fmt.Sprintf(body, "")))
	x.SlotErr = exchange.ErrBusy
	if err := c.door.Grep(x, c.grant); !errors.Is(err, exchange.ErrBusy) {
		t.Errorf("without a slot: %v", err)
	}
}
