package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Grep is the body of a search.
type Grep struct {
	Query       GrepQuery       `json:"query" schema:"required"`
	Ref         string          `json:"ref" jsonschema:"a revision; the default branch without it"`
	Ephemeral   bool            `json:"ephemeral" jsonschema:"the namespace of ref"`
	At          string          `json:"at" schema:"Moment" jsonschema:"a moment at which the repository is read"`
	Paths       []string        `json:"paths" jsonschema:"only these files and folders"`
	FileFilters GrepFileFilters `json:"file_filters"`
	Context     GrepContext     `json:"context"`
	Limits      GrepLimits      `json:"limits"`
	Pagination  GrepPagination  `json:"pagination"`
}

// GrepQuery is what to search for.
type GrepQuery struct {
	Pattern       string `json:"pattern" schema:"required" jsonschema:"a regular expression (RE2)"`
	CaseSensitive bool   `json:"case_sensitive" schema:"default=true"`
}

// GrepFileFilters selects files.
type GrepFileFilters struct {
	IncludeGlobs     []string `json:"include_globs" jsonschema:"only paths that match one of these; globs of .gitignore, plus braces"`
	ExcludeGlobs     []string `json:"exclude_globs" jsonschema:"no paths that match one of these"`
	ExtensionFilters []string `json:"extension_filters" jsonschema:"only these extensions: go or .go"`
}

// GrepContext is how many lines to show around a match.
type GrepContext struct {
	Before int `json:"before" schema:"min=0,default=0" jsonschema:"lines, at most 1,000"`
	After  int `json:"after" schema:"min=0,default=0" jsonschema:"lines, at most 1,000"`
}

// GrepLimits bounds the lines of a search.
type GrepLimits struct {
	MaxLines          int `json:"max_lines" schema:"min=1,default=10000" jsonschema:"lines of a page, at most 10,000"`
	MaxMatchesPerFile int `json:"max_matches_per_file" schema:"min=1" jsonschema:"no limit without it"`
}

// GrepPagination selects a page of a search.
type GrepPagination struct {
	Limit  int    `json:"limit" schema:"min=1,default=20" jsonschema:"files of a page, at most 100"`
	Cursor string `json:"cursor" jsonschema:"next_cursor of the page before"`
}

// GrepAnswer is a page of matches.
type GrepAnswer struct {
	Query   SearchedQuery `json:"query"`
	Repo    SearchedRepo  `json:"repo"`
	Matches []GrepFile    `json:"matches"`
	Page
}

// SearchedQuery is what was searched for.
type SearchedQuery struct {
	Pattern       string `json:"pattern"`
	CaseSensitive bool   `json:"case_sensitive"`
}

// SearchedRepo is where it was searched.
type SearchedRepo struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit" schema:"ObjectID"`
}

// GrepFile is a file with matches.
type GrepFile struct {
	Path  string     `json:"path"`
	Lines []GrepLine `json:"lines"`
}

// GrepLine is a line that matches, or one of its context.
type GrepLine struct {
	LineNumber int64  `json:"line_number" schema:"min=1"`
	Text       string `json:"text" jsonschema:"at most 1 MiB of it"`
	Type       string `json:"type" schema:"enum=match|context"`
}

func grepCalls() []call {
	return []call{{
		v1: "/repos/grep", path: "/repos/{n}/grep", past: true,
		Operation: openapi.Operation{
			Method: http.MethodPost, ID: "grep", Group: search,
			Summary: "searches files by pattern",
			Description: "Like `git grep -I`: symbolic links, submodules and binary files are skipped. A page also ends at 4 MiB of text or " +
				"after 10 seconds; it may then be empty and still have a next page. All pages search the commit of the first one.",
			Body: &openapi.Body{Type: Grep{}, Example: `{"ref": "main", "query": {"pattern": "^h[aeiou]"}}`},
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "A page of matches.", Type: GrepAnswer{},
				Example: `{"query": {"pattern": "^h[aeiou]", "case_sensitive": true},
 "repo": {"ref": "main", "commit": "7e0b46a13ca26dd703ee7b47673cd04387447f50"},
 "matches": [{"path": "hello.txt", "lines": [{"line_number": 1, "text": "hello", "type": "match"}]}],
 "has_more": false}`,
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "The pattern, a glob or a number is invalid, or the cursor is that of another search."),
				fails(http.StatusNotFound, "The revision, or the repository, does not exist."),
			},
		},
	}}
}
