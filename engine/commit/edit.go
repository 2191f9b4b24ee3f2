package commit

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/segment"
)

// ErrEdit matches every [EditError].
var ErrEdit = errors.New("commit: the text to replace is not there as often as expected")

// ErrTooLarge matches every [LimitError].
var ErrTooLarge = errors.New("commit: over a limit")

// Bounds of edits, in bytes.
const (
	// EditedBytesMax is the size of a file before, between and after its edits.
	EditedBytesMax = segment.WholeMax
	// EditWorkBytesMax bounds what the edits of a plan go through. An edit goes through its file once,
	// and storing the file counts as much as writeWork edits.
	EditWorkBytesMax = 4 << 30

	writeWork = 8
)

// Edit replaces exact text.
type Edit struct {
	// Old is the text to replace, which is not empty.
	Old string
	New string
	// Count is how often Old must be there; 0 means once. All of these are replaced.
	Count int
}

// EditError says that Old of an edit is not there as often as its Count says. Its Is method matches
// [ErrEdit].
type EditError struct {
	// Path is the path of the operation, and Index the place of the edit in it, from 0 on.
	Path  string
	Index int
	// Found is how often Old was found, from the left, and Overlaps says that it was found within
	// itself, too, so that it is not clear which text is meant.
	Found, Expected int
	Overlaps        bool
}

func (e *EditError) Error() string {
	found := "was found " + times(e.Found)
	switch {
	case e.Overlaps:
		found = "was found at places that overlap"
	case e.Found == 0:
		found = "was not found"
	}
	return fmt.Sprintf("path %q: edits[%d]: old %s, expected %s", e.Path, e.Index, found, times(e.Expected))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Is reports whether target is [ErrEdit].
func (e *EditError) Is(target error) bool { return target == ErrEdit }

// LimitError names the limit that an operation exceeds. Its Is method matches [ErrTooLarge].
type LimitError struct {
	Path  string
	Limit string
	Max   int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("path %q: %s: more than %d", e.Path, e.Limit, e.Max)
}

// Is reports whether target is [ErrTooLarge].
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// Replace returns data after the edits, each applied to the result of those before. data is only
// read, and is returned if there are no edits. It adds to work the bytes that it goes through, up
// to [EditWorkBytesMax].
//
// Errors, without a path: [EditError], [LimitError]; those of [fair.Pause].
func Replace(ctx context.Context, data []byte, edits []Edit, work *int64) ([]byte, error) {
	for i := range edits {
		if err := fair.Pause(ctx); err != nil {
			return nil, err
		}
		if err := pass(work, len(data)+len(edits[i].Old)); err != nil {
			return nil, err
		}
		edited, err := edits[i].apply(data)
		if failed, ok := errors.AsType[*EditError](err); ok {
			failed.Index = i
		}
		if err != nil {
			return nil, err
		}
		data = edited
	}
	return data, nil
}

// pass adds bytes to work.
func pass(work *int64, bytes int) error {
	if *work += int64(bytes); *work > EditWorkBytesMax {
		return &LimitError{Limit: "bytes that the edits of a commit go through", Max: EditWorkBytesMax}
	}
	return nil
}

func (e *Edit) apply(data []byte) ([]byte, error) {
	expected := max(e.Count, 1)
	found, overlaps := places(data, []byte(e.Old))
	if found != expected || overlaps {
		return nil, &EditError{Found: found, Expected: expected, Overlaps: overlaps}
	}
	if size := int64(len(data)) + int64(found)*int64(len(e.New)-len(e.Old)); size > EditedBytesMax {
		return nil, errEditedTooLarge()
	}
	return bytes.ReplaceAll(data, []byte(e.Old), []byte(e.New)), nil
}

func errEditedTooLarge() error {
	return &LimitError{Limit: "size in bytes of an edited file", Max: EditedBytesMax}
}

// places counts the places of old in data from the left, none of which overlap, and reports whether
// there is another that overlaps one of them: then others than these might be meant.
func places(data, old []byte) (count int, overlaps bool) {
	for {
		at := bytes.Index(data, old)
		if at < 0 {
			return count, overlaps
		}
		count++
		end := at + len(old)
		within := data[at+1 : min(len(data), end+len(old)-1)]
		overlaps = overlaps || bytes.Contains(within, old)
		data = data[end:]
	}
}
