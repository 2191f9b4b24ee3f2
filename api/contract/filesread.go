package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// ReadFiles is the body of a request for contents.
type ReadFiles struct {
	Ref             string   `json:"ref" jsonschema:"a revision; the default branch without it"`
	Ephemeral       bool     `json:"ephemeral" jsonschema:"the namespace of ref"`
	At              string   `json:"at" schema:"Moment" jsonschema:"a moment at which the repository is read"`
	Paths           []string `json:"paths" schema:"max=1000" jsonschema:"files, and folders with all that is in them; a slash at the end: a folder"`
	IncludeGlobs    []string `json:"include_globs" schema:"max=1000" jsonschema:"only paths that match one of these; globs of .gitignore, plus braces"`
	ExcludeGlobs    []string `json:"exclude_globs" schema:"max=1000" jsonschema:"no paths that match one of these"`
	MaxBytesPerFile int64    `json:"max_bytes_per_file" schema:"min=1" jsonschema:"larger contents are left out"`
	Known           []string `json:"known" schema:"max=10000" jsonschema:"ids of blobs that the client has; their contents are left out"`
}

// ReadFilesHead is the first line of the answer.
type ReadFilesHead struct {
	Ref       string `json:"ref" jsonschema:"as requested, or the default branch"`
	CommitSHA string `json:"commit_sha" schema:"ObjectID"`
	TreeSHA   string `json:"tree_sha" schema:"ObjectID"`
}

// ReadFile is the line of a file, a symbolic link or a submodule, in tree order. A submodule has
// none of the fields behind sha.
type ReadFile struct {
	Path      string  `json:"path"`
	Mode      string  `json:"mode" schema:"Mode"`
	SHA       string  `json:"sha" schema:"ObjectID" jsonschema:"the id of the blob; of a submodule the commit"`
	Size      *int64  `json:"size,omitempty" jsonschema:"of the content in bytes"`
	Data      *string `json:"data,omitempty" jsonschema:"the content in padded base64; of a symbolic link its target"`
	Known     bool    `json:"known,omitempty" jsonschema:"true in place of data: the client has it"`
	Truncated bool    `json:"truncated,omitempty" jsonschema:"true in place of data: larger than max_bytes_per_file"`
}

// MissingFile is the line of a requested path that the commit does not have; these lines are behind
// those of files.
type MissingFile struct {
	Path    string `json:"path" jsonschema:"as requested"`
	Missing bool   `json:"missing" jsonschema:"true"`
}

// ReadFilesEnd is the last line; an answer without it was cut.
type ReadFilesEnd struct {
	Complete bool  `json:"complete" jsonschema:"true"`
	Files    int64 `json:"files" jsonschema:"the lines of files"`
}

func filesReadCalls() []call {
	return []call{{
		v1: "/repos/files/read", path: "/repos/{n}/files/read", past: true,
		Operation: openapi.Operation{
			Method: http.MethodPost, ID: "filesRead", Group: filesAndTrees,
			Summary: "reads many files of one commit",
			Description: "With their contents. The first line names the commit, then come files, then requested paths that it does not have; " +
				"the last line has `complete`, and an answer without it was cut.",
			Body: &openapi.Body{Type: ReadFiles{}, Example: `{"ref": "main", "paths": ["hello.txt", "bin", "nope"]}`},
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "NDJSON, streamed.",
				Lines: []any{ReadFilesHead{}, ReadFile{}, MissingFile{}, ReadFilesEnd{}},
				Example: `{"ref": "main", "commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205"}
{"path": "hello.txt", "mode": "100644", "sha": "ce013625030ba8dba906f756967f9e9ca394464a", "size": 6, "data": "aGVsbG8K"}
{"path": "nope", "missing": true}
{"complete": true, "files": 1}
`,
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "A path, a glob or an id is malformed, or a list is too long: the message names the field."),
				fails(http.StatusNotFound, "The revision, or the repository, does not exist."),
			},
		},
	}}
}
