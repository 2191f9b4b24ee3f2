package backup

import (
	"context"
	"errors"
	"iter"

	"packhorse/odb/file"
)

// Checked is what [Check] found about a backup.
type Checked struct {
	Summary
	// DamageCount files are missing or damaged; Damages are the first of them.
	DamageCount int64
	Damages     []error
}

// damagesMax bounds the damages that a [Checked] holds.
const damagesMax = 100

// Check reads every file of every backup, each once, and checks it against its SHA-256 and, if it
// is a file of pools, against the checksums in it. It calls progress, if not nil, with the numbers
// of files and bytes read. Memory: about a hundred bytes a file.
func Check(ctx context.Context, from file.Store, progress func(files, bytes int64)) iter.Seq2[Checked, error] {
	return func(yield func(Checked, error) bool) {
		found, err := numbers(ctx, from)
		if err != nil {
			yield(Checked{}, err)
			return
		}
		c := &checker{from: from, seen: make(map[checkedCopy]error), progress: progress}
		for _, number := range found {
			checked, err := c.backup(ctx, number)
			if errors.Is(err, file.ErrNotFound) {
				continue // removed since
			}
			if !yield(checked, err) || err != nil {
				return
			}
		}
	}
}

// checkedCopy is a checked file and its expected entry.
type checkedCopy struct {
	name string
	size int64
	sum  sum
}

type checker struct {
	from         file.Store
	seen         map[checkedCopy]error
	files, bytes int64
	progress     func(files, bytes int64)
}

func (c *checker) backup(ctx context.Context, number uint64) (Checked, error) {
	is, err := summarize(ctx, c.from, number)
	checked := Checked{Summary: is}
	if err != nil || is.Damage != nil {
		return checked, err
	}
	for e, err := range entries(ctx, c.from, number, new(head)) {
		if err != nil {
			return checked, err
		}
		if e.kind == kindLost {
			continue
		}
		err := c.copy(ctx, e)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return checked, err
		}
		if err != nil {
			checked.DamageCount++
			if len(checked.Damages) < damagesMax {
				checked.Damages = append(checked.Damages, err)
			}
		}
	}
	// Missing files may have been removed with the backup itself.
	if checked.DamageCount > 0 {
		if _, err := summarize(ctx, c.from, number); err != nil {
			return checked, err
		}
	}
	return checked, nil
}

// copy checks a file once.
func (c *checker) copy(ctx context.Context, e entry) error {
	key := checkedCopy{e.stored(), e.size, e.sum}
	if err, ok := c.seen[key]; ok {
		return err
	}
	err := checkCopy(ctx, c.from, e)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	c.seen[key] = err
	c.files++
	c.bytes += e.size
	if c.progress != nil {
		c.progress(c.files, c.bytes)
	}
	return err
}
