package contract

import (
	"net/http"
	"slices"

	"packhorse/api/openapi"
)

// FileList is a listing of files; has_more is there if it is a page.
type FileList struct {
	Ref        string      `json:"ref" jsonschema:"as requested, or the default branch"`
	Entries    []TreeEntry `json:"entries" jsonschema:"in tree order, each folder before its content"`
	Paths      []string    `json:"paths" jsonschema:"of files and symbolic links"`
	NextCursor string      `json:"next_cursor,omitempty" jsonschema:"cursor of the next page, if there is one"`
	HasMore    bool        `json:"has_more" schema:"optional" jsonschema:"of a page: whether there is another one"`
}

// TreeEntry is an entry of a listing.
type TreeEntry struct {
	Path string `json:"path"`
	Type string `json:"type" schema:"EntryType"`
	Mode string `json:"mode" schema:"Mode"`
}

// MetadataList is a listing of files with their last commits; has_more is there if it is a page.
type MetadataList struct {
	Ref        string                `json:"ref"`
	Files      []FileMetadata        `json:"files"`
	Commits    map[string]LastCommit `json:"commits" jsonschema:"each last_commit_sha with its commit"`
	NextCursor string                `json:"next_cursor,omitempty" jsonschema:"cursor of the next page, if there is one"`
	HasMore    bool                  `json:"has_more" schema:"optional" jsonschema:"of a page: whether there is another one"`
}

// FileMetadata is a file with its last commit.
type FileMetadata struct {
	TreeEntry
	Size          int64  `json:"size" jsonschema:"in bytes; 0 for a submodule and a folder"`
	LastCommitSHA string `json:"last_commit_sha" schema:"ObjectID"`
}

// LastCommit is the commit that changed files last.
type LastCommit struct {
	Author  string `json:"author" jsonschema:"a name"`
	Date    string `json:"date" schema:"Time" jsonschema:"the committer's"`
	Message string `json:"message"`
}

func fileCalls() []call {
	path := openapi.Parameter{Name: "path", Description: "A folder, or one file.", Example: "src"}
	notThere := fails(http.StatusNotFound, "The revision, the path, or the repository does not exist.")
	return []call{
		{
			v1: "/repos/files", path: "/repos/{n}/files", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "files", Group: filesAndTrees,
				Summary:     "lists the files of a revision",
				Description: "In tree order. Without `cursor` and `limit` the answer is not paged. All pages show the commit of the first one.",
				Parameters: query(
					revision, ephemeral, path,
					openapi.Parameter{Name: "recursive", Type: true, Schema: "default=true", Description: "`false` lists one folder only."},
					cursor, limit(1000, 5000),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The listing, streamed.", Type: FileList{},
					Example: `{"ref": "main", "entries": [{"path": "bin", "type": "tree", "mode": "040000"},
  {"path": "bin/run", "type": "blob", "mode": "100755"}], "paths": ["bin/run"]}`,
				}},
				Errors: []openapi.Error{notThere},
			},
		},
		{
			v1: "/repos/files/metadata", path: "/repos/{n}/files/metadata", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "filesMetadata", Group: filesAndTrees,
				Summary: "lists files with their last commits",
				Description: "Files, symbolic links and submodules, each with the commit that changed it last, as `git log -1 -- <path>` " +
					"finds it; of one folder also the folders in it. Without `cursor` and `limit` the answer is not paged.",
				Parameters: query(
					revision, flag("ephemeral", "`ref` names a ref of the ephemeral namespace; anything else is 400."), path,
					openapi.Parameter{Name: "recursive", Type: true, Schema: "default=true", Description: "`false` lists one folder only."},
					cursor, limit(200, 1000),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The listing, streamed.", Type: MetadataList{},
					Example: `{"ref": "main", "files": [{"path": "bin/run", "type": "blob", "mode": "100755", "size": 21,
   "last_commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}],
 "commits": {"7e0b46a13ca26dd703ee7b47673cd04387447f50":
   {"author": "Ada", "date": "2026-11-22T09:27:21Z", "message": "Say hello"}}}`,
				}},
				Errors: []openapi.Error{
					notThere,
					fails(http.StatusRequestEntityTooLarge, "The listing takes too much memory or computing: request one folder."),
					retried(http.StatusTooManyRequests, "The files were changed last by too many commits: request pages. Or too many bad tokens "+
						"came from the address, or too many requests from the organization."),
				},
			},
		},
		fileCall(http.MethodGet, "file", "reads a file"),
		fileCall(http.MethodHead, "headFile", "reads the headers of a file"),
	}
}

func fileCall(method, id, summary string) call {
	about := []openapi.Header{
		{Name: "ETag", Description: "The id of the blob, in quotes."},
		{Name: "Last-Modified", Description: "The committer's date of the last commit that changed the file."},
		{Name: "X-Blob-Sha", Schema: "ObjectID", Always: true},
		{Name: "X-Last-Commit-Sha", Schema: "ObjectID", Always: true},
		{Name: "Accept-Ranges", Schema: "enum=bytes"},
	}
	part := openapi.Header{Name: "Content-Range", Description: "The bytes of the answer, and how many the file has.", Always: true}
	answer := func(status int, description, media string, more ...openapi.Header) openapi.Answer {
		return openapi.Answer{
			Status: status, Description: description, Media: media, Headers: append(slices.Clone(about), more...),
		}
	}
	const bytes = "application/octet-stream"
	bare := func(status int, description string, headers ...openapi.Header) openapi.Error {
		return openapi.Error{Status: status, Description: description, Bare: true, Headers: headers}
	}
	header := func(name, description string) openapi.Parameter {
		return openapi.Parameter{Name: name, In: openapi.InHeader, Description: description}
	}
	parameters := append(query(
		openapi.Parameter{Name: "path", Required: true, Description: "The file, or a symbolic link.", Example: "hello.txt"},
		revision, ephemeral,
	),
		header("Range", "One range of bytes. Several, or a malformed one, give the whole file."),
		header("If-Range", "Give the range only if this is still the entity tag or the date."),
		header("If-Match", "As in RFC 9110."), header("If-None-Match", "As in RFC 9110."),
		header("If-Modified-Since", "As in RFC 9110."), header("If-Unmodified-Since", "As in RFC 9110."),
	)
	return call{
		v1: "/repos/file", path: "/repos/{n}/file", past: true,
		Operation: openapi.Operation{
			Method: method, ID: id, Group: filesAndTrees, Summary: summary,
			Description: "The bytes of a file, or the target of a symbolic link, whole or a range.",
			Parameters:  parameters,
			Answers: []openapi.Answer{
				answer(http.StatusOK, "The file.", bytes),
				answer(http.StatusPartialContent, "The range.", bytes, part),
				answer(http.StatusNotModified, "The client has the file.", ""),
			},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "The path is a folder or a submodule, or a parameter is malformed."),
				fails(http.StatusNotFound, "The revision, the path, or the repository does not exist."),
				bare(http.StatusPreconditionFailed, "`If-Match` or `If-Unmodified-Since` fails."),
				bare(http.StatusRequestedRangeNotSatisfiable, "The range is past the end of the file.", part),
			},
		},
	}
}
