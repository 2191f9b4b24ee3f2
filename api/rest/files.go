package rest

import (
	"context"
	"io"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// Page sizes of file listings: docs/api.md, "Files and trees".
const (
	filesLimitDefault = 1000
	filesLimitMax     = 5000
)

// filesQuery is a request for a listing.
type filesQuery struct {
	engine.FilesRequest
	// limit is 0 for a listing that is not paged.
	limit int
}

// Files answers GET /repos/files.
func (d *Door) Files(x exchange.Exchange, grant *auth.Grant) error {
	query, err := readFilesQuery(x)
	if err != nil {
		return err
	}
	repo, err := d.recallAt(x, grant)
	if err != nil {
		return err
	}
	files, err := repo.Files(x.Context(), query.FilesRequest)
	if err != nil {
		return err
	}
	x.Stream(http.StatusOK, "application/json", func(ctx context.Context, w io.Writer) error {
		defer files.Close()
		return writeFiles(ctx, w, files, query.limit)
	})
	return nil
}

func readFilesQuery(x exchange.Exchange) (filesQuery, error) {
	values := x.Query()
	space, err := spaceOf(x)
	if err != nil {
		return filesQuery{}, err
	}
	recursive, err := flagOf(x, "recursive", true)
	if err != nil {
		return filesQuery{}, err
	}
	query := filesQuery{FilesRequest: engine.FilesRequest{
		Namespace: space,
		Ref:       values.Get("ref"),
		Path:      values.Get("path"),
		Flat:      !recursive,
		Cursor:    values.Get("cursor"),
	}}
	query.limit, err = pageOf(x, filesLimitDefault, filesLimitMax)
	return query, err
}

// pathsHeld bounds the paths of a listing, in bytes, that are kept while its entries are written.
const pathsHeld = 1 << 20

// writeFiles writes the listing during the walk. The JSON has entries and paths in separate arrays:
// the paths wait in memory, and when there are too many a second walk lists them, which finds the
// trees in the cache.
func writeFiles(ctx context.Context, w io.Writer, files *engine.Files, limit int) error {
	out := newJSONStream(w)
	out.raw(`{"ref":`)
	out.text(files.Revision.Name)

	out.raw(`,"entries":[`)
	paths, comma := jsonStream{}, ""
	next, last, count, held := "", "", 0, true
	for file, err := range files.All(ctx) {
		if err != nil {
			return err
		}
		if limit > 0 && count == limit {
			next = files.CursorAfter(last)
			break
		}
		if err := out.separate(count); err != nil {
			return err
		}
		out.raw(`{"path":`)
		out.text(file.Path)
		out.raw(`,"type":"` + entryType(file.Mode) + `","mode":"` + file.Mode.String() + `"}`)
		count, last = count+1, file.Path
		if held = held && len(paths.buffer) < pathsHeld; held && isFile(file.Mode) {
			paths.raw(comma)
			paths.text(file.Path)
			comma = ","
		}
	}

	out.raw(`],"paths":[`)
	if held {
		out.raw(string(paths.buffer))
	} else if err := writePaths(ctx, out, files, count); err != nil {
		return err
	}
	out.raw(`]`)
	if limit > 0 {
		out.page(next)
	}
	out.raw("}\n")
	return out.end()
}

// writePaths writes the paths among the first count entries of a listing.
func writePaths(ctx context.Context, out *jsonStream, files *engine.Files, count int) error {
	written := 0
	for file, err := range files.All(ctx) {
		if err != nil {
			return err
		}
		if count--; count < 0 {
			break
		}
		if isFile(file.Mode) {
			if err := out.separate(written); err != nil {
				return err
			}
			out.text(file.Path)
			written++
		}
	}
	return nil
}

// isFile reports whether an entry is listed: a file or a symbolic link.
func isFile(mode object.Mode) bool { return !mode.IsTree() && !mode.IsGitlink() }

// entryType is the type of an entry in a listing.
func entryType(mode object.Mode) string {
	switch {
	case mode.IsTree():
		return "tree"
	case mode.IsGitlink():
		return "submodule"
	case mode.IsSymlink():
		return "symlink"
	default:
		return "blob"
	}
}
