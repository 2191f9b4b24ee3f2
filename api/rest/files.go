package rest

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/pack/object"
)

// Page sizes of file listings: contract.md, "Reading".
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
	repo, err := d.open(x, grant)
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
	if values.Get("limit") != "" || query.Cursor != "" {
		query.limit, err = limitOf(x, filesLimitDefault, filesLimitMax)
	}
	return query, err
}

// writeFiles writes the listing as it is walked: once for the entries, once for the paths of files, since JSON holds the two
// apart and neither is to be held in memory. The second walk meets the trees in the cache.
func writeFiles(ctx context.Context, w io.Writer, files *engine.Files, limit int) error {
	out := newJSONStream(w)
	out.token(jsontext.BeginObject)
	out.field("ref", files.Revision.Name)

	out.token(jsontext.String("entries"))
	out.token(jsontext.BeginArray)
	next := ""
	count := 0
	for file, err := range files.All(ctx) {
		if err != nil {
			return err
		}
		if limit > 0 && count == limit {
			next = files.CursorAfter(out.last)
			break
		}
		count++
		out.last = file.Path
		out.token(jsontext.BeginObject)
		out.field("path", file.Path)
		out.field("type", entryType(file.Mode))
		out.field("mode", file.Mode.String())
		out.token(jsontext.EndObject)
	}
	out.token(jsontext.EndArray)

	out.token(jsontext.String("paths"))
	out.token(jsontext.BeginArray)
	walked := 0
	for file, err := range files.All(ctx) {
		if err != nil {
			return err
		}
		if walked == count {
			break
		}
		walked++
		if !file.Mode.IsTree() && !file.Mode.IsGitlink() {
			out.text(file.Path)
		}
	}
	out.token(jsontext.EndArray)
	if limit > 0 {
		if next != "" {
			out.field("next_cursor", next)
		}
		out.token(jsontext.String("has_more"))
		out.token(jsontext.Bool(next != ""))
	}
	out.token(jsontext.EndObject)
	return out.end()
}

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

// jsonStream writes JSON as it comes. Its first failure is kept and told by end.
type jsonStream struct {
	encoder *jsontext.Encoder
	last    string
	err     error
}

func newJSONStream(w io.Writer) *jsonStream {
	return &jsonStream{encoder: jsontext.NewEncoder(w, jsontext.AllowInvalidUTF8(true))}
}

func (s *jsonStream) token(t jsontext.Token) {
	if s.err == nil {
		s.err = s.encoder.WriteToken(t)
	}
}

func (s *jsonStream) text(value string) {
	s.token(jsontext.String(strings.ToValidUTF8(value, "\uFFFD")))
}

func (s *jsonStream) field(name, value string) {
	s.token(jsontext.String(name))
	s.text(value)
}

func (s *jsonStream) end() error { return s.err }
