package mcp

import (
	"net/http"
	"slices"

	"packhorse/api/exchange"
)

// tool is a row of the table: a call of the API, as programs that use models see it.
type tool struct {
	name, title, about string

	method, path string // of the call
	fields       []field
	writes       bool
	less         string // how to ask for less when an answer is cut
	// run makes the calls of a tool that is not one call with one answer in JSON; nil for others.
	run func(d *Door, x exchange.Exchange, t *tool, given arguments) (*toolResult, error)
}

const base = "/api/v1"

// Fields of several tools.
var (
	refField       = field{name: "ref", about: "a branch, a tag or a commit id; the default branch without it"}
	ephemeralField = field{name: "ephemeral", kind: flag, about: "look into the ephemeral namespace"}
	cursorField    = field{name: "cursor", about: "next_cursor of the page before"}
	limitField     = field{name: "limit", kind: count, about: "items of a page: 20 without it, at most 100"}
	atField        = field{name: "at", about: "read the repository as it was: at a time (RFC 3339), or at seq:N of its journal"}
	pathsField     = field{name: "paths", kind: texts, to: "path", about: "only these files and folders"}
	keyField       = field{
		name: "idempotency_key", to: headerPrefix + "Idempotency-Key",
		about: "a repeated call with the same key and the same arguments gets the first answer again",
	}
	authorField    = field{name: "author", kind: person, required: true, about: "who made the change"}
	committerField = field{name: "committer", kind: person, about: "the author without it"}
	dryRunField    = field{name: "dry_run", kind: flag, about: "true answers as the call would, and changes nothing"}
)

// tools is the table, in the order in which clients see it: reading first.
var tools = slices.Concat(readingTools, writingTools)

var readingTools = []tool{
	{
		name: "list_repositories", title: "List repositories", method: http.MethodGet, path: base + "/repos",
		about: "Lists the repositories of the organization in order of creation.",
		fields: []field{
			{name: "q", about: "only repositories whose name contains this text"}, cursorField, limitField,
		},
		less: lessPage,
	},
	{
		name: "describe_repository", title: "Describe the repository", method: http.MethodGet, path: base + "/repo",
		about: "Describes the repository of the token: its name, id and default branch.",
	},
	{
		name: "list_branches", title: "List branches", method: http.MethodGet, path: base + "/repos/branches",
		about: "Lists branches with the ids of their tips, in order of creation.", less: lessPage,
		fields: []field{ephemeralField, atField, cursorField, limitField},
	},
	{
		name: "list_tags", title: "List tags", method: http.MethodGet, path: base + "/repos/tags",
		about: "Lists tags with the ids that they point to, sorted by name.", less: lessPage,
		fields: []field{ephemeralField, atField, cursorField, limitField},
	},
	{
		name: "list_files", title: "List files", method: http.MethodGet, path: base + "/repos/files",
		about: "Lists the files and folders of a revision in tree order.", less: lessPage,
		fields: []field{
			refField, ephemeralField, atField,
			{name: "path", about: "a folder, or one file"},
			{name: "recursive", kind: flag, about: "false lists one folder only"},
			cursorField,
			{name: "limit", kind: count, about: "entries of a page: 1,000 without it, at most 5,000"},
		},
		run: listFiles,
	},
	{
		name: "read_file", title: "Read a file", method: http.MethodGet, path: base + "/repos/file",
		about: "Reads a file: text as it is, anything else as base64. A long file is cut, and the answer says how to go on.",
		fields: []field{
			{name: "path", required: true, about: "relative to the root of the repository"},
			refField, ephemeralField, atField,
			{name: "offset", kind: count, own: true, about: "the byte to begin at, from 0"},
			{name: "length", kind: count, own: true, about: "bytes to read, at most 1,048,576"},
		},
		run: readFile,
	},
	{
		name: "read_files", title: "Read several files", method: http.MethodGet, path: base + "/repos/file",
		about: "Reads up to 100 files of one revision at once, 1 MiB of content in all. Name a commit id as ref to get all " +
			"of them from one commit.",
		fields: []field{
			{name: "paths", kind: texts, required: true, own: true, about: "relative to the root of the repository"},
			refField, ephemeralField, atField,
		},
		run: readFiles,
	},
	{
		name: "grep", title: "Search files", method: http.MethodPost, path: base + "/repos/grep",
		about: "Searches the text files of a revision for a regular expression (RE2), like git grep.",
		fields: []field{
			{name: "pattern", to: "query.pattern", required: true, about: "a regular expression"},
			{name: "case_sensitive", kind: flag, to: "query.case_sensitive", about: "true without it"},
			refField, ephemeralField, atField,
			{name: "paths", kind: texts, about: "only these files and folders"},
			{name: "include_globs", kind: texts, to: "file_filters.include_globs", about: "only paths that match one of these"},
			{name: "exclude_globs", kind: texts, to: "file_filters.exclude_globs", about: "no paths that match one of these"},
			{
				name: "extensions", kind: texts, to: "file_filters.extension_filters",
				about: "only files with one of these extensions",
			},
			{name: "before", kind: count, to: "context.before", about: "lines before a match"},
			{name: "after", kind: count, to: "context.after", about: "lines after a match"},
			{name: "max_lines", kind: count, to: "limits.max_lines", about: "lines of a page, at most 10,000"},
			{name: "max_matches_per_file", kind: count, to: "limits.max_matches_per_file", about: "no limit without it"},
			{name: "cursor", to: "pagination.cursor", about: "next_cursor of the page before"},
			{name: "limit", kind: count, to: "pagination.limit", about: "files of a page: 20 without it, at most 100"},
		},
		less: "a smaller max_lines or limit, and then next_cursor, or fewer paths",
	},
	{
		name: "log", title: "List commits", method: http.MethodGet, path: base + "/repos/commits",
		about: "Lists the history of a branch, newest first, like git log.", less: lessPage,
		fields: []field{
			{name: "branch", about: "the default branch without it"},
			ephemeralField, atField,
			{name: "path", about: "only commits that changed this file or folder"},
			cursorField, limitField,
		},
	},
	{
		name: "show_commit", title: "Show a commit", method: http.MethodGet, path: base + "/repos/commit",
		about:  "Reads a commit: parents, message, author, committer, date and signature. diff shows what it changed.",
		fields: []field{{name: "sha", required: true, about: "a commit id, or at least 7 digits of it"}},
	},
	{
		name: "diff", title: "Compare commits", method: http.MethodGet, path: base + "/repos/diff",
		about: "Compares a commit with its first parent, or with another commit. Large, binary and lock files are named " +
			"without their diff unless paths names them.",
		fields: []field{
			{name: "sha", required: true, about: "a commit id of 40 digits"},
			{name: "base_sha", to: "baseSha", about: "compare with this commit, an id of 40 digits"},
			pathsField,
		},
		less: "paths: some of the files that are named here",
	},
	{
		name: "diff_branches", title: "Compare branches", method: http.MethodGet, path: base + "/repos/branches/diff",
		about: "Shows what a branch changed since it left another one: the diff from their merge base.",
		fields: []field{
			{name: "branch", required: true, about: "a branch, a tag or a commit id"},
			ephemeralField,
			{name: "base", about: "a branch, a tag or a commit id; the default branch without it"},
			{name: "ephemeral_base", kind: flag, about: "base is in the ephemeral namespace"},
			pathsField,
		},
		less: "paths: some of the files that are named here",
	},
	{
		name: "blame", title: "Blame a file", method: http.MethodGet, path: base + "/repos/blame",
		about: "Finds the commit that each line of a file comes from. The text of the lines is not included.",
		fields: []field{
			{name: "path", required: true, about: "a file"},
			refField, ephemeralField, atField,
			{name: "ranges", kind: texts, to: "range", about: "lines, as in git blame -L: 3,7 or 3,+5 or /re/,/re/ or :function"},
			{name: "detect_moves", kind: flag, about: "also find lines that moved within the file"},
		},
		less: "ranges: some of the lines",
	},
	{
		name: "preview_merge", title: "Preview a merge", method: http.MethodGet, path: base + "/repos/merge/preview",
		about: "Shows what a merge would do, and which files conflict, and writes nothing.",
		fields: []field{
			{name: "source_branch", required: true, about: "what would be merged"},
			{name: "target_branch", required: true, about: "the branch that would move"},
			{name: "source_is_ephemeral", kind: flag, about: "the source is in the ephemeral namespace"},
			{name: "target_is_ephemeral", kind: flag, about: "the target is in the ephemeral namespace"},
			{name: "include_content", kind: flag, about: "add the contents of files that conflict"},
		},
		less: "include_content: false, and read_file",
	},
}

const lessPage = "a smaller limit, and then next_cursor"

// find returns the tool of a name, or nil.
func find(name string) *tool {
	for i := range tools {
		if tools[i].name == name {
			return &tools[i]
		}
	}
	return nil
}

// description is a tool as clients see it.
type description struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	About  string  `json:"description"`
	Schema *schema `json:"inputSchema"`
	Hints  hints   `json:"annotations"`
}

// hints tell a client which calls a person should look at. No tool takes anything away for good,
// since old commits stay.
type hints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

func (t *tool) describe() description {
	return description{
		Name: t.name, Title: t.title, About: t.about, Schema: objectSchema(t.fields), Hints: hints{ReadOnly: !t.writes},
	}
}
