package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/pathspec"
)

// archiveJSON is the body of a request for an archive: docs/api.md, "Archives".
type archiveJSON struct {
	Ref          string   `json:"ref"`
	At           *string  `json:"at"`
	IncludeGlobs []string `json:"include_globs"`
	ExcludeGlobs []string `json:"exclude_globs"`
	MaxBlobSize  *int64   `json:"max_blob_size"`
	Archive      struct {
		Prefix string `json:"prefix"`
	} `json:"archive"`
}

// Archive answers POST /repos/archive with a tar.gz of the files of a revision.
func (d *Door) Archive(x exchange.Exchange, grant *auth.Grant) error {
	x.Operation(exchange.Archive)
	var body archiveJSON
	if _, err := readJSON(x, &body, true); err != nil {
		return err
	}
	request := engine.ArchiveRequest{
		Ref:    body.Ref,
		Files:  pathspec.Spec{Include: body.IncludeGlobs, Exclude: body.ExcludeGlobs},
		Prefix: body.Archive.Prefix,
		Turn:   patiently(x),
	}
	var err error
	if request.BlobBytesMax, err = blobBytesMax("max_blob_size", body.MaxBlobSize); err != nil {
		return err
	}
	repo, err := d.openUnlessBusy(x, grant, body.At)
	if err != nil {
		return err
	}
	archive, err := repo.Archive(x.Context(), request)
	if err != nil {
		return err
	}
	name := grant.Repo[strings.LastIndexByte(grant.Repo, '/')+1:]
	x.SetHeader("Content-Disposition",
		fmt.Sprintf("attachment; filename=\"%s-%.7s.tar.gz\"", name, archive.Revision.Commit))
	x.Stream(http.StatusOK, "application/gzip", func(ctx context.Context, w io.Writer) error {
		defer archive.Close() //nolint:errcheck // it was only read
		return archive.Write(ctx, w)
	})
	return nil
}

// blobBytesMax returns the largest size of a file in bytes that a field asks for; 0, no bound,
// without it.
func blobBytesMax(field string, given *int64) (int64, error) {
	if given == nil {
		return 0, nil
	}
	if *given < 1 {
		return 0, badRequest("%s: expected a number from 1 on, got %d", field, *given)
	}
	return *given, nil
}

// openUnlessBusy opens the repository as openAt does, waits once for a slot and gives it back: a
// busy server reports that while it can still send a status.
func (d *Door) openUnlessBusy(x exchange.Exchange, grant *auth.Grant, at *string) (*engine.Repository, error) {
	repo, err := d.openAt(x, grant, at)
	if err != nil {
		return nil, err
	}
	release, err := x.Slot(x.Context())
	if err != nil {
		return nil, err
	}
	release()
	return repo, nil
}

// patiently returns a function that waits for a slot without a time limit: an answer that has begun
// cannot report that the server is busy.
func patiently(x exchange.Exchange) func(ctx context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		for {
			release, err := x.Slot(ctx)
			if !errors.Is(err, exchange.ErrBusy) || ctx.Err() != nil {
				return release, err
			}
		}
	}
}
