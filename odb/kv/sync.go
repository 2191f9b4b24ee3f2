package kv

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// restAfter is how long the store is idle before it writes a statement of the witness of its own.
const restAfter = 20 * time.Millisecond

// syncLoop waits for the sync of each commit, in the order in which they became visible, and tells those who wait for it: one
// goroutine for all of them, so that a commit that nobody waits for is settled too. Close ends it.
func (p *Pebble) syncLoop() {
	defer close(p.synced)
	idle := time.NewTimer(restAfter)
	defer idle.Stop()
	for {
		select {
		case c, open := <-p.syncing:
			if !open {
				return
			}
			p.settle(c)
		case <-p.stirred:
		case <-idle.C:
			if err := p.rest(pebble.NoSync); err != nil {
				p.fail(err)
			}
			continue
		}
		idle.Reset(restAfter)
	}
}

// settle waits for the sync of c and tells those who wait for it.
func (p *Pebble) settle(c *commit) {
	if err := c.batch.SyncWait(); err != nil {
		p.fail(err)
	}
	select {
	case <-p.failed:
		c.err = ErrFailed
	default:
		p.stripes.settle(c)
		p.unsynced.Add(-1)
		if err := c.batch.Close(); err != nil {
			p.logger.Error("kv: release a batch", "error", err)
		}
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

// rest writes a statement of the witness into the log, so that what was synced last has one behind it. Without a sync of its own
// it costs one small write, and protects what it states unless the machine loses power within the seconds that the system takes to
// write it back.
func (p *Pebble) rest(options *pebble.WriteOptions) error {
	batch := p.db.NewBatchWithSize(statementBytes + 64)
	if err := batch.LogData(p.witness.now().encode(), nil); err != nil {
		return err
	}
	return p.applyRecovered(func() error { return batch.Commit(options) })
}
