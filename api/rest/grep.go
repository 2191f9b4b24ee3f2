package rest

import (
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/pathspec"
)

// Bounds of a search.
const (
	grepContextMax = 1000
	grepLinesMax   = 10_000
)

// grepJSON is the body of a search: docs/api.md, "Search and blame".
type grepJSON struct {
	Ref       string   `json:"ref"`
	At        *string  `json:"at"`
	Ephemeral bool     `json:"ephemeral"`
	Paths     []string `json:"paths"`
	Query     struct {
		Pattern       string `json:"pattern"`
		CaseSensitive *bool  `json:"case_sensitive"`
	} `json:"query"`
	FileFilters struct {
		IncludeGlobs     []string `json:"include_globs"`
		ExcludeGlobs     []string `json:"exclude_globs"`
		ExtensionFilters []string `json:"extension_filters"`
	} `json:"file_filters"`
	Context struct {
		Before int `json:"before"`
		After  int `json:"after"`
	} `json:"context"`
	Limits struct {
		MaxLines          *int `json:"max_lines"`
		MaxMatchesPerFile *int `json:"max_matches_per_file"`
	} `json:"limits"`
	Pagination struct {
		Cursor string `json:"cursor"`
		Limit  *int   `json:"limit"`
	} `json:"pagination"`
}

// grepLineJSON is a line of a file that matches, or one of context.
type grepLineJSON struct {
	LineNumber int64  `json:"line_number"`
	Text       string `json:"text"`
	Type       string `json:"type"`
}

type grepFileJSON struct {
	Path  string         `json:"path"`
	Lines []grepLineJSON `json:"lines"`
}

// grepAnswerJSON is the answer to a search.
type grepAnswerJSON struct {
	Query struct {
		Pattern       string `json:"pattern"`
		CaseSensitive bool   `json:"case_sensitive"`
	} `json:"query"`
	Repo struct {
		Ref    string `json:"ref"`
		Commit string `json:"commit"`
	} `json:"repo"`
	Matches    []grepFileJSON `json:"matches"`
	NextCursor string         `json:"next_cursor,omitempty"`
	HasMore    bool           `json:"has_more"`
}

// Grep answers POST /repos/grep: the lines of a revision's files that match a pattern.
func (d *Door) Grep(x exchange.Exchange, grant *auth.Grant) error {
	var body grepJSON
	if _, err := readJSON(x, &body, false); err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	repo, err := d.openAt(x, grant, body.At)
	if err != nil {
		return err
	}
	release, err := x.Slot(x.Context())
	if err != nil {
		return err
	}
	defer release()
	page, err := repo.Grep(x.Context(), request)
	if err != nil {
		return err
	}
	told := grepAnswerJSON{
		Matches: make([]grepFileJSON, 0, len(page.Files)), NextCursor: page.Next, HasMore: page.Next != "",
	}
	told.Query.Pattern, told.Query.CaseSensitive = request.Pattern, !request.IgnoreCase
	told.Repo.Ref, told.Repo.Commit = page.Revision.Name, page.Revision.Commit.String()
	for _, f := range page.Files {
		file := grepFileJSON{Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Lines: make([]grepLineJSON, len(f.Lines))}
		for i, l := range f.Lines {
			file.Lines[i] = grepLineJSON{LineNumber: l.Number, Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Type: "context"}
			if l.Match {
				file.Lines[i].Type = "match"
			}
		}
		told.Matches = append(told.Matches, file)
	}
	return answer(x, http.StatusOK, told)
}

// request checks the numbers of a body and returns the search request.
func (b *grepJSON) request() (engine.GrepRequest, error) {
	request := engine.GrepRequest{
		Namespace: namespace(b.Ephemeral),
		Ref:       b.Ref,
		Pattern:   b.Query.Pattern,
		Files: pathspec.Spec{
			Paths: b.Paths, Include: b.FileFilters.IncludeGlobs, Exclude: b.FileFilters.ExcludeGlobs,
			Extensions: b.FileFilters.ExtensionFilters,
		},
		IgnoreCase: b.Query.CaseSensitive != nil && !*b.Query.CaseSensitive,
		Before:     min(b.Context.Before, grepContextMax),
		After:      min(b.Context.After, grepContextMax),
		FilesMax:   limitDefault,
		LinesMax:   grepLinesMax,
		Cursor:     b.Pagination.Cursor,
	}
	if request.Pattern == "" {
		return request, badRequest("query.pattern is required")
	}
	if b.Context.Before < 0 || b.Context.After < 0 {
		return request, badRequest("context: expected numbers from 0 on")
	}
	for _, bound := range []struct {
		name  string
		given *int
		most  int // 0 for as many as are asked for
		field *int
	}{
		{"limits.max_lines", b.Limits.MaxLines, grepLinesMax, &request.LinesMax},
		{"limits.max_matches_per_file", b.Limits.MaxMatchesPerFile, 0, &request.MatchesMax},
		{"pagination.limit", b.Pagination.Limit, limitMax, &request.FilesMax},
	} {
		if bound.given == nil {
			continue
		}
		if *bound.given < 1 {
			return request, badRequest("%s: expected a number from 1 on, got %d", bound.name, *bound.given)
		}
		*bound.field = *bound.given
		if bound.most > 0 {
			*bound.field = min(*bound.field, bound.most)
		}
	}
	return request, nil
}
