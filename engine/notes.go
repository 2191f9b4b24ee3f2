package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"packhorse/engine/commit"
	"packhorse/engine/notes"
	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Names of refs that hold notes.
const (
	notesPrefix = "refs/notes/"
	// DefaultNotesRef is the ref of notes unless a request names another one.
	DefaultNotesRef = notesPrefix + "commits"
)

// NotesRef returns the full name of the notes ref that a request calls name: "reviews",
// "notes/reviews" and "refs/notes/reviews" are the same, as for git, and "" is [DefaultNotesRef].
// Errors: [ErrInvalid].
func NotesRef(name string) (string, error) {
	if name == "" {
		return DefaultNotesRef, nil
	}
	full, err := notesName(name)
	if err != nil {
		return "", err
	}
	if err := refs.CheckName(full); err != nil {
		return "", badName("ref", err)
	}
	return full, nil
}

// NotesPrefix returns the full beginning of the notes refs that a request calls prefix, which may
// be empty. Errors: [ErrInvalid].
func NotesPrefix(prefix string) (string, error) { return notesName(prefix) }

func notesName(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, notesPrefix):
		return name, nil
	case strings.HasPrefix(name, "notes/"):
		return "refs/" + name, nil
	case strings.HasPrefix(name, "refs/"):
		return "", invalid("%.100q is not below %s", name, notesPrefix)
	}
	return notesPrefix + name, nil
}

// NoteTarget identifies a note of a commit.
type NoteTarget struct {
	Namespace refs.Namespace
	// Ref is the full name of the notes ref, as clients of the namespace see it.
	Ref string
	// Object is the commit that the note is about. A full ID is taken as it is: the commit may have
	// gone.
	Object CommitName
	// Expected is where the notes ref must be, the zero id for "absent"; nil expects nothing.
	Expected *object.ID
	// Author is the author of the notes commit; empty means the actor.
	Author commit.Person
}

// NoteResult is the outcome of a change of notes. An idempotency record stores it.
type NoteResult struct {
	Commit   object.ID // that the note is about
	Ref      string    // as clients of the namespace see it
	Old, New object.ID // of the notes ref; Old is zero when there was none
	Sequence uint64
}

// Note is a note as answers show it.
type Note struct {
	Commit object.ID
	Text   string // without the line ends that it ends in
	// Tip is where the notes ref is.
	Tip object.ID
}

// Note returns the note of a commit. Errors: [ErrNotFound]; notes.ErrTooLarge, notes.ErrMalformed.
func (r *Repository) Note(ctx context.Context, target NoteTarget) (Note, error) {
	names, view, err := r.open(ctx)
	if err != nil {
		return Note{}, err
	}
	defer names.Close()
	defer view.Close()
	about, err := r.noteObject(ctx, names, view, &target)
	if err != nil {
		return Note{}, err
	}
	missing := fail(ErrNoteNotFound, "no note for commit %s in %s", about, target.Ref)
	ref, err := names.Lookup(ctx, target.Namespace.Full(target.Ref))
	if errors.Is(err, refs.ErrNotFound) {
		return Note{}, missing
	}
	if err != nil {
		return Note{}, fmt.Errorf("look up %s: %w", target.Ref, err)
	}
	view = view.Linked()
	tree, err := openNotes(ctx, view, ref.ID)
	if err != nil {
		return Note{}, err
	}
	blobs, err := tree.Find(ctx, about)
	if err != nil {
		return Note{}, fmt.Errorf("read %s: %w", target.Ref, err)
	}
	if len(blobs) == 0 {
		return Note{}, missing
	}
	text, err := notes.Text(ctx, view, blobs)
	if err != nil {
		return Note{}, fmt.Errorf("read %s: %w", target.Ref, err)
	}
	return Note{Commit: about, Text: strings.TrimRight(string(text), "\n"), Tip: ref.ID}, nil
}

// noteObject finds the commit that a note is about.
func (r *Repository) noteObject(
	ctx context.Context, names lookuper, view *odb.View, target *NoteTarget,
) (object.ID, error) {
	if id, err := object.ParseID(strings.ToLower(target.Object.Text)); err == nil {
		return id, nil
	}
	found, err := r.resolve(ctx, names, view, target.Object)
	return found.Commit, err
}

// openNotes opens the notes tree of a commit, that of nothing for the zero id.
func openNotes(ctx context.Context, view *odb.View, tip object.ID) (*notes.Tree, error) {
	if tip.IsZero() {
		return notes.Open(ctx, view, object.ZeroID)
	}
	id, err := revision.Peel(ctx, view, tip)
	if errors.Is(err, revwalk.ErrNotCommit) {
		return nil, fmt.Errorf("%s is no commit: %w", tip, notes.ErrMalformed)
	}
	if err != nil {
		return nil, err
	}
	root, err := treeOf(ctx, view, id)
	if err != nil {
		return nil, err
	}
	tree, err := notes.Open(ctx, view, root)
	if err != nil {
		return nil, fmt.Errorf("open notes of %s: %w", tip, err)
	}
	return tree, nil
}

// AddNote gives a commit a note, or with toExisting appends to the one that it has, and returns
// when that is durable. When the notes ref has moved and nothing else was expected, the note goes
// onto the new tip.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a commit that cannot be read; [ErrExists]; refs.ErrStale,
// refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch; notes.ErrTooLarge, notes.ErrMalformed.
func (r *Repository) AddNote(
	ctx context.Context, actor Actor, target NoteTarget, text string, toExisting bool,
) (NoteResult, error) {
	change, err := addNote(&target, text, toExisting)
	if err != nil {
		return NoteResult{}, err
	}
	return r.changeNotes(ctx, &actor, &target, change)
}

// noteChange is a change of a notes tree about a commit.
type noteChange struct {
	message string // of the commit
	edit    func(ctx context.Context, tree *notes.Tree, objects *odb.Quarantine, about object.ID) error
}

func addNote(target *NoteTarget, text string, toExisting bool) (*noteChange, error) {
	clean := notes.Clean([]byte(text))
	if len(clean) == 0 {
		return nil, invalid("note is required")
	}
	change := &noteChange{message: "Notes added by 'git notes add'"}
	if toExisting {
		change.message = "Notes added by 'git notes append'"
	}
	change.edit = func(ctx context.Context, tree *notes.Tree, objects *odb.Quarantine, about object.ID) error {
		if err := requireCommit(ctx, objects.View(), about); err != nil {
			return err
		}
		blobs, err := tree.Find(ctx, about)
		if err != nil {
			return err
		}
		if len(blobs) > 0 && !toExisting {
			return &failure{kind: ErrNoteExists, text: fmt.Sprintf("commit %s already has a note in %s", about, target.Ref)}
		}
		return setNote(ctx, tree, objects, about, blobs, clean)
	}
	return change, nil
}

// setNote sets the note of a commit to the contents of the blobs, followed by text.
func setNote(
	ctx context.Context, tree *notes.Tree, objects *odb.Quarantine, id object.ID, blobs []object.ID, text []byte,
) error {
	before, err := notes.Text(ctx, objects.View().Linked(), blobs)
	if err != nil {
		return err
	}
	whole := notes.Append(before, text)
	if len(whole) > notes.TextMax {
		return &LimitError{Limit: "size of a note in bytes", Max: notes.TextMax}
	}
	predecessor := object.ZeroID
	if len(blobs) > 0 {
		predecessor = blobs[0]
	}
	blob, err := objects.Write(ctx, object.TypeBlob, whole, predecessor)
	if err != nil {
		return fmt.Errorf("write note: %w", err)
	}
	return tree.Set(ctx, id, blob)
}

// DeleteNote removes the note of a commit, which need not be there any more, and returns when that
// is durable.
//
// Errors: [ErrInvalid]; [ErrNotFound] without a note; refs.ErrStale, refs.ErrDenied, refs.ErrBusy,
// refs.ErrReceiptMismatch; notes.ErrTooLarge, notes.ErrMalformed.
func (r *Repository) DeleteNote(ctx context.Context, actor Actor, target NoteTarget) (NoteResult, error) {
	return r.changeNotes(ctx, &actor, &target, removeNote(&target))
}

func removeNote(target *NoteTarget) *noteChange {
	return &noteChange{
		message: "Notes removed by 'git notes remove'",
		edit: func(ctx context.Context, tree *notes.Tree, _ *odb.Quarantine, about object.ID) error {
			found, err := tree.Remove(ctx, about)
			if err == nil && !found {
				err = fail(ErrNoteNotFound, "no note for commit %s in %s", about, target.Ref)
			}
			return err
		},
	}
}

// changeNotes commits a change of a notes tree. It is made again on a new tip when the notes ref
// has moved. The result of a failure has the commit, if it was found.
func (r *Repository) changeNotes(
	ctx context.Context, actor *Actor, target *NoteTarget, by *noteChange,
) (result NoteResult, err error) {
	author, err := target.author(actor)
	if err != nil {
		return NoteResult{}, err
	}
	full := target.Namespace.Full(target.Ref)
	view, err := r.writable(ctx, actor, full)
	if err != nil {
		return NoteResult{}, err
	}
	defer view.Close()
	defer actor.hold.Release()
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	change := r.change(actor, "note", full)
	change.FastForward = onTop
	done, err := r.transact(ctx, actor, change, objects, func(ctx context.Context, tx *refs.Tx, now *Repository) error {
		if err := objects.Refresh(ctx); err != nil {
			return fmt.Errorf("refresh objects: %w", err)
		}
		var err error
		if result, err = now.write(tx, objects, r.host.now()).note(ctx, target, author, by); err != nil {
			return err
		}
		if err := objects.Stage(ctx, tx.Batch()); err != nil {
			return fmt.Errorf("stage objects: %w", err)
		}
		return setReceipt(tx, result)
	})
	if err != nil {
		return NoteResult{Commit: result.Commit}, err
	}
	if done.Replayed {
		return decodeReceipt[NoteResult](done.Receipt)
	}
	return result, nil
}

// tip returns where the notes ref is, the zero id for nowhere, if that is as expected.
func (t *NoteTarget) tip(ctx context.Context, names lookuper) (object.ID, error) {
	full := t.Namespace.Full(t.Ref)
	ref, err := names.Lookup(ctx, full)
	if err != nil && !errors.Is(err, refs.ErrNotFound) {
		return object.ZeroID, fmt.Errorf("look up %s: %w", t.Ref, err)
	}
	if t.Expected != nil && *t.Expected != ref.ID {
		return object.ZeroID, &refs.StaleError{Name: t.Ref, Expected: *t.Expected, Actual: ref.ID}
	}
	return ref.ID, nil
}

// author returns the author of a note: docs/invariants.md 43.
func (t *NoteTarget) author(actor *Actor) (commit.Person, error) {
	if t.Author != (commit.Person{}) {
		if reason := t.Author.Check(); reason != "" {
			return commit.Person{}, invalid("author: %s", reason)
		}
		return t.Author, nil
	}
	return actor.person(), nil
}
