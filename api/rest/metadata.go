package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// Page sizes of listings of files with their last commits: docs/api.md, "Files and trees".
const (
	metadataLimitDefault = 200
	metadataLimitMax     = 1000
)

// FilesMetadata answers GET /repos/files/metadata.
func (d *Door) FilesMetadata(x exchange.Exchange, grant *auth.Grant) error {
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	recursive, err := flagOf(x, "recursive", true)
	if err != nil {
		return err
	}
	query := x.Query()
	request := engine.MetadataRequest{
		Namespace: space,
		Ref:       query.Get("ref"),
		Path:      query.Get("path"),
		Flat:      !recursive,
		Cursor:    query.Get("cursor"),
		Slot:      x.Slot,
		Reserve:   x.Reserve,
	}
	if request.Limit, err = pageOf(x, metadataLimitDefault, metadataLimitMax); err != nil {
		return err
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	if repo, err = repo.Imported(x.Context()); err != nil {
		return err
	}
	list, err := repo.Metadata(x.Context(), request)
	if err != nil {
		return err
	}
	x.Stream(http.StatusOK, "application/json", func(ctx context.Context, w io.Writer) error {
		return errors.Join(writeMetadata(ctx, w, list, request.Limit > 0), list.Close())
	})
	return nil
}

// writeMetadata writes the files, then the commits that they name.
func writeMetadata(ctx context.Context, w io.Writer, list *engine.Metadata, paged bool) error {
	out := newJSONStream(w)
	out.raw(`{"ref":`)
	out.text(list.Revision.Name)
	out.raw(`,"files":[`)
	count := 0
	for f := range list.Files() {
		if err := out.separate(count); err != nil {
			return err
		}
		out.raw(`{"path":`)
		out.text(f.Path)
		out.raw(`,"type":"` + entryType(f.Mode) + `","mode":"` + f.Mode.String() + `","size":`)
		out.buffer = strconv.AppendInt(out.buffer, f.Size, 10)
		out.raw(`,"last_commit_sha":"` + f.Last.String() + `"}`)
		count++
	}
	out.raw(`],"commits":{`)
	count = 0
	for c, err := range list.Commits(ctx) {
		if err != nil {
			return err
		}
		if err := out.separate(count); err != nil {
			return err
		}
		out.raw(`"` + c.ID.String() + `":{"author":`)
		out.text(c.Author.Name)
		out.raw(`,"date":"` + timestamp(object.CommitTime(c.Committer.Seconds)) + `","message":`)
		out.text(c.Message)
		out.raw(`}`)
		count++
	}
	out.raw(`}`)
	if paged {
		out.page(list.Next)
	}
	out.raw("}\n")
	return out.end()
}
