package engine

import (
	"context"
	"fmt"
	"time"

	"packhorse/engine/catalog"
	"packhorse/odb"
	"packhorse/odb/fair"
)

// Census is what a store held when it was last counted.
type Census struct {
	// Time is when the count ended; zero when this host has not counted, or does so no longer.
	Time time.Time
	// RepositoryCount counts the repositories of all organizations, DeletedCount those that were
	// deleted and may come back. DeletedBytes is what the latter stored when they were deleted.
	RepositoryCount, DeletedCount int
	DeletedBytes                  int64
	Files                         odb.FileBytes
}

// Census returns the last count of the store. It does not block.
func (h *Host) Census() Census {
	if last := h.census.Load(); last != nil {
		return *last
	}
	return Census{}
}

// censusRest is the least rest after a count of the store, as a multiple of its duration.
const censusRest = 20

// keepCensus counts the store at an interval until ctx ends. A count that takes long is repeated
// less often.
func (h *Host) keepCensus(ctx context.Context, interval time.Duration) error {
	defer h.census.Store(nil) // another server counts from now on
	for {
		begun := time.Now()
		if taken, err := h.takeCensus(ctx); err == nil {
			h.census.Store(&taken)
		} else if ctx.Err() == nil {
			h.log.WarnContext(ctx, "failed to count what is stored", "error", err)
		}
		if fair.Sleep(ctx, max(interval, censusRest*time.Since(begun))) != nil {
			return nil
		}
	}
}

// CountRepositories counts the repositories of all organizations, those that were deleted and may
// come back, and what the latter stored when they were deleted. It reads a small row of each.
// Errors: those of reading.
func (h *Host) CountRepositories(ctx context.Context) (count, deleted int, deletedBytes int64, err error) {
	pace := h.objects.NewPacer(1)
	for _, err := range h.keys.Scan(ctx, catalog.Numbers()) {
		if err == nil {
			err = pace.Rest(ctx)
		}
		if err != nil {
			return 0, 0, 0, fmt.Errorf("count repositories: %w", err)
		}
		count++
	}
	for pair, err := range h.keys.Scan(ctx, catalog.Deletions()) {
		if err == nil {
			err = pace.Rest(ctx)
		}
		if err != nil {
			return 0, 0, 0, fmt.Errorf("count deleted repositories: %w", err)
		}
		deleted++
		if d, err := catalog.DecodeDeletion(pair.Value); err == nil { // fsck reports another one
			deletedBytes += d.Bytes
		}
	}
	return count, deleted, deletedBytes, nil
}

// takeCensus reads a small row of each repository and of each file.
func (h *Host) takeCensus(ctx context.Context) (taken Census, err error) {
	if taken.RepositoryCount, taken.DeletedCount, taken.DeletedBytes, err = h.CountRepositories(ctx); err != nil {
		return Census{}, err
	}
	if taken.Files, err = h.CountFiles(ctx); err != nil {
		return Census{}, err
	}
	taken.Time = h.now()
	return taken, nil
}

// CountFiles adds up what the files of the store take. It reads a small row of each. Errors: those
// of reading.
func (h *Host) CountFiles(ctx context.Context) (odb.FileBytes, error) {
	return h.objects.CountFiles(ctx, h.objects.NewPacer(1))
}
