package diff

import (
	"errors"
	"fmt"
	"iter"
)

// ErrAfter says that no file changed at the path that a page is to go on behind.
var ErrAfter = errors.New("diff: no file changed at the path where the page before ended")

// page yields the changes behind the one at the path after, "" for all, up to limit of them unless
// that is 0, and sets more if others follow.
func page(changes iter.Seq2[Change, error], after string, limit int, more *bool) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		skipping, count := after != "", 0
		for change, err := range changes {
			switch {
			case err != nil:
				yield(change, err)
				return
			case skipping:
				skipping = change.Path() != after
				continue
			case limit > 0 && count == limit:
				*more = true
				return
			}
			count++
			if !yield(change, nil) {
				return
			}
		}
		if skipping {
			yield(Change{}, fmt.Errorf("%w: %.200q", ErrAfter, after))
		}
	}
}
