package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Archive is the body of a request for an archive.
type Archive struct {
	Ref          string        `json:"ref" jsonschema:"a revision; the default branch without it"`
	At           string        `json:"at" schema:"Moment" jsonschema:"a moment at which the repository is read"`
	IncludeGlobs []string      `json:"include_globs" jsonschema:"only paths that match one of these; globs of .gitignore, plus braces"`
	ExcludeGlobs []string      `json:"exclude_globs" jsonschema:"no paths that match one of these"`
	MaxBlobSize  int64         `json:"max_blob_size" schema:"min=1" jsonschema:"in bytes; larger files are left out"`
	Archive      ArchivePrefix `json:"archive"`
}

// ArchivePrefix is where the files of an archive lie.
type ArchivePrefix struct {
	Prefix string `json:"prefix" schema:"max=255" jsonschema:"put before each path; site/ puts everything into a folder"`
}

func archiveCalls() []call {
	return []call{{
		v1: "/repos/archive", path: "/repos/{n}/archive", past: true,
		Operation: openapi.Operation{
			Method: http.MethodPost, ID: "archive", Group: archives,
			Summary: "downloads a tar.gz",
			Description: "The files of a revision, as `git archive` writes them; `.gitattributes` is not read. The same version of the server " +
				"returns the same bytes for the same request.",
			Body: &openapi.Body{Type: Archive{}, Optional: true, Example: `{"ref": "main", "archive": {"prefix": "site/"}}`},
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "The archive, streamed.", Media: "application/gzip",
				Headers: []openapi.Header{{
					Name: "Content-Disposition", Description: "A file name made of the repository and the commit.", Always: true,
				}},
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "A glob, the prefix or the size is invalid."),
				fails(http.StatusNotFound, "The revision, or the repository, does not exist."),
			},
		},
	}}
}
