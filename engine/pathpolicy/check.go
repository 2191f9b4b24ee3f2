package pathpolicy

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/engine/diff"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Check refuses the change of a ref by which something changes at a path that may not: the tree
// after has there something else than each of the trees before. object.ZeroID is the tree without
// entries, and stands for no tree before. name is the full name of the ref.
//
// Errors: a [refs.DeniedError] for the first such path; those of [diff.Trees].
func (p Policy) Check(
	ctx context.Context, objects diff.Objects, name string, before []object.ID, after object.ID,
) error {
	if !p.Protects() {
		return nil
	}
	if len(before) == 0 {
		before = []object.ID{object.ZeroID}
	}
	for change, err := range common(ctx, objects, before, after) {
		if err != nil {
			return fmt.Errorf("compare the trees of %s: %w", name, err)
		}
		r := p.governing(change.Path(), change.Old.Mode, change.New.Mode)
		if r == nil || r.op == "" {
			continue
		}
		detail := fmt.Sprintf("path %s is protected by %.200q", quote(change.Path()), r.pattern)
		if r.op != NoWrite {
			detail += ", whose op is not known"
		}
		return &refs.DeniedError{Name: name, Op: r.op, Detail: detail}
	}
	return nil
}

// quote shows the end of a path that is long: it names the file.
func quote(path string) string {
	const most = 300
	if len(path) <= most {
		return fmt.Sprintf("%q", path)
	}
	return fmt.Sprintf("...%q", path[len(path)-most:])
}

// common yields the files of the tree after that differ from those of every tree before, in the
// order of [diff.Trees]. Old is that of the first tree.
func common(
	ctx context.Context, objects diff.Objects, before []object.ID, after object.ID,
) iter.Seq2[diff.Change, error] {
	first := diff.Trees(ctx, objects, before[0], after, nil)
	if len(before) == 1 {
		return first
	}
	return func(yield func(diff.Change, error) bool) {
		others := make([]*stretch, 0, len(before)-1)
		defer func() {
			for _, other := range others {
				other.stop()
			}
		}()
		for _, tree := range before[1:] {
			next, stop := iter.Pull2(diff.Trees(ctx, objects, tree, after, nil))
			others = append(others, &stretch{next: next, stop: stop})
		}
		for change, err := range first {
			shared := err == nil
			for _, other := range others {
				if !shared {
					break
				}
				shared, err = other.reach(change.Path())
			}
			if errors.Is(err, errEnd) {
				return
			}
			if (shared || err != nil) && !yield(change, err) || err != nil {
				return
			}
		}
	}
}

// stretch is the changes from one tree that have not been compared yet.
type stretch struct {
	next func() (diff.Change, error, bool)
	stop func()
	at   string // the path of the change that was taken last
}

// errEnd says that there are no more changes.
var errEnd = errors.New("pathpolicy: no more changes")

// reach takes changes up to a path and reports whether there is one at it. Paths ascend from call
// to call. Errors: [errEnd].
func (s *stretch) reach(path string) (bool, error) {
	for s.at < path {
		change, err, ok := s.next()
		if err != nil {
			return false, err
		}
		if !ok {
			return false, errEnd
		}
		s.at = change.Path()
	}
	return s.at == path, nil
}
