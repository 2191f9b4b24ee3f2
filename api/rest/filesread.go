package rest

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/engine/archive"
	"packhorse/engine/pathspec"
	"packhorse/pack/object"
)

// filesReadJSON is the body of a request for contents: docs/api.md, "Files and trees".
type filesReadJSON struct {
	Ref             string   `json:"ref"`
	At              *string  `json:"at"`
	Ephemeral       bool     `json:"ephemeral"`
	Paths           []string `json:"paths"`
	IncludeGlobs    []string `json:"include_globs"`
	ExcludeGlobs    []string `json:"exclude_globs"`
	MaxBytesPerFile *int64   `json:"max_bytes_per_file"`
	Known           []string `json:"known"`
}

// knownMax bounds the blobs that a client says it has.
const knownMax = 10_000

// ndjsonType is the type of an answer with one JSON object a line.
const ndjsonType = "application/x-ndjson"

// FilesRead answers POST /repos/files/read: files of one commit with their contents.
func (d *Door) FilesRead(x exchange.Exchange, grant *auth.Grant) error {
	var body filesReadJSON
	if _, err := readJSON(x, &body, false); err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	request.Turn = patiently(x)
	repo, err := d.openUnlessBusy(x, grant, body.At)
	if err != nil {
		return err
	}
	files, err := repo.ReadFiles(x.Context(), request)
	if err != nil {
		return err
	}
	x.Stream(http.StatusOK, ndjsonType, func(ctx context.Context, w io.Writer) error {
		defer files.Close() //nolint:errcheck // it was only read
		out := filesReadStream{out: bufio.NewWriterSize(w, filesReadBuffer)}
		return out.write(ctx, files)
	})
	return nil
}

// request checks the lists and numbers of a body, and returns the request.
func (b *filesReadJSON) request() (engine.ReadFilesRequest, error) {
	request := engine.ReadFilesRequest{
		Namespace: namespace(b.Ephemeral), Ref: b.Ref,
		Files: pathspec.Spec{Paths: b.Paths, Include: b.IncludeGlobs, Exclude: b.ExcludeGlobs},
	}
	for _, list := range []struct {
		name       string
		count, max int
	}{
		{"paths", len(b.Paths), pathspec.CountMax},
		{"include_globs", len(b.IncludeGlobs), pathspec.CountMax},
		{"exclude_globs", len(b.ExcludeGlobs), pathspec.CountMax},
		{"known", len(b.Known), knownMax},
	} {
		if list.count > list.max {
			return request, badRequest("%s: expected at most %d items, got %d", list.name, list.max, list.count)
		}
	}
	var err error
	if request.BlobBytesMax, err = blobBytesMax("max_bytes_per_file", b.MaxBytesPerFile); err != nil {
		return request, err
	}
	request.Known = make(map[object.ID]bool, len(b.Known))
	for i, text := range b.Known {
		id, err := object.ParseID(strings.ToLower(text))
		if err != nil {
			return request, badRequest("known[%d]: expected the 40 hexadecimal digits of a blob, got %.60q", i, text)
		}
		request.Known[id] = true
	}
	return request, nil
}

// filesReadStream writes the answer with the contents of files.
type filesReadStream struct {
	out  *bufio.Writer
	line []byte // that is being written
}

// Sizes in bytes of a write while more lines follow, and of the pieces that a content is encoded
// in: a multiple of 3, so that no piece but the last is padded.
const (
	filesReadBuffer = 64 << 10
	filesReadPiece  = 48 << 10
)

func (s *filesReadStream) write(ctx context.Context, files *engine.FileContents) error {
	s.line = appendTextField([]byte{'{'}, "ref", files.Revision.Name)
	s.line = appendTextField(s.line, "commit_sha", files.Revision.Commit.String())
	s.line = appendTextField(s.line, "tree_sha", files.Tree.String())
	if err := s.endLine(); err != nil {
		return err
	}
	count := 0
	for f, err := range files.All(ctx, s.out.Flush) {
		if err == nil {
			err = s.file(ctx, &f)
		}
		if err != nil {
			return err
		}
		count++
	}
	for path, err := range files.Missing(ctx) {
		if err != nil {
			return err
		}
		s.line = append(appendTextField(append(s.line[:0], '{'), "path", path), `,"missing":true`...)
		if err := s.endLine(); err != nil {
			return err
		}
	}
	s.line = fmt.Appendf(s.line[:0], `{"complete":true,"files":%d`, count)
	if err := s.endLine(); err != nil {
		return err
	}
	return s.out.Flush()
}

// file writes the line of a file.
func (s *filesReadStream) file(ctx context.Context, f *archive.File) error {
	s.line = appendTextField(append(s.line[:0], '{'), "path", f.Path)
	s.line = fmt.Appendf(s.line, `,"mode":"%s","sha":"%s"`, f.Mode, f.ID)
	if f.Content != archive.NoContent {
		s.line = fmt.Appendf(s.line, `,"size":%d`, f.Size)
	}
	switch f.Content {
	case archive.NoContent:
	case archive.Known:
		s.line = append(s.line, `,"known":true`...)
	case archive.TooLarge:
		s.line = append(s.line, `,"truncated":true`...)
	case archive.Held, archive.Stored:
		s.line = append(s.line, `,"data":"`...)
		if err := s.data(ctx, f); err != nil {
			return err
		}
		s.line = append(s.line, '"')
	}
	return s.endLine()
}

// data writes the line so far, and a content in base64.
func (s *filesReadStream) data(ctx context.Context, f *archive.File) error {
	if f.Content == archive.Stored {
		if err := s.flush(); err != nil {
			return err
		}
		encoder := base64.NewEncoder(base64.StdEncoding, s.out)
		if _, err := f.WriteTo(ctx, encoder); err != nil {
			return err
		}
		return encoder.Close()
	}
	for rest := f.Data; len(rest) > 0; {
		piece := rest[:min(len(rest), filesReadPiece)]
		rest = rest[len(piece):]
		s.line = base64.StdEncoding.AppendEncode(s.line, piece)
		if err := s.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (s *filesReadStream) endLine() error {
	s.line = append(s.line, '}', '\n')
	return s.flush()
}

// flush hands the line so far to the buffered output.
func (s *filesReadStream) flush() error {
	_, err := s.out.Write(s.line)
	s.line = s.line[:0]
	return err
}
