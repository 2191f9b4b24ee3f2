package pathspec

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"packhorse/pack/object"
)

// ErrDepth says that folders are nested deeper than [DepthMax].
var ErrDepth = errors.New("pathspec: folders nested too deeply")

// DepthMax bounds the nesting of folders.
const DepthMax = 2048

// Reader reads trees, as a view of a pool does.
type Reader interface {
	ReadTree(ctx context.Context, id object.ID) ([]byte, error)
}

// Entry is an entry of a tree with its whole path.
type Entry struct {
	Path string
	Mode object.Mode
	ID   object.ID
}

// Walk yields the files of the tree root that f selects, in the order of trees, and the folders on
// the way, each before its content, even if nothing in it turns out to be selected. With a path in
// from, the walk begins there: with the entry at that path, or its place; folders above it are left
// out. Folders that can hold nothing selected are never opened. Errors: [ErrDepth] and those of
// objects.
func Walk(ctx context.Context, objects Reader, root object.ID, f *Filter, from string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := walker{ctx: ctx, objects: objects, filter: f, yield: yield}
		if err := w.folder(Entry{Mode: object.ModeTree, ID: root}, f.root(), from, DepthMax); err != nil &&
			!errors.Is(err, errStop) {
			yield(Entry{}, err)
		}
	}
}

// errStop ends a walk whose caller wants no more.
var errStop = errors.New("pathspec: stop")

// walker lives as long as a walk.
type walker struct {
	ctx     context.Context
	objects Reader
	filter  *Filter
	yield   func(Entry, error) bool
}

// folder yields the content of a folder, from a path on that is relative to it and may be empty.
func (w *walker) folder(at Entry, above inherited, from string, depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: %d levels", ErrDepth, DepthMax)
	}
	data, err := w.objects.ReadTree(w.ctx, at.ID)
	if err != nil {
		return fmt.Errorf("read folder %q: %w", at.Path, err)
	}
	head, below, deeper := strings.Cut(from, "/")
	it := object.IterTree(data)
	for it.Next() {
		name, inside := string(it.Name), ""
		if head != "" {
			order := object.CompareEntries(name, it.Mode.IsTree(), head, deeper)
			if name != head && order < 0 {
				continue
			}
			if name == head && it.Mode.IsTree() {
				inside = below
			}
			head = ""
		}
		entry := Entry{Path: name, Mode: it.Mode.Canonical(), ID: it.ID}
		if at.Path != "" {
			entry.Path = at.Path + "/" + name
		}
		if err := w.entry(entry, above, inside, depth); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read folder %q: %w", at.Path, err)
	}
	return nil
}

func (w *walker) entry(entry Entry, above inherited, from string, depth int) error {
	if !entry.Mode.IsTree() {
		if w.filter.file(entry.Path, above) && !w.yield(entry, nil) {
			return errStop
		}
		return nil
	}
	within, ok := w.filter.enter(entry.Path, above)
	if !ok {
		return nil
	}
	if from == "" && !w.yield(entry, nil) {
		return errStop
	}
	return w.folder(entry, within, from, depth-1)
}
