package engine

import (
	"context"
	"errors"
	"iter"
	"strings"

	"packhorse/engine/blame"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
	"packhorse/refs"
)

// blameRangesMax bounds the ranges of lines in one request.
const blameRangesMax = 16

// BlameRequest names a file and the lines to blame.
type BlameRequest struct {
	Namespace refs.Namespace
	Ref       string
	Path      string
	// Ranges are the lines, each in a form of git blame -L; none means all.
	Ranges []string
	// Moves also finds lines that were moved within the file.
	Moves bool
	// Limit ends a part of the blame after so many versions of the file that had to be compared; 0
	// never does.
	Limit int
	// Cursor continues a blame, of the commit and the lines that it began with: see [Blame.Next].
	Cursor string
	// Slot is waited for when history has to be walked.
	Slot Slot
}

// Blame is the commits that the lines of a file come from. The caller closes it.
type Blame struct {
	Revision Revision
	Path     string
	runs     []blame.Run
	view     *odb.View
	next     string
}

// BlameLine is a line of a file. Both numbers count from 1.
type BlameLine struct {
	Number         int
	Commit         *Commit // shared by the lines that come from it
	OriginalNumber int
	OriginalPath   string
	Previous       object.ID // zero if the commit had nothing to change
}

// Blame attributes each line of a file, or of the target of a symbolic link, to a commit, as git
// blame does.
//
// Errors: [ErrNotFound] when the ref or the path does not exist; [ErrInvalid] when the path is a
// folder or a submodule, or for too many ranges; [ErrInvalidCursor]; [blame.ErrRange];
// [blame.ErrTooLarge].
func (r *Repository) Blame(ctx context.Context, request BlameRequest) (*Blame, error) {
	if len(request.Ranges) > blameRangesMax {
		return nil, invalid("%d ranges, at most %d", len(request.Ranges), blameRangesMax)
	}
	at, err := r.at(ctx, request.Namespace, request.Ref)
	if err != nil {
		return nil, err
	}
	request.Path = strings.TrimLeft(request.Path, "/")
	cursor := r.blameCursor(&request)
	if request.Cursor != "" {
		if err := cursor.read(ctx, request.Cursor, &at); err != nil {
			return nil, errors.Join(err, at.view.Close())
		}
	}
	b, err := blameFile(ctx, at, &request, cursor, r.host.changes)
	if err != nil {
		return nil, errors.Join(err, at.view.Close())
	}
	return b, nil
}

func blameFile(
	ctx context.Context, at position, request *BlameRequest, cursor blameCursor, known *blame.Changes,
) (*Blame, error) {
	if _, err := lookupFile(ctx, at, request.Path); err != nil {
		return nil, err
	}
	release, err := request.Slot.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	b := &Blame{Revision: at.revision, Path: request.Path, view: at.view}
	err = fair.Do(ctx, func(ctx context.Context) (err error) {
		b.runs, cursor.left, err = blame.File(ctx, at.view, at.revision.Commit, request.Path, blame.Options{
			Ranges: request.Ranges, Moves: request.Moves, Known: known, Limit: request.Limit, Left: cursor.left,
		})
		return err
	})
	if errors.Is(err, blame.ErrLeft) {
		err = fail(ErrInvalidCursor, "invalid cursor %.100q", request.Cursor)
	}
	if err != nil {
		return nil, err
	}
	if cursor.left != nil {
		cursor.commit = at.revision.Commit
		b.next = cursor.text()
	}
	return b, nil
}

// Next is the cursor of the rest of the blame, "" if all lines are blamed.
func (b *Blame) Next() string { return b.next }

// Lines walks the lines in their order. An error ends the walk. It may be walked again.
func (b *Blame) Lines(ctx context.Context) iter.Seq2[BlameLine, error] {
	return func(yield func(BlameLine, error) bool) {
		commits := make(map[object.ID]*Commit)
		for _, run := range b.runs {
			commit := commits[run.Commit]
			if commit == nil {
				read, err := readCommit(ctx, b.view, run.Commit)
				if err != nil {
					yield(BlameLine{}, err)
					return
				}
				commit = &read
				commits[run.Commit] = commit
			}
			for i := range run.Count {
				line := BlameLine{
					Number: run.Index + i + 1, Commit: commit,
					OriginalNumber: run.Source + i + 1, OriginalPath: run.Path, Previous: run.Previous,
				}
				if !yield(line, nil) {
					return
				}
			}
		}
	}
}

// Close releases the objects.
func (b *Blame) Close() error { return b.view.Close() }

// Summary is the first line of the message, or, as git blame has it, the id in parentheses where
// there is none.
func (c *Commit) Summary() string {
	for line := range strings.Lines(c.Message) {
		if text := strings.TrimSuffix(line, "\n"); strings.TrimSpace(text) != "" {
			return text
		}
	}
	return "(" + c.ID.String() + ")"
}
