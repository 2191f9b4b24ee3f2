package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"packhorse/engine/catalog"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// ScrubStats are counts since the host was opened.
type ScrubStats struct {
	// Bytes counts the bytes read, PassCount the completed passes over all repositories, and
	// ProblemCount the problems found.
	Bytes, PassCount, ProblemCount uint64
}

// scrubCounts are what [Host.ScrubStats] reports.
type scrubCounts struct{ bytes, passes, problems atomic.Uint64 }

// ScrubStats returns the counts of [Host.Scrub].
func (h *Host) ScrubStats() ScrubStats {
	return ScrubStats{
		Bytes: h.scrubbed.bytes.Load(), PassCount: h.scrubbed.passes.Load(), ProblemCount: h.scrubbed.problems.Load(),
	}
}

// DamageCount returns the number of damaged items found since the host was opened, by reads, checks
// and scrubbing, unless a [Host.Fsck] or a pass of [Host.Scrub] over all repositories has since
// found nothing. It does not block.
func (h *Host) DamageCount() int { return h.objects.Stats().DamageCount }

// ScrubOptions are the settings of [Host.Scrub].
type ScrubOptions struct {
	// BytesPerSecond bounds how fast stored bytes are read. It must be positive.
	BytesPerSecond int64
	// Rest is the pause after a pass over all repositories.
	Rest time.Duration
	// Passes ends the work after that many passes; 0 continues until the context ends.
	Passes int
}

// Scrub checks one repository after the other, as [Host.Fsck] does, on one core and at a bounded
// rate, and begins again after the last one. It logs and counts damage. It continues with the
// repository at which it was last stopped.
func (h *Host) Scrub(ctx context.Context, options ScrubOptions) error {
	for pass := 0; options.Passes == 0 || pass < options.Passes; pass++ {
		if pass > 0 {
			if err := fair.Sleep(ctx, options.Rest); err != nil {
				return err
			}
		}
		if err := h.scrubPass(ctx, options); err != nil {
			return fmt.Errorf("scrub: %w", err)
		}
		h.scrubbed.passes.Add(1)
		h.care.check.Store(h.now().UnixNano())
	}
	return nil
}

// keepScrubbing scrubs until ctx ends.
func (h *Host) keepScrubbing(ctx context.Context, options ScrubOptions) error {
	options.Rest = cmp.Or(options.Rest, scrubRest)
	for ctx.Err() == nil {
		if err := h.Scrub(ctx, options); err != nil && ctx.Err() == nil {
			h.log.ErrorContext(ctx, "scrubbing failed, trying again later", "error", err, "rest", options.Rest)
			_ = fair.Sleep(ctx, options.Rest) // ctx is checked next
		}
	}
	return nil
}

// scrubRest is the pause between two passes in the background, and after a failed one.
const scrubRest = 10 * time.Minute

// scrubPass checks the repositories from the stored position on.
func (h *Host) scrubPass(ctx context.Context, options ScrubOptions) error {
	position, err := h.keys.Get(ctx, scrubKey)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	var start refs.RepoID
	copy(start[:], position)
	pace := h.scrubPace(options.BytesPerSecond)
	sound, whole := h.objects.WholeCheck(), len(position) == 0
	var damage error
	for pair, err := range h.keys.Scan(ctx, catalog.Records(start)) {
		if isDamage(err) {
			damage = err // the next pass begins at the first repository
			break
		}
		if err != nil {
			return err
		}
		id, ok := catalog.RecordOf(pair.Key)
		if !ok {
			whole = false
			continue // fsck reports it
		}
		if err := h.storeScrubPosition(ctx, &id); err != nil {
			return err
		}
		checked, err := h.check(ctx, id, FsckOptions{pace: pace})
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, refs.ErrRepositoryNotFound), errors.Is(err, odb.ErrNoPool):
			// Deleted since.
		case err != nil:
			return err
		default:
			whole = whole && !checked.Damaged()
			h.logScrubbed(ctx, &checked)
		}
	}
	switch {
	case damage != nil:
		checked := storeProblem(fmt.Errorf("scan repositories: %w", damage))
		h.logScrubbed(ctx, &checked)
	case whole:
		sound()
	}
	return h.storeScrubPosition(ctx, nil)
}

// scrubPace returns a function that waits until bytes may be read.
func (h *Host) scrubPace(perSecond int64) func(ctx context.Context, bytes int64) error {
	due := time.Now()
	return func(ctx context.Context, bytes int64) error {
		h.scrubbed.bytes.Add(uint64(bytes))
		// time spent waiting is not made up for
		if now := time.Now(); due.Before(now) {
			due = now
		}
		due = due.Add(time.Duration(float64(bytes) / float64(perSecond) * float64(time.Second)))
		return fair.Sleep(ctx, time.Until(due))
	}
}

// scrubKey holds the repository that the scrubber is at.
var scrubKey = []byte{tableScrub}

// storeScrubPosition stores the position, which need not survive a crash; nil is the begin.
func (h *Host) storeScrubPosition(ctx context.Context, id *refs.RepoID) error {
	b := kv.NewBatch()
	if id == nil {
		b.Delete(scrubKey)
	} else {
		b.Put(scrubKey, id[:])
	}
	_, err := h.keys.Apply(ctx, b)
	return err
}

// logScrubbed logs damage of a repository.
func (h *Host) logScrubbed(ctx context.Context, checked *Checked) {
	h.scrubbed.problems.Add(uint64(checked.ProblemCount()))
	for _, problem := range checked.Problems() {
		h.log.ErrorContext(ctx, "scrubbing found damage", "org", checked.Org, "repo", checked.Name,
			"repository", checked.Repository.String(),
			"error", problem)
	}
}
