package notes

import (
	"bytes"
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Clean returns text as `git notes add` stores a text from -m or -F: without white space at the
// ends of lines, without empty lines at the start and the end, with one for several in between, and
// with a line end. The result may be empty.
func Clean(text []byte) []byte {
	var clean []byte
	gap := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, " \t\r\n")
		if len(line) == 0 {
			gap = len(clean) > 0
			continue
		}
		if gap {
			clean = append(clean, '\n')
			gap = false
		}
		clean = append(clean, line...)
		clean = append(clean, '\n')
	}
	return clean
}

// Append returns what `git notes append` stores: the note there is, an empty line, and text, which
// is clean.
func Append(note, text []byte) []byte {
	if len(note) == 0 {
		return text
	}
	joined := make([]byte, 0, len(note)+1+len(text))
	joined = append(joined, note...)
	joined = append(joined, '\n')
	return append(joined, text...)
}

// Text returns the content of the note that the blobs make, as [Tree.Find] returns them. Errors:
// [ErrTooLarge].
func Text(ctx context.Context, objects *odb.View, blobs []object.ID) ([]byte, error) {
	var text []byte
	for _, id := range blobs {
		next, err := readNote(ctx, objects, id)
		if err != nil {
			return nil, err
		}
		switch {
		case len(next) == 0:
		case len(text) == 0:
			text = next
		case len(text)+len(next) > TextMax:
			return nil, fmt.Errorf("note of %d bytes: %w", len(text)+len(next), ErrTooLarge)
		default:
			text = Append(append(bytes.TrimSuffix(bytes.Clone(text), []byte("\n")), '\n'), next)
		}
	}
	return text, nil
}

// readNote returns the content of a blob, and nothing for another object, as git does.
func readNote(ctx context.Context, objects *odb.View, id object.ID) ([]byte, error) {
	info, err := objects.Stat(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read note: %w", err)
	}
	switch {
	case info.Type != object.TypeBlob:
		return nil, nil
	case info.Size > TextMax:
		return nil, fmt.Errorf("note of %d bytes: %w", info.Size, ErrTooLarge)
	}
	_, data, err := objects.Read(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read note: %w", err)
	}
	return data, nil
}
