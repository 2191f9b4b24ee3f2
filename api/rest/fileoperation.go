package rest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/pack/object"
)

// fileMetadata is one file operation of commit-pack.
type fileMetadata struct {
	Path      string         `json:"path"`
	Operation string         `json:"operation"`
	ContentID string         `json:"content_id"`
	BlobSHA   *string        `json:"blob_sha"`
	From      *string        `json:"from"`
	Edits     []editMetadata `json:"edits"`
	Mode      string         `json:"mode"`
	Unknown   jsontext.Value `json:",embed"`
}

// editMetadata is one edit of a file operation. Fields that it does not have are refused: a count
// that is misspelt would guard nothing.
type editMetadata struct {
	Old     string         `json:"old"`
	New     *string        `json:"new"`
	Count   *int           `json:"count"`
	Unknown jsontext.Value `json:",embed"`
}

// boundedFiles refuses a list of more than filesMax file operations, or more than editsMax edits in
// all of them, while they are decoded.
func boundedFiles(filesMax, editsMax int) json.Options {
	edits := 0
	return json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, files *[]fileMetadata) error {
			return bounded(from, files, func() error {
				if len(*files) == filesMax {
					return &engine.LimitError{Limit: "files (--operations-max)", Max: int64(filesMax)}
				}
				return nil
			})
		}),
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, all *[]editMetadata) error {
			return bounded(from, all, func() error {
				if edits++; edits > editsMax {
					return &engine.LimitError{Limit: "edits of all files", Max: int64(editsMax)}
				}
				return nil
			})
		}),
	))
}

// bounded decodes an array, and calls next before each of its items. A null leaves it nil.
func bounded[T any](from *jsontext.Decoder, all *[]T, next func() error) error {
	if from.PeekKind() != '[' {
		return errors.ErrUnsupported // of another type: the decoder says so
	}
	if _, err := from.ReadToken(); err != nil {
		return err
	}
	*all = []T{}
	for from.PeekKind() != ']' {
		if err := next(); err != nil {
			return err
		}
		var one T
		if err := json.UnmarshalDecode(from, &one); err != nil {
			return err
		}
		*all = append(*all, one)
	}
	_, err := from.ReadToken()
	return err
}

// editBytes is how much text the edits of files hold.
func editBytes(files []fileMetadata) (size int64) {
	for i := range files {
		for j := range files[i].Edits {
			e := &files[i].Edits[j]
			size += int64(len(e.Old))
			if e.New != nil {
				size += int64(len(*e.New))
			}
		}
	}
	return size
}

// allowed are the fields that an operation may have beside path. Clients give deletions some that
// mean nothing.
var allowed = map[string][]string{
	"upsert": {"content_id", "blob_sha", "mode"},
	"delete": {"content_id", "mode"},
	"move":   {"from", "edits"},
	"copy":   {"from", "edits"},
	"edit":   {"edits", "mode"},
}

// operation checks the fields among themselves. The message of its error goes on behind "files[i]".
func (f *fileMetadata) operation() (op engine.FileOperation, err error) {
	kind := cmp.Or(f.Operation, "upsert")
	op = engine.FileOperation{Path: f.Path, ContentID: f.ContentID, Delete: kind == "delete"}
	may, known := allowed[kind]
	if !known {
		return op, fmt.Errorf(".operation: expected upsert, delete, move, copy or edit, got %.40q", f.Operation)
	}
	if f.Path == "" {
		return op, errors.New(".path is required")
	}
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"content_id", f.ContentID != ""},
		{"blob_sha", f.BlobSHA != nil},
		{"from", f.From != nil},
		{"edits", f.Edits != nil},
		{"mode", f.Mode != ""},
	} {
		if field.given && !slices.Contains(may, field.name) {
			return op, fmt.Errorf(".%s: not expected with operation %s, which takes %s", field.name, kind, strings.Join(may, ", "))
		}
	}
	if name := memberOf(f.Unknown); name != "" && (f.BlobSHA != nil || kind != "upsert" && kind != "delete") {
		return op, fmt.Errorf(".%.100s is not known here", name)
	}
	switch {
	case kind == "upsert" && f.BlobSHA != nil:
		err = f.takeBlob(&op)
	case kind == "upsert" && f.ContentID == "":
		err = errors.New(".content_id or blob_sha is required")
	case kind == "move" || kind == "copy":
		if f.From == nil || *f.From == "" {
			return op, errors.New(".from is required")
		}
		op.Source = &commit.Source{From: *f.From, Move: kind == "move"}
	case kind == "edit" && f.Edits == nil:
		err = errors.New(".edits is required")
	case kind == "edit":
		op.Source = &commit.Source{}
	}
	if err == nil {
		err = f.takeMode(&op)
	}
	if err == nil {
		err = f.takeEdits(&op)
	}
	return op, err
}

// takeBlob takes a blob in place of a content.
func (f *fileMetadata) takeBlob(op *engine.FileOperation) (err error) {
	if f.ContentID != "" {
		return errors.New(".blob_sha: expected either content_id or blob_sha")
	}
	if op.Blob, err = object.ParseID(*f.BlobSHA); err != nil || op.Blob.IsZero() {
		return fmt.Errorf(".blob_sha: expected 40 lower-case hexadecimal digits, the id of a blob, got %.60q", *f.BlobSHA)
	}
	return nil
}

func (f *fileMetadata) takeMode(op *engine.FileOperation) (err error) {
	op.Mode, err = modeOf(f.Mode)
	switch {
	case op.Delete:
		return nil
	case err == nil && op.Mode.IsGitlink() && (f.BlobSHA != nil || f.Edits != nil):
		err = errors.New("expected that of a file, 100644, 100755 or 120000")
	}
	if err != nil {
		return fmt.Errorf(".mode: %w", err)
	}
	return nil
}

func (f *fileMetadata) takeEdits(op *engine.FileOperation) error {
	if f.Edits == nil {
		return nil
	}
	if len(f.Edits) == 0 {
		return errors.New(".edits: expected at least one")
	}
	edits := make([]commit.Edit, len(f.Edits))
	for i, e := range f.Edits {
		name := memberOf(e.Unknown)
		switch {
		case name != "":
			return fmt.Errorf(".edits[%d].%.100s is not known here", i, name)
		case e.Old == "":
			return fmt.Errorf(".edits[%d].old is required, and is not empty", i)
		case e.New == nil:
			return fmt.Errorf(".edits[%d].new is required", i)
		case e.Count != nil && *e.Count < 1:
			return fmt.Errorf(".edits[%d].count: expected a number from 1 on, got %d", i, *e.Count)
		}
		edits[i] = commit.Edit{Old: e.Old, New: *e.New}
		if e.Count != nil {
			edits[i].Count = *e.Count
		}
	}
	op.Source.Edits = edits
	return nil
}

// memberOf returns the name of the first member of an object that has been decoded, "" if there is
// none.
func memberOf(object jsontext.Value) string {
	if len(object) == 0 {
		return ""
	}
	d := jsontext.NewDecoder(bytes.NewReader(object))
	_, _ = d.ReadToken()
	name, err := d.ReadToken()
	if err != nil || name.Kind() != '"' {
		return ""
	}
	return name.String()
}

var errMode = errors.New("expected 100644, 100755, 120000 or 160000")

func modeOf(text string) (object.Mode, error) {
	switch text {
	case "":
		return 0, nil
	case "100644":
		return object.ModeBlob, nil
	case "100755":
		return object.ModeExec, nil
	case "120000":
		return object.ModeSymlink, nil
	case "160000":
		return object.ModeGitlink, nil
	default:
		return 0, errMode
	}
}
