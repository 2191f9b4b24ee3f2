package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
)

// Of two servers that write to one repository, the one that won the last race is likely to win the
// next one: it knows what it has written, and the other has to read that first, a trip more. So who
// has lost several groups in a row asks the others to yield, by a row that they read with the head.
// They begin no group until it is gone. The batch that wins deletes it. The head alone decides
// which batch is taken; a row that is lost, or stays behind, only costs time.

const (
	// lostMax is how many groups of a line are lost in a row before it asks the others to yield.
	lostMax = 2
	// yieldEvery is the interval at which a server looks whether the row is gone, and yieldLooks how
	// often it looks: who asked may have died.
	yieldEvery = 5 * time.Millisecond
	yieldLooks = 100
)

func yieldKey(repo RepoID) []byte { return tableKey(yieldTable, repo, 0) }

// askToYield asks the other servers to yield in a repository, unless one has been asked for before.
func (s *Store) askToYield(ctx context.Context, repo RepoID) error {
	batch := kv.NewBatch()
	batch.RequireAbsent(yieldKey(repo))
	batch.Put(yieldKey(repo), s.token[:])
	if _, err := s.kv.Apply(ctx, batch); err != nil && !errors.Is(err, kv.ErrConflict) {
		return fmt.Errorf("ask other servers to yield in %s: %w", repo, err)
	}
	return nil
}

// yield waits for a server that has asked the others to, and has the group read anew after that.
// row is what the group has read, nil if nobody asks.
func (s *Store) yield(ctx context.Context, g *group, row []byte, read func() error) error {
	looks := 0
	for row != nil && !bytes.Equal(row, s.token[:]) && looks < yieldLooks {
		if err := fair.Sleep(ctx, yieldEvery); err != nil {
			return err
		}
		var err error
		row, err = s.kv.Get(ctx, yieldKey(g.repo))
		if errors.Is(err, kv.ErrNotFound) {
			row, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("read who asks to yield in %s: %w", g.repo, err)
		}
		looks++
	}
	g.clears = row != nil
	g.stands = bytes.Equal(row, s.token[:])
	if looks == 0 {
		return nil
	}
	return read()
}
