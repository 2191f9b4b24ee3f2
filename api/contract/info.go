package contract

import (
	"net/http"

	"github.com/google/jsonschema-go/jsonschema"

	"packhorse/api/code"
	"packhorse/api/openapi"
)

// Failure is every error.
type Failure struct {
	Error string `json:"error" jsonschema:"for people; it may change"`
	Code  string `json:"code" schema:"ErrorCode" jsonschema:"for programs; it does not change"`
}

// PastFailure is the error for a moment before the history that is kept.
type PastFailure struct {
	Failure
	Oldest   uint64 `json:"oldest" jsonschema:"the oldest position of the journal that can be read"`
	OldestAt string `json:"oldest_at" schema:"Time" jsonschema:"from when on the repository can be read"`
}

// Info describes what all calls have in common. version is that of the server.
func Info(version string) openapi.Info {
	return openapi.Info{
		Title:       "Packhorse",
		Version:     version,
		Summary:     "A git host for programs: repositories by the thousand, commits by HTTP, any git client beside it.",
		Description: conventions,
		Programs:    []openapi.Program{{Title: "JavaScript, with a client library", Code: ClientExample()}},
		Groups: []openapi.Group{
			{Name: repositories, Description: "Creating, listing, changing and deleting repositories, forks and snapshots; their journal, and the events of all of them."},
			{Name: branchesAndTags, Description: "Refs. Each call is about the ordinary or the ephemeral namespace."},
			{Name: filesAndTrees, Description: "Files of a revision, without a clone."},
			{Name: commits, Description: "The history."},
			{Name: diffs, Description: "What changed, as `git diff` shows it, streamed file by file."},
			{Name: writing, Description: "One commit in one request and one transaction."},
			{Name: merging, Description: "Merges with the results of git's own strategy (ort)."},
			{Name: notes, Description: "Git's notes on commits."},
			{Name: search, Description: "Lines by pattern, and lines by their commit."},
			{Name: archives, Description: "The files of a revision as tar.gz."},
			{Name: upstreams, Description: "Keeping a repository in sync with one of another host."},
		},
		Scopes: []openapi.Scope{
			{Name: "git:read", Description: "clone, fetch, and the calls that read a repository"},
			{Name: "git:write", Description: "push, the calls that write a repository, and `git:read`"},
			{Name: "repo:write", Description: "creating, deleting and changing repositories, and their stored credentials"},
			{Name: "org:read", Description: "listing the repositories of the organization, and their events"},
		},
		Error: Failure{},
		Common: []openapi.Error{
			fails(http.StatusBadRequest, "A parameter, field, header or cursor is malformed, or a guard is not known."),
			fails(http.StatusUnauthorized, "The token is missing or bad; or it lacks the scope, where `x-status-without-scope` is 401."),
			fails(http.StatusForbidden, "The token lacks the scope, or its policy forbids the change."),
			fails(http.StatusRequestTimeout, "The body stalled, or came too slowly."),
			fails(http.StatusRequestEntityTooLarge, "A limit is exceeded, which the message names; or the request computes for too long."),
			fails(http.StatusRequestURITooLong, "The URL is longer than 8 KiB."),
			fails(http.StatusUnsupportedMediaType, "The content type or encoding of the body is another one."),
			retried(http.StatusTooManyRequests, "Too many bad tokens came from the address, or too many requests from the organization."),
			fails(http.StatusRequestHeaderFieldsTooLarge, "The header is longer than 32 KiB."),
			fails(http.StatusInternalServerError, "The server failed."),
			retried(http.StatusServiceUnavailable, "The server is busy, starting or stopping, or cannot reach its storage. A write "+
				"whose message says that the outcome is not known was made or never will be: a repetition with the same "+
				"Idempotency-Key tells which."),
			fails(http.StatusGatewayTimeout, "The answer did not begin in time."),
			fails(http.StatusInsufficientStorage, "The disk is full; reads go on."),
		},
		Headers: []openapi.Header{
			{Name: "X-Request-Id", Description: "The server's log has the same id."},
		},
		Shapes: map[string]*jsonschema.Schema{
			"ObjectID": {
				Type: "string", Pattern: "^[0-9a-f]{40}$", Description: "An object id; 40 zeros mean that there is no object.",
			},
			"ErrorCode": {
				Type: "string", Pattern: "^[a-z]+(_[a-z]+)*$", Examples: codes(),
				Description: "The fact that a program can act on. The examples are all codes of this version; there may be others later.",
			},
			"MaybeID": {
				Type: "string", Pattern: "^([0-9a-f]{40})?$", Description: "An object id, or nothing.",
			},
			"Expected": {
				Type: "string", Pattern: "^([0-9a-f]{40})?$", Description: "An object id that a ref must have. An empty string is no guard.",
			},
			"Moment": {
				Type: "string", Pattern: `^(seq:[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+)$`,
				Description: "A time of RFC 3339, or seq:N, a position in the journal.", Examples: []any{"seq:17"},
			},
			"Time": {Type: "string", Format: "date-time", Description: "RFC 3339 in UTC."},
			"RepositoryID": {
				Type: "string", Format: "uuid", Description: "The id of a repository. It sorts by time and is never reused.",
			},
			"Mode": {
				Type: "string", Enum: []any{"100644", "100755", "120000", "160000", "040000"},
				Description: "Git's mode: a file, an executable, a symbolic link, a submodule, a folder.",
			},
			"EntryType": {Type: "string", Enum: []any{"blob", "symlink", "submodule", "tree"}},
			"FileState": {
				Type: "string", Pattern: "^([AMDT]|R[0-9]{3})$",
				Description: "Added, modified, deleted, type changed, or renamed with the similarity in percent.",
			},
		},
		Guard: "^([Ee]xpected|EXPECTED|[Dd]ry[-_]?[Rr]un$)",
	}
}

// codes are the public codes of errors.
func codes() []any {
	all := code.All()
	words := make([]any, 0, len(all))
	for i := range all {
		words = append(words, all[i].Code)
	}
	return words
}

// retried is an error that may pass.
func retried(status int, description string) openapi.Error {
	e := fails(status, description)
	e.Headers = []openapi.Header{{
		Name: "Retry-After", Type: 0, Description: "In seconds: a retry may succeed.",
	}}
	return e
}

// The groups are the sections of docs/api.md.
const (
	repositories    = "Repositories"
	branchesAndTags = "Branches and tags"
	filesAndTrees   = "Files and trees"
	commits         = "Commits"
	diffs           = "Diffs"
	writing         = "Writing commits"
	merging         = "Merging"
	notes           = "Notes"
	search          = "Search and blame"
	archives        = "Archives"
	upstreams       = "Upstreams"
)

const conventions = `Every call needs a token: ` + "`Authorization: Bearer <JWT>`" + `. Organizations sign their own tokens; the
server has their public keys. The claim ` + "`repo`" + ` names the repository, ` + "`scopes`" + ` what is allowed.

Calls exist in two families. In ` + "`/api/repos/{n}/...`" + ` the path names the repository, in one segment
(` + "`owner%2Fname`" + `). In ` + "`/api/v1/...`" + ` the token alone does.

- Where a call has two names for a field or a parameter, both families understand both, and the newer one wins. Answers carry both.
- Unknown fields and parameters are ignored, except guards: a field whose name begins with ` + "`expected`" + `, or ` + "`dry_run`" + `, is 400 where it is not known, as is the parameter ` + "`at`" + `. Ignore fields of answers that you do not know.
- ` + "`null`" + ` means the same as leaving a field out. Answers have no ` + "`null`" + `.
- A flag is ` + "`true`" + ` or ` + "`false`" + `.
- ` + "`HEAD`" + ` is understood wherever ` + "`GET`" + ` is.
- NDJSON is one JSON object a line; the schema of such a body describes a line.
- An error is ` + "`{\"error\": \"<message>\", \"code\": \"<code>\"}`" + `, with more fields where an operation says so. Programs use the code, or the status; the message is for people.
- A write is one transaction: visible as a whole or not at all, and on disk before the answer. ` + "`X-Repo-Sequence`" + ` of the answer is its position in the journal; a read with ` + "`X-Min-Sequence`" + ` sees it.
- A write takes an ` + "`Idempotency-Key`" + `.
- Programs that use a language model may call the same API as tools: ` + "`POST /mcp`" + ` is a server for the Model Context Protocol.
- Long answers are streamed. One that fails midway is cut, so that half an answer never looks complete.
- The ephemeral namespace is a second set of refs of a repository, which shares its objects.
`
