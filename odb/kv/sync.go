package kv

import "time"

// restAfterDefault is the idle time after which the store syncs its mark. Without that sync, damage
// to the last synced bytes looks like a crash.
const restAfterDefault = 100 * time.Millisecond

// On a slow disk, writers would fall into two groups, each of which commits while the other is
// synced, so that a sync carries half of them. A pause before the next sync lets the writers that
// were just released join it.
const (
	pauseFrom       = time.Millisecond // syncs that are faster have no pause before the next
	pauseShare      = 5                // the pause is that part of a sync
	pauseMax        = time.Millisecond
	pauseCommitsMin = 3 // with fewer commits under way no writer would join
)

// syncPause is called by Pebble after each sync of the log.
func (p *Pebble) syncPause() time.Duration {
	took := time.Duration(p.witness.lastNanos.Load())
	if took < pauseFrom || p.unsynced.Load() < pauseCommitsMin {
		return 0
	}
	return min(took/pauseShare, pauseMax)
}

// syncLoop waits for the sync of each commit, in the order in which they became visible, and
// releases its waiters. One goroutine does this for all commits, so that a commit without waiters
// is completed, too. Close ends it.
func (p *Pebble) syncLoop() {
	defer close(p.synced)
	idle := time.NewTimer(p.restAfter)
	defer idle.Stop()
	marked := time.Now()
	for {
		select {
		case c, open := <-p.syncing:
			if !open {
				return
			}
			p.settle(c)
			if now := time.Now(); now.Sub(marked) >= p.markEvery {
				p.mark.write(p.witness.now(), false)
				marked = now
			}
		case <-p.failed:
			return
		case <-p.stirred:
		case <-idle.C:
			p.rest()
			continue
		}
		idle.Reset(p.restAfter)
	}
}

// settle waits for the sync of c and releases its waiters.
func (p *Pebble) settle(c *commit) {
	if err := c.batch.SyncWait(); err != nil {
		p.fail(err)
	}
	if p.hasFailed() {
		return
	}
	p.stripes.settle(c)
	p.settled++
	p.unsynced.Add(-1)
	if err := c.batch.Close(); err != nil {
		p.logger.Error("kv: failed to release a batch", "error", err)
	}
	c.batch = nil
	close(c.done)
}

// stir notifies syncLoop of a change of the manifest.
func (p *Pebble) stir() {
	select {
	case p.stirred <- struct{}{}:
	default:
	}
}

// rest syncs the mark, so that it covers the last synced bytes.
func (p *Pebble) rest() {
	if p.mark.write(p.witness.now(), true) {
		p.rested.Store(p.settled)
	}
}
