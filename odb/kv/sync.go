package kv

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// restAfterDefault is how long the store is idle before it writes a statement of the witness: without one behind it, damage to what was
// synced last looks like the end that a crash leaves.
const restAfterDefault = 100 * time.Millisecond

// On a slow disk, writers would fall into two groups, each of which commits while the other is synced, so that a sync carries half of
// them. A pause before the next sync lets those who were just told come back and join it.
const (
	pauseFrom       = time.Millisecond // syncs that are faster have no pause before the next
	pauseShare      = 5                // the pause is that part of a sync
	pauseMax        = time.Millisecond
	pauseCommitsMin = 3 // with fewer commits on their way nobody would join
)

// syncPause is asked by Pebble after each sync of the log.
func (p *Pebble) syncPause() time.Duration {
	took := time.Duration(p.witness.lastNanos.Load())
	if took < pauseFrom || p.unsynced.Load() < pauseCommitsMin {
		return 0
	}
	return min(took/pauseShare, pauseMax)
}

// syncLoop waits for the sync of each commit, in the order in which they became visible, and tells those who wait for it: one
// goroutine for all of them, so that a commit that nobody waits for is settled too. Close ends it.
func (p *Pebble) syncLoop() {
	defer close(p.synced)
	idle := time.NewTimer(p.restAfter)
	defer idle.Stop()
	for {
		select {
		case c, open := <-p.syncing:
			if !open {
				return
			}
			p.settle(c)
		case <-p.failed:
			return
		case <-p.stirred:
		case <-idle.C:
			if err := p.rest(); err != nil {
				p.fail(err)
			}
			continue
		}
		idle.Reset(p.restAfter)
	}
}

// settle waits for the sync of c and tells those who wait for it.
func (p *Pebble) settle(c *commit) {
	if err := c.batch.SyncWait(); err != nil {
		p.fail(err)
	}
	if p.hasFailed() {
		return
	}
	p.stripes.settle(c)
	p.unsynced.Add(-1)
	if err := c.batch.Close(); err != nil {
		p.logger.Error("kv: release a batch", "error", err)
	}
	c.batch = nil
	close(c.done)
}

// stir tells syncLoop that the manifest has changed.
func (p *Pebble) stir() {
	select {
	case p.stirred <- struct{}{}:
	default:
	}
}

// rest writes a statement of the witness into the log and syncs it, so that what was synced last has one behind it.
func (p *Pebble) rest() error {
	commits := p.commits.Load()
	batch := p.db.NewBatchWithSize(statementBytes + 64)
	if err := batch.LogData(p.witness.now().encode(), nil); err != nil {
		return err
	}
	if err := p.recovered(func() error { return batch.Commit(pebble.Sync) }); err != nil {
		return err
	}
	p.rested.Store(commits)
	return nil
}
